/**
 * Sandboxes of a host that was killed, or whose outermost process was. They end with it by the kernel's death signal, but one that had not asked for that
 * signal yet, in the milliseconds of its start, lives on without anybody to end it.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { treeOf } from './process-tree.ts';

/** The programs that a sandbox is made with (bwrap.ts, unshare.ts), and what makes them more than a tool on a file. */
const HELPERS = new Set(['prlimit', 'bwrap', 'setpriv', 'unshare']);
const NAMESPACES = ['--unshare-pid', '--unshare-all', '--pid'];

/**
 * Ends sandboxes that see a file or folder below `folder`. Call it while no host runs on the folder.
 * @returns the processes that were ended
 */
export function endLeftovers(folder: string): number[] {
  const below = `${folder}${path.sep}`;
  const ended: number[] = [];
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || pid === process.pid) continue;
    const [program, ...args] = commandLine(pid);
    if (!HELPERS.has(path.basename(program ?? ''))) continue;
    if (!args.some((argument) => NAMESPACES.includes(argument))) continue;
    if (!args.some((argument) => argument.startsWith(below))) continue;
    ended.push(...endTree(pid));
  }
  return ended;
}

/**
 * Ends what is left of a sandbox whose outermost process is gone.
 * @param command by which it was started, program and arguments: its inner process has the same, or the end of it
 * @returns the processes that were ended
 */
export function endOrphans(command: readonly string[]): number[] {
  const whole = command.join('\0');
  const isOurs = (pid: number): boolean => {
    const line = commandLine(pid);
    return line.some((argument) => NAMESPACES.includes(argument)) && `\0${whole}`.endsWith(`\0${line.join('\0')}`);
  };
  const ended: number[] = [];
  for (const name of readdirSync('/proc')) {
    const pid = Number(name);
    if (!Number.isInteger(pid) || !isOurs(pid)) continue;
    const parent = parentOf(pid);
    // Another one that was started in the same way has a parent: this process, or one like itself.
    if (parent !== undefined && parent !== process.pid && !isOurs(parent)) ended.push(...endTree(pid));
  }
  return ended;
}

/** Ends a process and all below it, the innermost first. @returns those that were ended */
export function endTree(pid: number): number[] {
  return treeOf(pid)
    .reverse()
    .filter((member) => {
      try {
        return process.kill(member, 'SIGKILL');
      } catch {
        // It ended in the meantime, or is another user's.
        return false;
      }
    });
}

function parentOf(pid: number): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]);
  } catch {
    return undefined;
  }
}

function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replace(/\0$/, '').split('\0');
  } catch {
    return [];
  }
}
