/**
 * Confinement by unshare and setpriv of util-linux, for machines without bubblewrap: the same namespaces, the same
 * empty root and the same system call filter, put together by a shell script. It costs some 20 ms more per start.
 */
import path from 'node:path';
import { parents } from './bwrap.ts';
import { type Command, type Confinement, USER_THREADS } from './confinement.ts';
import { filterLoader } from './filter-loader.ts';
import { findProgram } from './programs.ts';
import { seccompProgram } from './seccomp.ts';

/**
 * `$1` the folder that becomes the root, then triples `ro|rw from to` up to `--`, then the command.
 * The root is a tmpfs in a mount namespace of its own, so one empty folder serves all instances at once.
 */
const SCRIPT = `
set -e
root=$1; shift
mount --make-rprivate /
perl -e 'socket(S, 2, 2, 0) && ioctl(S, 0x8914, pack("a16 s x22", "lo", 1)) or die "no loopback: $!\\n"'
mount -t tmpfs -o mode=0755,size=1m,nosuid,nodev tmpfs "$root"
while [ "$1" = folder ]; do mkdir -m 0755 -p "$root$2"; shift 2; done
while [ "$1" != -- ]; do
  if [ -d "$2" ]; then mkdir -p "$root$3"; else : > "$root$3"; fi
  mount --bind "$2" "$root$3"
  if [ "$1" = ro ]; then mount -o remount,bind,ro,nosuid,nodev "$root$3" 2>/dev/null || mount -o remount,bind,ro "$root$3"
  elif [ -d "$2" ]; then mount -o remount,bind,nosuid,nodev "$root$3"; fi
  shift 3
done
shift
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -o remount,bind,ro,nosuid,nodev,noexec "$root/proc"
mount -o remount,bind,ro,nosuid,nodev "$root"
cd "$root"
exec chroot "$root" "$@"
`;

/** The program itself may be Perl, too. */
const LOADER = '/bin/load-filter';

export async function unshareCommand(
  confinement: Confinement,
  libraries: (programs: string[]) => Promise<string[]>,
): Promise<Command> {
  const { program, uid, limits } = confinement;
  const inside = `/bin/${path.basename(program)}`;
  const unshare = findProgram('unshare', 'util-linux');
  const setpriv = findProgram('setpriv', 'util-linux');
  const prlimit = findProgram('prlimit', 'util-linux');
  const perl = findProgram('perl', 'perl-base');
  const needed = await libraries([program, setpriv, prlimit, perl, ...(confinement.needs ?? [])]);
  const files = [
    ...needed.map((file) => ({ from: file, to: file })),
    { from: program, to: inside },
    { from: setpriv, to: '/bin/setpriv' },
    { from: prlimit, to: '/bin/prlimit' },
    { from: perl, to: LOADER },
    ...confinement.binds,
  ];
  const folders = [...parents(files.map((file) => file.to)), '/proc'];
  return {
    // The kernel forgets the death signal when the user changes, so it is set on both sides of that.
    file: setpriv,
    args: [
      '--pdeathsig',
      'KILL',
      unshare,
      ...(uid === undefined ? ['--user', '--map-root-user'] : []),
      '--net',
      '--pid',
      '--ipc',
      '--uts',
      '--mount',
      '--fork',
      '--kill-child',
      '/bin/sh',
      '-c',
      SCRIPT,
      'sh',
      '/mnt',
      ...folders.flatMap((folder) => ['folder', folder]),
      ...files.flatMap((file) => ['writable' in file && file.writable ? 'rw' : 'ro', file.from, file.to]),
      'rw',
      '/dev/urandom',
      '/dev/urandom',
      'rw',
      '/dev/null',
      '/dev/null',
      '--',
      '/bin/prlimit',
      '--core=0',
      `--nofile=${limits.openFiles}`,
      `--fsize=${limits.fileBytes}`,
      `--nproc=${USER_THREADS}`,
      '/bin/setpriv',
      '--pdeathsig',
      'KILL',
      '--no-new-privs',
      '--bounding-set=-all',
      '--inh-caps=-all',
      ...(uid === undefined ? [] : ['--reuid', String(uid), '--regid', String(uid), '--clear-groups']),
      ...filterLoader(LOADER),
      inside,
      ...confinement.args,
    ],
    seccomp: seccompProgram(confinement.profile),
  };
}
