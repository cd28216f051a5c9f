/** The deal of the landing page, with the price history that it stands on. Read only; demo data says that it is. */
import type { Database } from '../environment.ts';
import type { Deal } from '../prices/publish.ts';

const DAY_MS = 86_400_000;
const SHOWN_DAYS = 90;
/** Changes of the price of one offer. */
const MOST_POINTS = 200;

/** A deal with the price history that it stands on. */
export interface DealHistory {
  deal: Deal;
  /** Oldest first, minor units. */
  points: { at: number; minor: number }[];
}

export interface Showcase extends DealHistory {
  /** Active deals in all. */
  count: number;
}

/** The best deal of now, one of a real source before one of the demo. @returns undefined where there is none */
export async function readShowcase(db: Database, now: number): Promise<Showcase | undefined> {
  const row = await db
    .prepare(
      `SELECT d.body AS body, (SELECT count(*) FROM deals WHERE status = 'active' AND expires_at > ?1) AS count
       FROM deals d JOIN offers o ON o.id = d.offer
       WHERE d.status = 'active' AND d.expires_at > ?1 ORDER BY o.demo, d.score DESC, d.id LIMIT 1`,
    )
    .bind(now)
    .first<{ body: string; count: number }>();
  if (!row) return undefined;
  const deal = JSON.parse(row.body) as Deal;
  const [shown] = await withHistory(db, [deal], now);
  return { deal, points: shown?.points ?? [], count: row.count };
}

/** Of each deal the changes of its price, in one question. */
export async function withHistory(db: Database, deals: readonly Deal[], now: number): Promise<DealHistory[]> {
  const { results } = await db
    .prepare(
      `SELECT offer, at, minor FROM (
         SELECT offer, at, id, minor, row_number() OVER (PARTITION BY offer ORDER BY at DESC, id DESC) AS place FROM (
           SELECT offer, at, id, minor, lag(minor) OVER (PARTITION BY offer ORDER BY at, id) AS before
           FROM observations WHERE offer IN (SELECT value FROM json_each(?1)) AND state = 'ok' AND at > ?2)
         WHERE before IS NOT minor) WHERE place <= ?3 ORDER BY offer, at, id`,
    )
    .bind(JSON.stringify(deals.map(({ offer }) => offer.id)), now - SHOWN_DAYS * DAY_MS, MOST_POINTS)
    .all<{ offer: string; at: number; minor: number }>();
  const points = Map.groupBy(results, ({ offer }) => offer);
  return deals.map((deal) => ({ deal, points: points.get(deal.offer.id) ?? [] }));
}
