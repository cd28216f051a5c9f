import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Cgroups } from '../../host/runtime/cgroups.ts';
import { parents } from '../../host/runtime/sandbox/bwrap.ts';
import { parseLdd } from '../../host/runtime/sandbox/libraries.ts';
import { refusedCalls, type SeccompProfile, seccompProgram } from '../../host/runtime/sandbox/seccomp.ts';

const ALLOW = 0x7fff0000;
const KILL = 0x80000000;
const EPERM = 0x00050001;
const ENOSYS = 0x00050026;
const EAFNOSUPPORT = 0x00050061;
const X64 = 0xc000003e;

/** Runs the filter as the kernel would: classic BPF over `struct seccomp_data`. */
function judge(profile: SeccompProfile, number: number, args: number[] = [], arch = X64): number {
  const program = Buffer.from(seccompProgram(profile, 'x64')!);
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
  ])('allows %s', (_, number, args) => {
    expect(judge('worker', number, args)).toBe(ALLOW);
    expect(judge('database', number, args)).toBe(ALLOW);
  });

  it.each([
    ['ptrace', 101, [], EPERM],
    ['mount', 165, [], EPERM],
    ['bpf', 321, [], EPERM],
    ['keyctl', 250, [], EPERM],
    ['userfaultfd', 323, [], EPERM],
    ['io_uring_setup', 425, [], EPERM],
    ['unshare', 272, [], EPERM],
    ['a new user namespace by clone', 56, [0x10000000 | 17], EPERM],
    ['clone3, whose flags cannot be seen', 435, [], ENOSYS],
    ['an internet socket', 41, [2, 1, 0], EAFNOSUPPORT],
    ['a symbolic link', 88, [], EPERM],
    ['a symbolic link by symlinkat', 266, [], EPERM],
    ['a hard link', 86, [], EPERM],
    ['a hard link by linkat', 265, [], EPERM],
    ['vsock', 41, [40, 1, 0], EAFNOSUPPORT],
    ['netlink', 41, [16, 3, 0], EAFNOSUPPORT],
    ['typing into a terminal', 16, [0, 0x5412], EPERM],
    ['the x32 door', 0x40000000 | 101, [], KILL],
  ])('refuses %s', (_, number, args, verdict) => {
    expect(judge('worker', number, args)).toBe(verdict);
    expect(judge('database', number, args)).toBe(verdict);
  });

  it('refuses calls of another architecture', () => {
    expect(judge('worker', 0, [], 0x40000003)).toBe(KILL);
  });

  it('lets only the database make processes and files', () => {
    for (const [number, args] of [
      [57, []],
      [56, [17]],
      [257, [0, 0, 0o101]],
      [83, []],
      [319, []],
    ] as const) {
      expect(judge('database', number, [...args])).toBe(ALLOW);
      expect(judge('worker', number, [...args])).toBe(EPERM);
    }
  });

  it('has no table for unknown machines, and says what it refuses', () => {
    expect(seccompProgram('worker', 'riscv64')).toBeUndefined();
    expect(refusedCalls('worker')).toContain('memfd_create');
    expect(refusedCalls('database')).not.toContain('memfd_create');
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
