/** Evaluates the watches that are due, against the deals of now. */
import type { Database } from '../environment.ts';
import type { Deal } from '../prices/publish.ts';
import { conditions, type DealQuery } from '../prices/query.ts';
import { evaluate, type Memory } from './evaluate.ts';
import type { Trigger } from './watch.ts';
import type { DueWatch, Watches } from './watch-store.ts';

const A_RUN = 200;
const MOST_MATCHES = 200;

/** @returns how many watches were evaluated */
export async function evaluateDue(db: Database, watches: Watches, now: number): Promise<number> {
  const due = await watches.takeDue(now, A_RUN);
  for (const watch of due) {
    const before = JSON.parse(watch.memory) as Memory;
    const matching = await match(db, watch, before, now);
    const { events, memory } = evaluate(before, matching, JSON.parse(watch.trigger) as Trigger);
    await watches.saveEvaluation(watch, memory, events, now);
  }
  return due.length;
}

/** The best matches; and, where there are more of them, those further down that the watch has in mind. */
async function match(db: Database, watch: DueWatch, memory: Memory, now: number): Promise<Deal[]> {
  const { sql, values } = conditions(JSON.parse(watch.query) as DealQuery);
  const find = async (more: string[], bound: string[], limit: string): Promise<Deal[]> => {
    const where = ["status = 'active'", 'expires_at > ?', ...sql, ...more].join(' AND ');
    const { results } = await db
      .prepare(`SELECT body FROM deals WHERE ${where} ORDER BY score DESC, id ${limit}`)
      .bind(now, ...values, ...bound)
      .all<{ body: string }>();
    return results.map(({ body }) => JSON.parse(body) as Deal);
  };
  const best = await find([], [], `LIMIT ${MOST_MATCHES}`);
  if (best.length < MOST_MATCHES) return best;
  const listed = new Set(best.map(({ id }) => id));
  const others = Object.keys(memory.deals).filter((id) => !listed.has(id));
  return [...best, ...(await find(['id IN (SELECT value FROM json_each(?))'], [JSON.stringify(others)], ''))];
}
