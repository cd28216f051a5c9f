/**
 * What the doctor runs inside a sandbox: plain JavaScript that tries to get out and prints what came of each attempt, one
 * JSON line each. It has the rights that a tenant's code would have after it broke workerd itself. No attempt changes
 * the machine for good where it succeeds.
 */

/** What the program is told on standard input. */
export interface Targets {
  /** A file of the host that any process could read. */
  file: string;
  /** A folder of the host that must not be seen. */
  folder: string;
  /** Process id on the host of the doctor itself. */
  pid: number;
  /** What process ids of the host belong to: in a container they are as low as those inside. */
  pidNamespace: string;
  /** A server on the host's loopback. */
  port: number;
  /** A server on an abstract unix socket of the host. */
  abstract: string;
  /** A unix socket of another tenant. */
  socket: string;
  /** The folder that is given to it for writing. */
  writable: string;
  /** Whether files may be made in that folder. */
  mayWrite: boolean;
  /** A variable of the host's environment. */
  variable: string;
  openFiles: number;
  /** Programs that were put into the sandbox to try them. */
  programs: { unshare: string; mount: string };
}

export interface Report {
  attempt: string;
  contained: boolean;
  detail: string;
}

export const DOCTOR_PROGRAM = `
const fs = require('node:fs');
const net = require('node:net');
const { spawnSync } = require('node:child_process');
const targets = JSON.parse(fs.readFileSync(0, 'utf8'));

function report(attempt, contained, detail) {
  fs.writeSync(1, JSON.stringify({ attempt, contained, detail: String(detail).slice(0, 300) }) + '\\n');
}
/** Contained when it throws. */
function mustFail(attempt, work) {
  try {
    report(attempt, false, 'worked: ' + work());
  } catch (error) {
    report(attempt, true, error.code || error.message);
  }
}
function mustNotConnect(attempt, options) {
  return new Promise((resolve) => {
    let socket;
    const done = (contained, detail) => { report(attempt, contained, detail); socket && socket.destroy(); resolve(); };
    try {
      socket = net.connect(options);
      socket.setTimeout(1500, () => done(true, 'no answer'));
      socket.on('connect', () => done(false, 'connected'));
      socket.on('error', (error) => done(true, error.code));
    } catch (error) {
      done(true, error.code || error.message);
    }
  });
}
/** Leaves nothing behind where it works after all. */
function makeAndRemove(file) {
  fs.writeFileSync(file, Buffer.alloc(65536));
  fs.unlinkSync(file);
}
/** Contained when the program cannot do its work. */
function mustNotRun(attempt, file, args) {
  const { status, error, stderr } = spawnSync(file, args, { timeout: 3000 });
  report(attempt, status !== 0, error ? error.code : 'status ' + status + ' ' + String(stderr).trim());
}

(async () => {
  mustFail('read a file of the host', () => fs.readFileSync(targets.file).length + ' bytes');
  mustFail('list a folder of the host', () => fs.readdirSync(targets.folder).length + ' entries');
  mustFail('find programs in /usr/bin', () => fs.readdirSync('/usr/bin').length + ' entries');
  mustFail('follow /proc/1/root out', () => fs.readFileSync('/proc/1/root' + targets.file).length + ' bytes');
  for (const folder of ['/', '/bin/', '/dev/shm/']) mustFail('write into ' + folder, () => makeAndRemove(folder + 'turnpike-doctor'));
  if (!targets.mayWrite) mustFail('fill the disk through its socket folder', () => makeAndRemove(targets.writable + '/fill'));
  mustFail('make a link for the host to follow', () => { fs.symlinkSync(targets.file, targets.writable + '/link'); fs.unlinkSync(targets.writable + '/link'); });
  mustFail('open a disk', () => fs.readdirSync('/dev').filter((name) => /^(sd|vd|nvme|mem|kmsg|kvm)/.test(name)).map((name) => fs.openSync('/dev/' + name))[0] ?? (() => { throw new Error('none is there'); })());
  mustFail('read kernel memory', () => fs.openSync('/proc/kcore'));
  mustFail('change the kernel', () => fs.closeSync(fs.openSync('/proc/sys/kernel/hostname', 'r+')));
  mustFail('trigger a reboot by sysrq', () => fs.openSync('/proc/sysrq-trigger', 'w'));
  mustFail('signal a process of the host', () => { process.kill(targets.pid, 0); if (fs.readlinkSync('/proc/self/ns/pid') !== targets.pidNamespace) throw new Error('only one of its own that has the same number'); return 'process ' + targets.pid; });
  const others = fs.existsSync('/proc') ? fs.readdirSync('/proc').filter((name) => /^\\d+$/.test(name)) : [];
  report('see processes of the host', others.length <= 4, others.length + ' processes in sight');
  mustFail('read the environment of other processes', () => { const found = others.filter((pid) => pid !== String(process.pid)).map((pid) => { try { return fs.readFileSync('/proc/' + pid + '/environ', 'latin1'); } catch { return ''; } }).join(''); if (found === '') throw new Error('empty'); return found.length + ' bytes'; });
  report('see variables of the host', !(targets.variable in process.env), Object.keys(process.env).join(' ') || 'none');
  report('be root', process.getuid() !== 0 || !isRealRoot(), 'user ' + process.getuid());
  mustFail('become root', () => { process.setuid(0); if (!isRealRoot()) throw new Error('only inside a user namespace'); return 'user ' + process.getuid(); });
  const status = fs.readFileSync('/proc/self/status', 'latin1');
  const field = (name) => (new RegExp('^' + name + ':\\\\s*(\\\\S+)', 'm').exec(status) || [])[1];
  report('use capabilities', /^0+$/.test(field('CapEff')) && /^0+$/.test(field('CapPrm')), 'effective ' + field('CapEff') + ' permitted ' + field('CapPrm'));
  report('gain rights from a set-user-id program', field('NoNewPrivs') === '1', 'no_new_privs ' + field('NoNewPrivs'));
  report('make any system call', field('Seccomp') === '2', 'seccomp ' + field('Seccomp'));
  mustNotRun('make a new user namespace', targets.programs.unshare, ['--user', '--map-root-user', '/bin/true-or-not']);
  mustNotRun('make a new mount namespace', targets.programs.unshare, ['--mount', targets.programs.unshare, '--version']);
  mustNotRun('mount a file system', targets.programs.mount, ['-t', 'tmpfs', 'tmpfs', targets.writable]);
  await mustNotConnect('reach a server on loopback', { host: '127.0.0.1', port: targets.port });
  await mustNotConnect('reach an abstract socket of the host', { path: '\\0' + targets.abstract });
  await mustNotConnect('reach the socket of another tenant', { path: targets.socket });
  const interfaces = Object.values((() => { try { return require('node:os').networkInterfaces(); } catch { return {}; } })()).flat();
  report('see a network interface', interfaces.every((one) => one.internal), interfaces.map((one) => one.address).join(' ') || 'none');
  let opened = 0;
  try { while (opened <= targets.openFiles + 16) { fs.openSync('/dev/null'); opened++; } } catch {}
  report('open more files than allowed', opened <= targets.openFiles, opened + ' opened, ' + targets.openFiles + ' allowed');
})();

/** In a user namespace of its own, user 0 is nobody outside. */
function isRealRoot() {
  return fs.readFileSync('/proc/self/uid_map', 'latin1').trim().split(/\\s+/)[2] === '4294967295';
}
`;

