/**
 * Sandboxes of a host that was killed. They end with it by the kernel's death signal, but one that had not asked for that
 * signal yet, in the milliseconds of its start, lives on without anybody to end it.
 */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { treeOf } from '../process-tree.ts';

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
    for (const member of treeOf(pid).reverse()) {
      try {
        process.kill(member, 'SIGKILL');
        ended.push(member);
      } catch {
        // It ended in the meantime, or is another user's.
      }
    }
  }
  return ended;
}

function commandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0');
  } catch {
    return [];
  }
}
