/** Evaluates the watches that are due, against the deals of now. */
import type { Database } from '../environment.ts';
import type { Deal } from '../prices/publish.ts';
import { conditions, type DealQuery } from '../prices/query.ts';
import { evaluate, type Memory } from './evaluate.ts';
import type { DueWatch, Watches } from './store.ts';
import type { Trigger } from './watch.ts';

const A_RUN = 200;
const MOST_MATCHES = 200;

/** @returns how many watches were evaluated */
export async function evaluateDue(db: Database, watches: Watches, now: number): Promise<number> {
  const due = await watches.takeDue(now, A_RUN);
  for (const watch of due) {
    const matching = await match(db, watch, now);
    const { events, memory } = evaluate(
      JSON.parse(watch.memory) as Memory,
      matching,
      JSON.parse(watch.trigger) as Trigger,
    );
    await watches.saveEvaluation(watch, memory, events, now);
  }
  return due.length;
}

async function match(db: Database, watch: DueWatch, now: number): Promise<Deal[]> {
  const { sql, values } = conditions(JSON.parse(watch.query) as DealQuery);
  const { results } = await db
    .prepare(
      `SELECT body FROM deals WHERE ${["status = 'active'", 'expires_at > ?', ...sql].join(' AND ')} ORDER BY score DESC, id LIMIT ${MOST_MATCHES}`,
    )
    .bind(now, ...values)
    .all<{ body: string }>();
  return results.map(({ body }) => JSON.parse(body) as Deal);
}