/** Calls that no program inside makes, of an old kernel and of one that is yet to come: [x86_64, arm64]. */
const CALLS = {
  ptrace: [101, 117],
  'a new namespace by clone': [56, 220],
  clone3: [435, 435],
  unshare: [272, 97],
  setns: [308, 268],
  mount: [165, 40],
  fsopen: [430, 430],
  bpf: [321, 280],
  perf_event_open: [298, 241],
  userfaultfd: [323, 282],
  io_uring_setup: [425, 425],
  keyctl: [250, 219],
  personality: [135, 92],
  process_vm_readv: [310, 270],
  memfd_create: [319, 279],
  'a call of a later kernel': [1_000, 1_000],
} as const;

const CLONE_NEWUSER = 0x10000000;

/** The same in Perl, which can make any system call: a report for each. */
export function callAttempts(architecture: string = process.arch): string {
  const column = architecture === 'arm64' ? 1 : 0;
  return Object.entries(CALLS)
    .map(([name, numbers]) => {
      const attempt = JSON.stringify(name.includes(' ') ? `make ${name}` : `call ${name}`);
      // Where it is let through, it fails for what it is asked: 0 is no address, and no such file.
      return `$! = 0; $r = syscall(${numbers[column]}, ${name.includes('clone') ? CLONE_NEWUSER : 0}, 0, 0, 0, 0); exit 0 if $r == 0 && $$ != $me; $e = $! + 0; print '{"attempt":' . '${attempt}' . ',"contained":' . (($r == -1 && ($e == 38 || $e == 1)) ? 'true' : 'false') . ',"detail":"result ' . $r . ' errno ' . $e . '"}' . "\n";`;
    })
    .reduce((script, line) => script + line, '$me = $$; $| = 1;');
}
