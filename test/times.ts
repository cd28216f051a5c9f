/**
 * Limits on how long something takes. They hold on a quiet machine only, so they decide nothing in `npm test`, which has
 * to pass on a busy one: there they are printed. `npm test -- --times` judges them.
 */
import { expect } from 'vitest';

export const JUDGE_TIMES = process.env.JUDGE_TIMES !== undefined;

/** @param limit ms, on a machine that does nothing else */
export function expectTime(what: string, ms: number, limit: number): void {
  if (JUDGE_TIMES) expect(ms, `${what}, ms`).toBeLessThanOrEqual(limit);
  else if (ms > limit) console.log(`slow: ${what} took ${ms.toFixed(1)} ms; the limit is ${limit.toFixed(1)} ms`);
}
