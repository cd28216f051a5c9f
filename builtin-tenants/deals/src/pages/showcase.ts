/** The deal of the landing page, with the price history that it stands on. Read only; demo data says that it is. */
import type { Database } from '../environment.ts';
import type { Deal } from '../prices/publish.ts';

const DAY_MS = 86_400_000;
const SHOWN_DAYS = 90;
const MOST_POINTS = 2_000;

export interface Showcase {
  deal: Deal;
  /** Oldest first, minor units. */
  points: { at: number; minor: number }[];
  /** Active deals in all. */
  count: number;
}

/** The best deal of now, one of a real source before one of the demo. @returns undefined where there is none */
export async function readShowcase(db: Database, now: number): Promise<Showcase | undefined> {
  const row = await db
    .prepare(
      `SELECT d.body AS body, d.offer AS offer, (SELECT count(*) FROM deals WHERE status = 'active' AND expires_at > ?1) AS count
       FROM deals d JOIN offers o ON o.id = d.offer
       WHERE d.status = 'active' AND d.expires_at > ?1 ORDER BY o.demo, d.score DESC, d.id LIMIT 1`,
    )
    .bind(now)
    .first<{ body: string; offer: string; count: number }>();
  if (!row) return undefined;
  const { results } = await db
    .prepare(
      `SELECT at, minor FROM (SELECT id, at, minor FROM observations WHERE offer = ? AND state = 'ok' AND at > ?
       ORDER BY at DESC, id DESC LIMIT ${MOST_POINTS}) ORDER BY at, id`,
    )
    .bind(row.offer, now - SHOWN_DAYS * DAY_MS)
    .all<{ at: number; minor: number }>();
  return { deal: JSON.parse(row.body) as Deal, points: results, count: row.count };
}
