/** Reads the sources that are due: conditional requests, back-off for those that fail, health that the operator sees. */
import { baseUrl, type Database, type Env } from '../environment.ts';
import { parseCsv } from './csv.ts';
import { parsePointers } from './feed.ts';
import { FetchFailed, fetchPage, MOST_BYTES, type Page } from './fetch-page.ts';
import { parseGoogleMerchant } from './google-merchant.ts';
import { parseJsonLd } from './json-ld.ts';
import { recordFailure, recordOffers } from './observe.ts';
import { parseShopify } from './shopify.ts';
import { DEFAULT_EVERY_S, type FoundOffer, parseSources, type Source } from './source.ts';

/** Also where a source asks for a longer one. */
const LONGEST_BACKOFF_S = 86_400;
/**
 * A run of the cron reads one source after the other, since what a document takes in memory is taken from the buyers, and
 * begins none after this long, ms; the others are due in the next minute still.
 */
const LONGEST_RUN_MS = 45_000;
/** Of a document that is read whole, bytes. */
const MOST_BYTES_WHOLE = 4_000_000;
/** For one source, ms. */
const TIMEOUT_MS = 30_000;
/** `next_at` of a source that left the list. */
const NEVER = Number.MAX_SAFE_INTEGER;
/** Product pages of one feed that are read side by side. */
const PAGES_AT_ONCE = 4;

/** The operator's own sources. */
export function givenSources(env: Pick<Env, 'SOURCES'>): Source[] {
  return env.SOURCES && env.SOURCES.trim() !== '' ? parseSources(env.SOURCES) : [];
}

/** The operator's sources, or the demo shop where there are none. */
export function configuredSources(env: Env): Source[] {
  const given = givenSources(env);
  if (given.length > 0) return given;
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

/**
 * Claimed by moving the next read, so that two runs at once do not read the same. The attempt counts as a failure until
 * it has ended: a document that ends the instance is read ever later, like any other that fails.
 * @returns how many sources were read
 */
export async function collectDue(db: Database, now: number): Promise<number> {
  const end = Date.now() + LONGEST_RUN_MS;
  let read = 0;
  while (Date.now() < end) {
    const { results } = await db
      .prepare(
        `UPDATE sources SET failures = failures + 1, last_try_at = ?1, state = CASE WHEN failures > 0 THEN 'failing' ELSE state END, error = 'its last reading did not end',
           next_at = ?1 + min(${LONGEST_BACKOFF_S}, coalesce(json_extract(settings, '$.every_s'), ${DEFAULT_EVERY_S}) << min(failures, 10)) * 1000
         WHERE id IN (SELECT id FROM sources WHERE next_at <= ?1 ORDER BY next_at LIMIT 1)
         RETURNING id, settings, etag, last_modified AS lastModified, holds_until AS holdsUntil, failures - 1 AS failures, last_ok_at AS lastOkAt`,
      )
      .bind(now)
      .all<DueSource>();
    const [due] = results;
    if (due === undefined) break;
    await collect(db, due, now);
    read++;
  }
  return read;
}

async function collect(db: Database, due: DueSource, now: number): Promise<void> {
  const source = JSON.parse(due.settings) as Source;
  const every = source.every_s ?? DEFAULT_EVERY_S;
  // One deadline for all of its pages.
  const stop = AbortSignal.timeout(TIMEOUT_MS);
  try {
    // That a document did not change says nothing where its prices are elsewhere, as of a feed, or change by the clock.
    const isTelling = source.kind !== 'feed' && (due.holdsUntil === null || now < due.holdsUntil);
    const fetched = await fetchPage(
      source.url,
      isTelling ? due : {},
      stop,
      isReadInPieces(source) ? MOST_BYTES : MOST_BYTES_WHOLE,
    );
    if ('unchanged' in fetched) {
      // Nothing changed: the prices stand, and that was seen today.
      await repeatObservations(db, source, due.lastOkAt ?? now, now);
      await done(db, due.id, now, every, due);
      return;
    }
    const { page } = fetched;
    let holdsUntil: number | null = null;
    // Once without a trace: a document that is broken at its end changes no price.
    if (isReadInPieces(source)) for await (const _ of read(source, page, stop, now)) await turn();
    const seen = new Set<string>();
    for await (const { from, offers } of read(source, page, stop, now)) {
      await recordOffers(db, source, from, offers, now, seen);
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
      .prepare('UPDATE sources SET state = ?2, error = ?3, next_at = ?4 WHERE id = ?1')
      .bind(due.id, failure.kind === 'blocked' ? 'blocked' : 'failing', failure.message, now + wait * 1_000)
      .run();
  }
}

/** Documents of these kinds take little more memory than their text. */
function isReadInPieces({ kind }: Source): boolean {
  return kind === 'google-merchant' || kind === 'csv';
}

/** Lets the requests of buyers in. */
function turn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** Offers, and the page that they were read from. */
interface Found {
  from: Page;
  offers: FoundOffer[];
}

/** @throws Error or FetchFailed where the page is not what the source's kind says */
async function* read(source: Source, page: Page, stop: AbortSignal, now: number): AsyncGenerator<Found> {
  switch (source.kind) {
    case 'google-merchant':
      for (const offers of parseGoogleMerchant(page.text, source, now)) yield { from: page, offers };
      return;
    case 'csv':
      for (const offers of parseCsv(page.text, source, now)) yield { from: page, offers };
      return;
    case 'shopify':
      yield { from: page, offers: parseShopify(page.text, { ...source, url: page.url }) };
      return;
    case 'json-ld':
      yield { from: page, offers: await parseJsonLd(page.text, source, page.url) };
      return;
    case 'feed':
      yield* readPages(source, parsePointers(page.text, page.url), stop);
  }
}

async function* readPages(source: Source, urls: string[], stop: AbortSignal): AsyncGenerator<Found> {
  // A few at a time, so as not to burden the shop.
  for (let from = 0; from < urls.length; from += PAGES_AT_ONCE) {
    const pages = urls.slice(from, from + PAGES_AT_ONCE).map(async (url): Promise<Found[]> => {
      const product = await fetchPage(url, {}, stop, MOST_BYTES_WHOLE).catch(() => undefined);
      if (!product || !('page' in product)) return [];
      return [{ from: product.page, offers: await parseJsonLd(product.page.text, source, product.page.url) }];
    });
    yield* (await Promise.all(pages)).flat();
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
