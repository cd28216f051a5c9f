/**
 * Confinement by bubblewrap: an empty root with the few files that are needed, every namespace of its own, no
 * capabilities, a system call filter. Measured cost beside a bare start: about 4 ms.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { type Command, type Confinement, SECCOMP_FD, USER_THREADS } from './confinement.ts';
import { findProgram } from './programs.ts';
import { seccompProgram } from './seccomp.ts';

export async function bwrapCommand(
  confinement: Confinement,
  libraries: (programs: string[]) => Promise<string[]>,
): Promise<Command> {
  const { program, uid, limits } = confinement;
  const inside = `/bin/${path.basename(program)}`;
  const bwrap = findProgram('bwrap', 'bubblewrap');
  const prlimit = findProgram('prlimit', 'util-linux');
  // As root the process is given another user at the last moment, inside: the installation may lie in a folder that
  // only root can enter. Otherwise a user namespace hides everyone else.
  const setpriv = uid === undefined ? undefined : findProgram('setpriv', 'util-linux');
  const helpers = [prlimit, ...(setpriv ? [setpriv] : [])];
  const needed = await libraries([program, ...helpers, ...(confinement.needs ?? [])]);
  const files = [
    ...needed.map((file) => ({ from: file, to: file })),
    { from: program, to: inside },
    ...helpers.map((helper) => ({ from: helper, to: `/bin/${path.basename(helper)}` })),
    ...confinement.binds,
  ];
  return {
    file: prlimit,
    args: [
      '--core=0',
      `--nofile=${limits.openFiles}`,
      `--fsize=${limits.fileBytes}`,
      ...(setpriv === undefined && hasAmbientCapabilities()
        ? [findProgram('setpriv', 'util-linux'), '--ambient-caps=-all', '--inh-caps=-all']
        : []),
      bwrap,
      ...(setpriv
        ? ['--unshare-ipc', '--unshare-pid', '--unshare-net', '--unshare-uts', '--unshare-cgroup-try']
        : ['--unshare-all']),
      '--die-with-parent',
      '--new-session',
      '--clearenv',
      ...Object.entries(confinement.environment ?? {}).flatMap(([name, value]) => ['--setenv', name, value]),
      '--cap-drop',
      'ALL',
      ...(setpriv ? ['--cap-add', 'CAP_SETUID', '--cap-add', 'CAP_SETGID'] : []),
      // bwrap makes missing folders for root alone when a file inside is bound.
      ...parents(files.map((file) => file.to)).flatMap((folder) => ['--perms', '0755', '--dir', folder]),
      ...files.flatMap(({ from, to, ...rest }) => [
        'writable' in rest && rest.writable ? '--bind' : '--ro-bind',
        from,
        to,
      ]),
      '--dev-bind',
      '/dev/urandom',
      '/dev/urandom',
      '--dev-bind',
      '/dev/null',
      '/dev/null',
      '--proc',
      '/proc',
      // Files of /proc/sys are for user 0 of the machine to write, with capabilities or without; that may be the host's.
      '--remount-ro',
      '/proc',
      '--remount-ro',
      '/',
      '--chdir',
      '/',
      '--seccomp',
      String(SECCOMP_FD),
      '--',
      ...(setpriv
        ? ['/bin/setpriv', '--reuid', String(uid), '--regid', String(uid), '--clear-groups', '--inh-caps=-all']
        : []),
      // Counted per user, so it is set last: before, the host's own threads would count, but for root of the machine.
      '/bin/prlimit',
      `--nproc=${USER_THREADS}`,
      inside,
      ...confinement.args,
    ],
    seccomp: seccompProgram(confinement.profile),
  };
}

/**
 * A service of systemd has them for ports below 1024 (AmbientCapabilities). bwrap gets them, too, and then refuses to
 * run: it takes itself for a program with capabilities of its own.
 */
function hasAmbientCapabilities(): boolean {
  return /^CapAmb:\s*0*[1-9a-f]/m.test(readFileSync('/proc/self/status', 'utf8'));
}

/** Every folder above these paths, outermost first. */
export function parents(paths: string[]): string[] {
  const found = new Set<string>();
  for (const file of [...paths, '/dev/null']) {
    const parts = file.split('/').slice(1, -1);
    for (let length = 1; length <= parts.length; length++) found.add(`/${parts.slice(0, length).join('/')}`);
  }
  return [...found].sort();
}
