import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Cgroups } from '../../host/runtime/cgroups.ts';
import { parents } from '../../host/sandbox/bwrap.ts';
import { ANY, LOOKED_INTO, OF_DATABASE, OF_OBJECTS } from '../../host/sandbox/calls.ts';
import { parseLdd } from '../../host/sandbox/libraries.ts';
import { type SeccompProfile, seccompProgram } from '../../host/sandbox/seccomp.ts';
import { pickUsers } from '../../host/sandbox/users.ts';

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const EPERM = 0x00050001;
const EINVAL = 0x00050016;
const ENOTTY = 0x00050019;
const ENOSYS = 0x00050026;
const ENOPROTOOPT = 0x0005005c;
const EAFNOSUPPORT = 0x00050061;
const AUDIT = { x64: 0xc000003e, arm64: 0xc00000b7 };
type Machine = keyof typeof AUDIT;
const MACHINES: [Machine, 0 | 1][] = [
  ['x64', 0],
  ['arm64', 1],
];

/** Runs the filter as the kernel would: classic BPF over `struct seccomp_data`. */
function judge(
  profile: SeccompProfile,
  number: number,
  args: number[] = [],
  machine: Machine = 'x64',
  arch = AUDIT[machine],
): number {
  const program = Buffer.from(seccompProgram(profile, machine));
  const data = Buffer.alloc(64);
  data.writeUInt32LE(number, 0);
  data.writeUInt32LE(arch >>> 0, 4);
  for (const [index, value] of args.entries()) data.writeUInt32LE(value >>> 0, 16 + 8 * index);
  let accumulator = 0;
  for (let at = 0; ; at++) {
    const code = program.readUInt16LE(at * 8);
    const yes = program.readUInt8(at * 8 + 2);
    const no = program.readUInt8(at * 8 + 3);
    const operand = program.readUInt32LE(at * 8 + 4);
    if (code === 0x06) return operand;
    if (code === 0x20) accumulator = data.readUInt32LE(operand);
    else {
      const jump =
        code === 0x15
          ? accumulator === operand
          : code === 0x35
            ? accumulator >= operand
            : (accumulator & operand) !== 0;
      at += jump ? yes : no;
    }
  }
}

describe('system call filter', () => {
  it.each([
    ['read', 0, []],
    ['mmap', 9, []],
    ['futex', 202, []],
    ['execve, by which the program is started', 59, []],
    ['a unix socket', 41, [1, 1, 0]],
    ['a thread', 56, [0x003d0f00]],
    ['opening for reading', 257, [0, 0, 0]],
    ['a name for a thread', 157, [15]],
    ['not blocking on a socket', 16, [0, 0x5421]],
    ['a lock on a file', 72, [0, 6]],
    ['the size of a send buffer', 54, [0, 1, 7]],
  ])('allows %s', (_, number, args) => {
    expect(judge('worker', number, args)).toBe(ALLOW);
    expect(judge('database', number, args)).toBe(ALLOW);
  });

  it.each([
    ['ptrace', 101, [], ENOSYS],
    ['mount', 165, [], ENOSYS],
    ['bpf', 321, [], ENOSYS],
    ['keyctl', 250, [], ENOSYS],
    ['userfaultfd', 323, [], ENOSYS],
    ['perf_event_open', 298, [], ENOSYS],
    ['personality', 135, [], ENOSYS],
    ['io_uring_setup', 425, [], ENOSYS],
    ['unshare', 272, [], ENOSYS],
    ['a new user namespace by clone', 56, [0x10000000 | 17], EPERM],
    ['clone3, whose flags cannot be seen', 435, [], ENOSYS],
    ['openat2, whose flags cannot be seen', 437, [], ENOSYS],
    ['an internet socket', 41, [2, 1, 0], EAFNOSUPPORT],
    ['vsock', 41, [40, 1, 0], EAFNOSUPPORT],
    ['netlink', 41, [16, 3, 0], EAFNOSUPPORT],
    ['a pair of other sockets', 53, [16, 3, 0], EAFNOSUPPORT],
    ['a filter on a socket', 54, [0, 1, 26], ENOPROTOOPT],
    ['an option of another level', 54, [0, 41, 7], ENOPROTOOPT],
    ['a symbolic link', 88, [], ENOSYS],
    ['a hard link by linkat', 265, [], ENOSYS],
    ['typing into a terminal', 16, [0, 0x5412], ENOTTY],
    ['a control of a device', 16, [0, 0x541c], ENOTTY],
    ['letting others trace it', 157, [0x59616d61], EINVAL],
    ['a filter of its own', 157, [22], EINVAL],
    ['the size of a pipe', 72, [0, 1031], EINVAL],
    ['the x32 door', 0x40000000, [], KILL],
  ])('refuses %s', (_, number, args, verdict) => {
    expect(judge('worker', number, args)).toBe(verdict);
    expect(judge('database', number, args)).toBe(verdict);
  });

  it('refuses calls of another architecture', () => {
    expect(judge('worker', 0, [], 'x64', 0x40000003)).toBe(KILL);
    expect(judge('worker', 63, [], 'arm64', 0x40000028)).toBe(KILL);
  });

  it.each(MACHINES)('has no call on %s that is not on the list, of this kernel or a later one', (machine, column) => {
    for (const [profile, more] of [
      ['worker', {}],
      ['objects', OF_OBJECTS],
      ['database', OF_DATABASE],
    ] as const) {
      const listed = { ...ANY, ...LOOKED_INTO, ...more };
      const numbers: number[] = Object.values(listed).map((call) => call[column]);
      for (let number = 0; number < 2_048; number++) {
        if (!numbers.includes(number)) expect([number, judge(profile, number, [], machine)]).toEqual([number, ENOSYS]);
      }
      for (const [number = -1] of Object.values(ANY).map((call) => [call[column]])) {
        if (number >= 0) expect([number, judge(profile, number, [], machine)]).toEqual([number, ALLOW]);
      }
    }
  });

  it.each(MACHINES)('gives no number on %s to two calls', (_, column) => {
    const numbers = Object.values({ ...ANY, ...OF_DATABASE, ...LOOKED_INTO })
      .map((call) => call[column])
      .filter((number) => number >= 0);
    expect(new Set(numbers).size).toBe(numbers.length);
  });

  it('lets only the database make processes and files', () => {
    for (const [number, args, verdict] of [
      [57, [], ENOSYS],
      [56, [17], EPERM],
      [257, [0, 0, 0o101], EPERM],
      // O_TMPFILE makes a file without O_CREAT.
      [257, [0, 0, 0o20200002], EPERM],
      [2, [0, 0o101], EPERM],
      [87, [], ENOSYS],
    ] as const) {
      expect(judge('database', number, [...args])).toBe(ALLOW);
      expect(judge('worker', number, [...args])).toBe(verdict);
    }
  });

  it('lets an instance with Durable Objects make files, and no process', () => {
    expect(judge('objects', 257, [0, 0, 0o101])).toBe(ALLOW);
    expect(judge('objects', 87, [])).toBe(ALLOW);
    expect(judge('objects', 57, [])).toBe(ENOSYS);
    expect(judge('objects', 56, [17])).toBe(EPERM);
    // Nothing that leads out of its folder.
    for (const call of [88 /* symlink */, 86 /* link */, 133 /* mknod */, 90 /* chmod */, 92 /* chown */])
      expect(judge('objects', call, [])).toBe(ENOSYS);
  });

  it('does without a sandbox rather than without a filter', () => {
    expect(() => seccompProgram('worker', 'riscv64')).toThrow('no system call filter for riscv64');
  });
});

