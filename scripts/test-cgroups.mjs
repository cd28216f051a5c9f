// `npm run test:cgroups -- [--install-system]`: the limits that the kernel keeps, on a real kernel with cgroup v2, in a
// virtual machine of qemu (software alone, no device, no network). Takes about a minute. Where qemu is not installed it
// says so and ends with 3. Last line as in `npm test`. Plain JavaScript for Node 18 and newer.
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { stripVTControlCharacters } from 'node:util';
import { prepare, root } from './launch.mjs';
import { installPackages } from './system-packages.mjs';

const PACKAGES = ['qemu-system-x86', 'busybox-static', 'cpio', 'bubblewrap', 'util-linux'];
/** Its kernel is unpacked, never installed. */
const KERNEL_PACKAGE = 'linux-image-cloud-amd64';
const LIMIT_MS = 300_000;
/** What the sandboxes of the runtime need of the packages. */
const MODULES = ['capnp-ts', 'tslib', 'debug', 'ms', 'zod', 'workerd', '@cloudflare/workerd-linux-64'];

const INIT = `#!/bin/busybox sh
# A sandbox changes its root, which a root in the initial memory file system does not allow.
/bin/busybox mkdir /machine
/bin/busybox mount -t tmpfs -o size=1500m tmpfs /machine
for entry in /*; do [ $entry = /machine ] || /bin/busybox cp -a $entry /machine/; done
exec /bin/busybox switch_root /machine /second
`;
const SECOND = `#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/sbin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
# As systemd does for a service with Delegate=yes.
echo "+cpu +memory +pids" > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/turnpike.service
echo $$ > /sys/fs/cgroup/turnpike.service/cgroup.procs
cd /app
node --disable-warning=ExperimentalWarning test/cgroups/guest.ts
poweroff -f
`;

const install = process.argv.includes('--install-system');
const installed = () =>
  ['qemu-system-x86_64', 'busybox', 'cpio', 'bwrap'].every((name) => spawnSync('which', [name]).status === 0);

if (process.arch !== 'x64') skip('it is made for x86-64');
if (install && !installed()) await installPackages(PACKAGES);
if (!installed()) skip(`it needs qemu. Run: apt-get install --no-install-recommends ${PACKAGES.join(' ')}`);

const node = await prepare({ development: true });
const folder = mkdtempSync(join(tmpdir(), 'turnpike-cgroups-'));
try {
  const kernel = unpackKernel(join(folder, 'kernel'));
  if (kernel === undefined) {
    rmSync(folder, { recursive: true, force: true });
    skip(`${KERNEL_PACKAGE} cannot be downloaded from here`);
  }
  const archive = makeArchive(join(folder, 'root'), join(folder, 'initrd.gz'));
  const { passed, failed } = await boot(kernel, archive);
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
} finally {
  rmSync(folder, { recursive: true, force: true });
}

function skip(why) {
  console.error(`skipped: the check of cgroups in a virtual machine: ${why}`);
  process.exit(3);
}

/** @returns path of the kernel, or undefined */
function unpackKernel(into) {
  mkdirSync(into, { recursive: true });
  const depends = spawnSync('apt-cache', ['depends', KERNEL_PACKAGE], { encoding: 'utf8' }).stdout;
  const name = /Depends: (linux-image-\S+)/.exec(depends ?? '')?.[1];
  if (name === undefined) return undefined;
  // As root apt changes its user, who must be able to write here.
  const options = ['-qq', '-o', 'APT::Sandbox::User=root', 'download', name];
  if (spawnSync('apt-get', options, { cwd: into, stdio: 'inherit' }).status !== 0) return undefined;
  const file = readdirSync(into).find((one) => one.endsWith('.deb'));
  execFileSync('dpkg-deb', ['-x', file, 'files'], { cwd: into });
  const image = readdirSync(join(into, 'files/boot')).find((one) => one.startsWith('vmlinuz'));
  return image && join(into, 'files/boot', image);
}

/** Everything that the machine has, in the memory that it starts with. */
function makeArchive(into, archive) {
  for (const name of ['bin', 'proc', 'sys', 'dev', 'tmp', 'run']) mkdirSync(join(into, name), { recursive: true });
  const add = (file) => {
    if (existsSync(join(into, file))) return;
    mkdirSync(dirname(join(into, file)), { recursive: true });
    cpSync(realpathSync(file), join(into, file));
  };
  const programs = ['bwrap', 'prlimit', 'setpriv', 'ldd', 'bash', 'busybox'].map((name) =>
    execFileSync('which', [name], { encoding: 'utf8' }).trim(),
  );
  const workerd = realpathSync(join(root, 'node_modules/@cloudflare/workerd-linux-64/bin/workerd'));
  for (const program of programs) add(program);
  cpSync(realpathSync(node), join(into, 'bin/node'));
  for (const program of [...programs, node, workerd]) {
    const { stdout } = spawnSync('ldd', [program], { encoding: 'utf8' });
    for (const [library] of stdout.matchAll(/\/\S+(?= \(0x)/g)) add(library);
  }
  for (const name of ['bash', 'busybox']) {
    const file = programs.find((program) => program.endsWith(`/${name}`));
    if (!existsSync(join(into, 'bin', name))) cpSync(realpathSync(file), join(into, 'bin', name));
  }
  for (const name of ['host', 'test/cgroups', 'package.json']) {
    cpSync(join(root, name), join(into, 'app', name), { recursive: true });
  }
  for (const name of MODULES) {
    const from = join(root, 'node_modules', name);
    if (existsSync(from)) cpSync(realpathSync(from), join(into, 'app/node_modules', name), { recursive: true });
  }
  writeFileSync(join(into, 'init'), INIT, { mode: 0o755 });
  writeFileSync(join(into, 'second'), SECOND, { mode: 0o755 });
  execFileSync('sh', ['-c', 'find . | cpio -o -H newc --quiet | gzip -1 > "$0"', archive], { cwd: into });
  return archive;
}

function boot(kernel, archive) {
  const machine = spawn(
    'qemu-system-x86_64',
    [
      ...['-machine', 'q35', '-accel', 'tcg', '-cpu', 'max', '-m', '3072', '-smp', '1', '-nographic', '-net', 'none'],
      ...['-no-reboot', '-kernel', kernel, '-initrd', archive, '-append', 'console=ttyS0 panic=-1 quiet'],
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  const timer = setTimeout(() => machine.kill('SIGKILL'), LIMIT_MS);
  const result = { passed: 0, failed: 0 };
  let ended = false;
  createInterface({ input: machine.stdout }).on('line', (raw) => {
    const line = stripVTControlCharacters(raw).replace(/^c(?=ok: |FAILED: )/, '');
    console.log(line);
    if (line.startsWith('ok: ')) result.passed += 1;
    if (line.startsWith('FAILED: ')) result.failed += 1;
    if (line.startsWith('end')) ended = true;
  });
  return new Promise((resolve) => {
    machine.once('close', () => {
      clearTimeout(timer);
      // A machine that stops on the way has not shown the rest.
      if (!ended) result.failed += 1;
      resolve(result);
    });
  });
}
