/** Reads the sources that are due: conditional requests, back-off for those that fail, health that the operator sees. */
import { baseUrl, type Database, type Env } from '../environment.ts';
import { parseCsv } from './csv.ts';
import { parsePointers } from './feed.ts';
import { FetchFailed, fetchPage, type Page } from './fetch-page.ts';
import { parseGoogleMerchant } from './google-merchant.ts';
import { parseJsonLd } from './json-ld.ts';
import { recordFailure, recordOffers } from './observe.ts';
import { parseShopify } from './shopify.ts';
import { DEFAULT_EVERY_S, type FoundOffer, parseSources, type Source } from './source.ts';

/** Also where a source asks for a longer one. */
const LONGEST_BACKOFF_S = 86_400;
/** A run of the cron reads at most this many sources; the others are due in the next minute still. */
const AT_ONCE = 10;
/** For one source, ms. */
const TIMEOUT_MS = 30_000;
/** `next_at` of a source that left the list. */
const NEVER = Number.MAX_SAFE_INTEGER;
/** Product pages of one feed that are read side by side. */
const PAGES_AT_ONCE = 4;

/** The operator's sources, or the demo shop where there are none. */
export function configuredSources(env: Env): Source[] {
  if (env.SOURCES && env.SOURCES.trim() !== '') return parseSources(env.SOURCES);
  return [
    {
      id: 'demo-shop',
      kind: 'shopify',
      url: `${baseUrl(env)}/demo/products.json`,
      merchant: 'Demo shop',
      country: 'DE',
      currency: 'EUR',
      every_s: 3_600,
      legal_basis: 'generated data of this host',
      demo: true,
    },
  ];
}

/** Makes the table of sources that of the configuration. */
export async function syncSources(db: Database, sources: Source[], now: number): Promise<void> {
  await db.batch([
    ...sources.map((source) =>
      db
        .prepare(
          `INSERT INTO sources (id, kind, url, settings, state, next_at) VALUES (?1, ?2, ?3, ?4, 'new', ?5)
           ON CONFLICT (id) DO UPDATE SET kind = ?2, url = ?3, settings = ?4,
             etag = CASE WHEN settings = ?4 THEN etag END, last_modified = CASE WHEN settings = ?4 THEN last_modified END,
             holds_until = CASE WHEN settings = ?4 THEN holds_until END,
             next_at = CASE WHEN settings = ?4 AND next_at < ${NEVER} THEN next_at ELSE ?5 END`,
        )
        .bind(source.id, source.kind, source.url, JSON.stringify(source), now),
    ),
    // Offers stay, with their history; the source is not read any more.
    db
      .prepare(`UPDATE sources SET next_at = ${NEVER} WHERE id NOT IN (SELECT value FROM json_each(?))`)
      .bind(JSON.stringify(sources.map(({ id }) => id))),
  ]);
}

interface DueSource {
  id: string;
  settings: string;
  etag: string | null;
  lastModified: string | null;
  /** When a sale of the last document begins or ends, ms. */
  holdsUntil: number | null;
  failures: number;
  lastOkAt: number | null;
}

/** @returns how many sources were read */
export async function collectDue(db: Database, now: number): Promise<number> {
  // Claimed by moving the next read, so that two runs at once do not read the same.
  const { results } = await db
    .prepare(
      `UPDATE sources SET next_at = ?1 + 600000, last_try_at = ?1
       WHERE id IN (SELECT id FROM sources WHERE next_at <= ?1 ORDER BY next_at LIMIT ${AT_ONCE})
       RETURNING id, settings, etag, last_modified AS lastModified, holds_until AS holdsUntil, failures, last_ok_at AS lastOkAt`,
    )
    .bind(now)
    .all<DueSource>();
  await Promise.all(results.map((due) => collect(db, due, now)));
  return results.length;
}

