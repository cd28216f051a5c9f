/**
 * For how long a process may keep a core that others wait for, sched_setattr(2) (`sched_runtime` of a fair task, since
 * Linux 6.12; older kernels take the call and do nothing). Who asks for a shorter slice than the one that runs gets the
 * core as soon as it wakes up; else it may have to wait for the scheduler's next tick, 4 ms, whatever it weighs.
 */
import { createRequire } from 'node:module';
import os from 'node:os';

/** The kernel's numbers of the call, which glibc has no function for before 2.41. */
const CALL: Partial<Record<NodeJS.Architecture, number>> = { x64: 314, arm64: 274 };
const LIBC = 'libc.so.6';

/** `struct sched_attr`, include/uapi/linux/sched/types.h: offsets and size of its first version, bytes. */
const SIZE = 48;
const FLAGS = 8;
const NICE = 16;
const RUNTIME = 24;
const KEEP_POLICY = 0x08n;

type SetAttributes = (pid: number, attributes: Buffer) => void;

let setAttributes: SetAttributes | undefined;
let looked = false;

/**
 * Best effort: of the main thread, and of threads that it starts later.
 * @param microseconds 100 to 100,000; 0: the kernel's default
 */
export function setTimeSlice(pid: number, microseconds: number): void {
  if (!looked) setAttributes = find();
  looked = true;
  if (!setAttributes) return;
  try {
    const attributes = Buffer.alloc(SIZE);
    attributes.writeUInt32LE(SIZE, 0);
    attributes.writeBigUInt64LE(KEEP_POLICY, FLAGS);
    // The call sets both.
    attributes.writeInt32LE(os.getPriority(pid), NICE);
    attributes.writeBigUInt64LE(BigInt(microseconds) * 1_000n, RUNTIME);
    setAttributes(pid, attributes);
  } catch {
    // It is gone.
  }
}

/** Nothing where the optional package is not installed. */
function find(): SetAttributes | undefined {
  const number = process.platform === 'linux' ? CALL[process.arch] : undefined;
  if (number === undefined) return undefined;
  try {
    const koffi = createRequire(import.meta.url)('koffi') as typeof import('koffi');
    const syscall = koffi.load(LIBC).func('long syscall(long number, int pid, void *attributes, unsigned int flags)');
    return (pid, attributes) => void syscall(number, pid, attributes, 0);
  } catch {
    return undefined;
  }
}