describe('what a sandbox shows', () => {
  it('reads what ldd prints', () => {
    expect(
      parseLdd(
        '\tlinux-vdso.so.1 (0x00007fff)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n',
      ),
    ).toEqual(['/lib/x86_64-linux-gnu/libm.so.6', '/lib64/ld-linux-x86-64.so.2']);
  });

  it('makes every folder above a file, outermost first', () => {
    expect(parents(['/run/own/a', '/lib/x/b'])).toEqual(['/dev', '/lib', '/lib/x', '/run', '/run/own']);
  });
});

describe('users of tenants', () => {
  const ALL = '0 0 4294967295';
  const CONTAINER = '0 4000 1\n1 100000 65535';
  it.each([
    ['all ids', ALL, ALL, { first: 0x7000_0000, last: 0x7ffe_ffff }],
    ['65,536 ids', CONTAINER, CONTAINER, { first: 20_000, last: 59_999 }],
    ['lines in any order', '1 100000 65535\n0 4000 1', CONTAINER, { first: 20_000, last: 59_999 }],
    ['a gap', '0 0 30000\n40000 40000 30000', ALL, { first: 40_000, last: 59_999 }],
    ['fewer groups than users', ALL, '0 100000 30000', { first: 20_000, last: 29_999 }],
    ['one id', '0 1000 1', '0 1000 1', undefined],
    ['one group', ALL, '0 1000 1', undefined],
    ['1,024 ids, where the accounts of a container are', '0 100000 1024', '0 100000 1024', undefined],
  ])('with %s', (_, users, groups, expected) => {
    expect(pickUsers(users, groups)).toEqual(expected);
  });
});

describe('cgroups', () => {
  let root: string;
  const group = () => join(root, 'app');
  const open = (controllers: string) => {
    mkdirSync(group());
    writeFileSync(join(group(), 'cgroup.controllers'), controllers);
    writeFileSync(join(group(), 'cgroup.procs'), '12\n13\n');
    return Cgroups.open('1:cpu:/x\n0::/app\n', `30 20 0:26 / ${root} rw - cgroup2 cgroup2 rw\n`);
  };
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'cgroup-'));
  });
  afterEach(() => rmSync(root, { recursive: true, force: true }));

  it('moves the host into a leaf and hands out groups with limits', () => {
    const opened = open('cpuset cpu io memory pids\n');
    if (!('cgroups' in opened)) throw new Error(opened.reason);
    expect(readFileSync(join(group(), 'cgroup.subtree_control'), 'utf8')).toBe('+cpu +memory +pids');
    expect(readFileSync(join(group(), 'turnpike-host', 'cgroup.procs'), 'utf8')).toBe('13');
    const one = opened.cgroups.confine('cell-1', process.pid, { memoryBytes: 1_000, processes: 8 });
    expect(readFileSync(join(group(), 'cell-1', 'memory.max'), 'utf8')).toBe('1000');
    expect(readFileSync(join(group(), 'cell-1', 'pids.max'), 'utf8')).toBe('8');
    expect(one!.ranOutOfMemory()).toBe(false);
    writeFileSync(join(group(), 'cell-1', 'memory.events'), 'oom 1\noom_kill 1\n');
    expect(one!.ranOutOfMemory()).toBe(true);
  });

  it('says what is missing', () => {
    expect(open('cpu pids\n')).toEqual({ reason: 'cgroup v2 lacks memory here' });
    expect(Cgroups.open('1:cpu:/x\n', '')).toEqual({ reason: 'there is no cgroup v2' });
    expect(existsSync(join(group(), 'cgroup.subtree_control'))).toBe(false);
  });
});