async function collect(db: Database, due: DueSource, now: number): Promise<void> {
  const source = JSON.parse(due.settings) as Source;
  const every = source.every_s ?? DEFAULT_EVERY_S;
  // One deadline for all of its pages.
  const stop = AbortSignal.timeout(TIMEOUT_MS);
  try {
    // That a document did not change says nothing where its prices are elsewhere, as of a feed, or change by the clock.
    const isTelling = source.kind !== 'feed' && (due.holdsUntil === null || now < due.holdsUntil);
    const fetched = await fetchPage(source.url, isTelling ? due : {}, stop);
    if ('unchanged' in fetched) {
      // Nothing changed: the prices stand, and that was seen today.
      await repeatObservations(db, source, due.lastOkAt ?? now, now);
      await done(db, due.id, now, every, due);
      return;
    }
    const { page } = fetched;
    let holdsUntil: number | null = null;
    for (const { from, offers } of await read(source, page, stop, now)) {
      await recordOffers(db, source, from, offers, now);
      for (const { holdsUntil: until } of offers)
        if (until !== undefined) holdsUntil = Math.min(until, holdsUntil ?? until);
    }
    await done(db, due.id, now, every, {
      etag: page.etag ?? null,
      lastModified: page.lastModified ?? null,
      holdsUntil,
    });
  } catch (error) {
    const failure =
      error instanceof FetchFailed ? error : new FetchFailed('failed', (error as Error).message.slice(0, 300));
    const wait = Math.min(
      LONGEST_BACKOFF_S,
      Math.max(failure.retryAfter ?? 0, every * 2 ** Math.min(due.failures, 10)),
    );
    await recordFailure(db, source, failure.kind, now);
    await db
      .prepare('UPDATE sources SET state = ?2, error = ?3, failures = failures + 1, next_at = ?4 WHERE id = ?1')
      .bind(due.id, failure.kind === 'blocked' ? 'blocked' : 'failing', failure.message, now + wait * 1_000)
      .run();
  }
}

/** Offers, and the page that each was read from. */
type Found = { from: Page; offers: FoundOffer[] }[];

/** @throws Error or FetchFailed where the page is not what the source's kind says */
async function read(source: Source, page: Page, stop: AbortSignal, now: number): Promise<Found> {
  switch (source.kind) {
    case 'google-merchant':
      return [{ from: page, offers: parseGoogleMerchant(page.text, source, now) }];
    case 'csv':
      return [{ from: page, offers: parseCsv(page.text, source, now) }];
    case 'shopify':
      return [{ from: page, offers: parseShopify(page.text, { ...source, url: page.url }) }];
    case 'json-ld':
      return [{ from: page, offers: await parseJsonLd(page.text, source, page.url) }];
    case 'feed': {
      const found: Found = [];
      const urls = parsePointers(page.text, page.url);
      // A few at a time, so as not to burden the shop.
      for (let from = 0; from < urls.length; from += PAGES_AT_ONCE) {
        const pages = urls.slice(from, from + PAGES_AT_ONCE).map(async (url) => {
          const product = await fetchPage(url, {}, stop).catch(() => undefined);
          if (!product || !('page' in product)) return [];
          const { page: from } = product;
          return [{ from, offers: await parseJsonLd(from.text, source, from.url) }];
        });
        found.push(...(await Promise.all(pages)).flat());
      }
      return found;
    }
  }
}

async function done(
  db: Database,
  id: string,
  now: number,
  every: number,
  { etag, lastModified, holdsUntil }: Pick<DueSource, 'etag' | 'lastModified' | 'holdsUntil'>,
): Promise<void> {
  await db
    .prepare(
      `UPDATE sources SET state = 'ok', error = NULL, failures = 0, etag = ?2, last_modified = ?3, last_ok_at = ?4, next_at = ?5,
         holds_until = ?6 WHERE id = ?1`,
    )
    .bind(id, etag, lastModified, now, now + every * 1_000, holdsUntil)
    .run();
}

/** Offers that the unchanged document named, which are those of its last reading, and no others. */
async function repeatObservations(db: Database, source: Source, lastOkAt: number, now: number): Promise<void> {
  await db.batch([
    db
      .prepare(
        `INSERT INTO observations (offer, at, state, minor, list_minor, availability, url, sha256)
         SELECT b.offer, ?2, 'ok', b.minor, b.list_minor, b.availability, b.url, b.sha256
         FROM observations b JOIN offers o ON o.id = b.offer
         WHERE o.source = ?1 AND o.last_seen_at >= ?3 AND b.id = (SELECT max(c.id) FROM observations c WHERE c.offer = o.id AND c.state = 'ok')
         AND b.at <= ?2 - 72000000`,
      )
      .bind(source.id, now, lastOkAt),
    db
      .prepare('UPDATE offers SET last_seen_at = ?2, dirty = 1 WHERE source = ?1 AND last_seen_at >= ?3')
      .bind(source.id, now, lastOkAt),
  ]);
}
