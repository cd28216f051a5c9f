/** Writes what a source said: offers as they are now, and an observation each, never changed afterwards. */
import type { Database, Statement } from '../environment.ts';
import { idOf } from '../ids.ts';
import type { Page } from './fetch-page.ts';
import { type FoundOffer, offerKey, type Source } from './source.ts';

/** D1 takes a batch as one transaction; larger ones hold up other requests. */
const OFFERS_A_BATCH = 100;
/** A price that did not change is noted again after this long: evidence of days observed. */
const REPEAT_MS = 20 * 3_600_000;

/** @param seen keys of offers that this document named already; the first naming counts */
export async function recordOffers(
  db: Database,
  source: Source,
  page: Page,
  found: FoundOffer[],
  at: number,
  seen: Set<string>,
): Promise<void> {
  const entries = found.flatMap((offer): [string, FoundOffer][] => {
    const key = offerKey(offer, source.country);
    if (seen.has(key)) return [];
    seen.add(key);
    return [[key, offer]];
  });
  for (let from = 0; from < entries.length; from += OFFERS_A_BATCH) {
    const statements: Statement[] = [];
    for (const [key, offer] of entries.slice(from, from + OFFERS_A_BATCH)) {
      const id = await idOf('off', key);
      statements.push(upsert(db, id, key, source, offer, at), observe(db, id, offer, page, at));
    }
    await db.batch(statements);
  }
}

function upsert(db: Database, id: string, key: string, source: Source, offer: FoundOffer, at: number): Statement {
  return db
    .prepare(
      `INSERT INTO offers (id, offer_key, source, merchant, title, url, gtin, sku, category, variant, condition, country,
         currency, exponent, availability, demo, first_seen_at, last_seen_at)
       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?17)
       ON CONFLICT (id) DO UPDATE SET title = ?5, url = ?6, category = ?9, availability = ?15, last_seen_at = ?17, dirty = 1`,
    )
    .bind(
      id,
      key,
      source.id,
      offer.merchant,
      offer.title,
      offer.url,
      offer.gtin ?? null,
      offer.sku ?? null,
      offer.category ?? null,
      offer.variant,
      offer.condition,
      source.country,
      offer.price.currency,
      offer.price.exponent,
      offer.availability,
      source.demo ? 1 : 0,
      at,
    );
}

/** One row when something changed, and one about every day. */
function observe(db: Database, id: string, offer: FoundOffer, page: Page, at: number): Statement {
  const { minor } = offer.price;
  return db
    .prepare(
      `INSERT INTO observations (offer, at, state, minor, list_minor, availability, url, sha256)
       SELECT ?1, ?2, 'ok', ?3, ?4, ?5, ?6, ?7
       WHERE NOT EXISTS (
         SELECT 1 FROM (SELECT at, minor, list_minor, availability FROM observations WHERE offer = ?1 AND state = 'ok' ORDER BY at DESC, id DESC LIMIT 1)
         WHERE minor = ?3 AND list_minor IS ?4 AND availability = ?5 AND at > ?2 - ${REPEAT_MS})`,
    )
    .bind(id, at, minor, offer.listMinor ?? null, offer.availability, page.url, page.sha256);
}

/** A source that could not be read: noted for each of its offers, and no price changes. */
export async function recordFailure(
  db: Database,
  source: Source,
  state: 'failed' | 'blocked',
  at: number,
): Promise<void> {
  await db
    .prepare(
      `INSERT INTO observations (offer, at, state, url, sha256)
       SELECT o.id, ?2, ?3, ?4, '' FROM offers o WHERE o.source = ?1
       AND NOT EXISTS (SELECT 1 FROM observations b WHERE b.offer = o.id AND b.state = ?3 AND b.at > ?2 - ${REPEAT_MS})`,
    )
    .bind(source.id, at, state, source.url)
    .run();
}
