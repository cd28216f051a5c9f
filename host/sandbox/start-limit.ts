/** How long a process may take to start: time for which it waited for a core is added, as it can do nothing about that. */
import { scheduleOf } from './process-tree.ts';

/** It ends after so many limits, however long it waited. */
const WALL_LIMITS = 3;

/**
 * @param pidOf the process, as soon as it is there
 * @param onLate called once, with the time that passed, ms
 * @returns ends the watch; call it when the process has started
 */
export function limitStart(
  pidOf: () => number | undefined,
  limitMs: number,
  onLate: (passedMs: number) => void,
  schedule = scheduleOf,
): () => void {
  const waited = (): number => {
    const pid = pidOf();
    return (pid === undefined ? undefined : schedule(pid))?.waitedMs ?? 0;
  };
  const startedAt = performance.now();
  const waitedBefore = waited();
  let timer: NodeJS.Timeout;
  const look = (): void => {
    const passed = performance.now() - startedAt;
    const allowed = Math.min(limitMs + Math.max(0, waited() - waitedBefore), limitMs * WALL_LIMITS);
    if (passed >= allowed) onLate(passed);
    else timer = setTimeout(look, allowed - passed);
  };
  timer = setTimeout(look, limitMs);
  return () => clearTimeout(timer);
}
