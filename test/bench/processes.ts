/** CPU time and memory of process trees, from /proc. */
import { readdirSync, readFileSync } from 'node:fs';

const TICKS_PER_SECOND = 100;
/** How often processes are looked at that come and go meanwhile. */
const LOOKS = 20;

/** The given processes and everything below them. */
export function processTree(roots: number[]): number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const fields = statFields(Number(name));
    if (!fields) continue;
    const parent = Number(fields[1]);
    children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
  }
  const found = new Set<number>();
  const visit = (pid: number) => {
    if (found.has(pid)) return;
    found.add(pid);
    for (const child of children.get(pid) ?? []) visit(child);
  };
  for (const root of roots) visit(root);
  return [...found];
}

/**
 * CPU seconds that the processes have used, user and system, with what their children that ended had used.
 * @param counts which of their children count; all if left out
 */
export function cpuSeconds(roots: number[], counts: (pid: number) => boolean = () => true): number {
  for (let look = 1; ; look++) {
    const tree = processTree(roots);
    let ticks = 0;
    for (const pid of tree.filter(counts)) {
      const fields = statFields(pid);
      // A child's ticks are its parent's once it has ended: a sum without them would fall.
      for (const field of fields?.slice(11, 15) ?? []) ticks += Number(field);
    }
    // One that ended in between was counted twice, or not at all.
    const isSame = String(processTree(roots)) === String(tree);
    if (isSame || look === LOOKS) return ticks / TICKS_PER_SECOND;
  }
}

/**
 * Private memory (what ending the processes would free), bytes. Pages of programs are not counted, even where only one
 * process happens to have them: they are files' pages, which the system drops and reads again as it likes.
 */
export function privateBytes(roots: number[]): number {
  return processTree(roots).reduce((sum, pid) => sum + privateOf(pid), 0);
}

export function privateOf(pid: number): number {
  try {
    const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
    const kib = [...text.matchAll(/^(?:Private_Dirty|Swap):\s+(\d+) kB/gm)].reduce((sum, [, n]) => sum + Number(n), 0);
    return kib * 1024;
  } catch {
    return 0;
  }
}

/** False for those that have ended, also where nobody has asked for their exit status yet. */
export function alive(pid: number): boolean {
  const state = statFields(pid)?.[0];
  return state !== undefined && state !== 'Z' && state !== 'X';
}

export function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
  } catch {
    return '';
  }
}

/** The fields of /proc/<pid>/stat after the name: [0] state, [1] parent, [11] user ticks, [12] system ticks, [13] and [14] those of its ended children. */
function statFields(pid: number): string[] | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return text.slice(text.lastIndexOf(')') + 2).split(' ');
  } catch {
    return undefined;
  }
}
