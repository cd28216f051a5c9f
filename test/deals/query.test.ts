/** The filter of GET /v1/deals: what it takes, what it finds, and cursors that belong to their query. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MIGRATIONS } from '../../builtin-tenants/deals/src/database/migrations.ts';
import type { Deal } from '../../builtin-tenants/deals/src/prices/publish.ts';
import { findDeals, parseSearch } from '../../builtin-tenants/deals/src/prices/query.ts';
import { evaluateDue } from '../../builtin-tenants/deals/src/watches/run.ts';
import { parseWatch } from '../../builtin-tenants/deals/src/watches/watch.ts';
import { Watches } from '../../builtin-tenants/deals/src/watches/watch-store.ts';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { type MemoryDatabase, memoryDatabase } from './support/memory-database.ts';
import { DAY_MS, deal, HOUR_MS, NOON } from './support/parts.ts';

const search = (text: string) => parseSearch(new URLSearchParams(text));

describe('a query', () => {
  test('has numbers, truth values and codes in their right types', () => {
    expect(
      search('q=red+lamp&currency=eur&country=de&max_price_minor=5000&at_low=1&limit=7&since=2026-11-01T00:00:00Z'),
    ).toEqual({
      query: { q: 'red lamp', currency: 'EUR', country: 'DE', max_price_minor: 5_000, at_low: true },
      sort: 'score',
      limit: 7,
      since: Date.UTC(2026, 10, 1),
    });
  });

  test.each([
    'unknown=1',
    'q=a&q=b',
    'limit=0',
    'limit=101',
    'limit=1e1',
    'limit=-1',
    'min_score=1001',
    'min_score=1.5',
    'min_score=%D9%A5',
    'min_discount_bps=-1',
    'max_price_minor=5000',
    'currency=EURO',
    'country=Germany',
    'gtin=12',
    'at_low=maybe',
    'availability=some',
    'sort=magic',
    'sort=price',
    'since=yesterday',
    'q=',
    `q=${'x'.repeat(101)}`,
    '__proto__=1',
    'sort=score&sort=price',
  ])('%s is refused with the name of the parameter', (text) => {
    const name = decodeURIComponent(text.split('=')[0] ?? '');
    expect(() => search(text)).toThrow(`?${name}`);
  });
});

describe('deals', () => {
  let db: MemoryDatabase;
  const add = (one: Deal, more: { updatedAt?: number; expiresAt?: number; status?: string } = {}) => {
    db.sql(
      "INSERT OR IGNORE INTO sources (id, kind, url, settings, state, next_at) VALUES ('s', 'csv', '', '', 'ok', 0)",
    );
    db.sql(
      `INSERT INTO offers (id, offer_key, source, merchant, title, url, variant, condition, country, currency, exponent, availability, demo, first_seen_at, last_seen_at)
       VALUES (?1, ?1, 's', 'm', 't', 'u', '', 'new', 'DE', 'EUR', 2, 'in_stock', 0, 0, 0)`,
      one.offer.id,
    );
    db.sql(
      `INSERT INTO deals (id, offer, revision, status, body, title, merchant, category, gtin, country, currency, minor, discount_bps, score, confidence, at_low, availability, first_seen_at, updated_at, expires_at)
       VALUES (?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, NULL, 'DE', ?8, ?9, ?10, ?11, ?12, ?13, 'in_stock', ?14, ?15, ?16)`,
      one.id,
      one.offer.id,
      more.status ?? 'active',
      JSON.stringify(one),
      one.title,
      one.offer.merchant,
      one.offer.category,
      one.price.currency,
      one.price.minor,
      one.discount_bps,
      one.score,
      one.confidence,
      one.at_low ? 1 : 0,
      NOON,
      more.updatedAt ?? NOON,
      more.expiresAt ?? NOON + DAY_MS,
    );
  };
  const find = async (text: string, now = NOON) => {
    const page = await findDeals(db, search(text), 'secret', now);
    return { ids: page.deals.map(({ id }) => id), cursor: page.cursor };
  };

  beforeEach(async () => {
    db = memoryDatabase();
    await migrate(db, MIGRATIONS);
  });
  afterEach(() => db.close());

  test('match every word of the title, and signs of LIKE mean themselves', async () => {
    add(deal('a', 100, { title: 'Red lamp 100%_ wool' }));
    add(deal('b', 100, { title: 'Blue lamp 100 percent' }));
    expect((await find('q=LAMP+red')).ids).toEqual(['a']);
    expect((await find('q=100%25')).ids).toEqual(['a']);
    expect((await find('q=%25_')).ids).toEqual(['a']);
    expect((await find("q=x' OR 1=1 --".replaceAll(' ', '%20'))).ids).toEqual([]);
  });

  test('beyond the best that a watch tells of are not taken for gone', async () => {
    const watches = new Watches(db, () => NOON);
    const input = parseWatch(
      new TextEncoder().encode(
        '{"query":{"currency":"EUR"},"trigger":{"on":["enter","expire"],"notify_initial":true}}',
      ),
    );
    await watches.create('acc_1', 'req_1', input, NOON);
    let now = NOON;
    const told = async () => {
      now += HOUR_MS;
      await evaluateDue(db, watches, now);
      const rows = db.sql<{ body: string }>(
        'SELECT body FROM watch_events WHERE created_at = ? ORDER BY sequence',
        now,
      );
      return rows.map(({ body }) => JSON.parse(body) as { type: string; deal: { id: string } });
    };
    const ofThem = (events: Awaited<ReturnType<typeof told>>) =>
      events.map(({ type, deal: { id } }) => `${type} ${id}`);
    for (let place = 0; place < 200; place++) add(deal(`d${place}`, 100, { score: 900 - place }));
    expect(await told()).toHaveLength(200);
    add(deal('better', 100, { score: 950 }));
    add(deal('worse', 100, { score: 1 }));
    expect(ofThem(await told())).toEqual(['enter better']);
    db.sql("UPDATE deals SET status = 'ended' WHERE id IN ('d0', 'd199')");
    // Two places became free.
    expect(ofThem(await told())).toEqual(['enter worse', 'expire d0', 'expire d199']);
    expect(await told()).toEqual([]);
  });

  test('that ended or ran out are not sold', async () => {
    add(deal('a', 100));
    add(deal('b', 100), { expiresAt: NOON });
    add(deal('c', 100), { status: 'ended' });
    expect((await find('')).ids).toEqual(['a']);
    expect((await find('', NOON + DAY_MS)).ids).toEqual([]);
  });

  test('are filtered by numbers and flags, and by when they changed', async () => {
    add(deal('a', 1_000, { score: 900, at_low: false }), { updatedAt: NOON - DAY_MS });
    add(deal('b', 2_000, { score: 300 }));
    expect((await find('min_score=500')).ids).toEqual(['a']);
    expect((await find('at_low=true')).ids).toEqual(['b']);
    expect((await find('currency=EUR&max_price_minor=1000')).ids).toEqual(['a']);
    expect((await find('currency=JPY')).ids).toEqual([]);
    expect((await find(`since=${new Date(NOON).toISOString()}`)).ids).toEqual(['b']);
  });

  test.each([
    ['sort=score', ['c', 'a', 'b', 'd']],
    ['sort=discount', ['d', 'a', 'b', 'c']],
    ['sort=price&currency=EUR', ['d', 'a', 'b', 'c']],
  ])('in the order of %s, page by page, each once', async (sort, expected) => {
    add(deal('a', 200, { score: 500, discount_bps: 2_000 }));
    add(deal('b', 200, { score: 500, discount_bps: 2_000 }));
    add(deal('c', 300, { score: 800, discount_bps: 1_000 }));
    add(deal('d', 100, { score: 100, discount_bps: 3_000 }));
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await find(`${sort}&limit=1${cursor ? `&cursor=${cursor}` : ''}`);
      seen.push(...page.ids);
      cursor = page.cursor;
    } while (cursor);
    expect(seen).toEqual(expected);
  });

  test('cursors are bound to the filter, the order and the secret, and cannot be made up', async () => {
    for (const id of ['a', 'b', 'c']) add(deal(id, 100));
    const { cursor = '' } = await find('limit=1&min_score=1');
    expect((await find(`limit=2&min_score=1&cursor=${cursor}`)).ids).toEqual(['b', 'c']);
    const [place = '', signature = ''] = cursor.split('.');
    const forged = Buffer.from('[999,""]').toString('base64url');
    for (const text of [
      `limit=1&cursor=${cursor}`,
      `limit=1&min_score=2&cursor=${cursor}`,
      `limit=1&min_score=1&sort=newest&cursor=${cursor}`,
      `limit=1&min_score=1&cursor=${forged}.${signature}`,
      `limit=1&min_score=1&cursor=${place}`,
      `limit=1&min_score=1&cursor=${place}.${signature}x`,
      'limit=1&min_score=1&cursor=',
    ])
      await expect(find(text)).rejects.toThrow('?cursor');
    await expect(findDeals(db, search(`limit=1&min_score=1&cursor=${cursor}`), 'another', NOON)).rejects.toThrow(
      '?cursor',
    );
  });
});

test.each([
  ['limit=5&max_price_minor=x&currency=EUR', '?max_price_minor: takes a number'],
  ['availability=maybe', '?availability: takes in_stock, out_of_stock, preorder, unknown'],
  ['min_score=1001', '?min_score: takes at most 1000'],
  ['at_low=perhaps', '?at_low: takes a boolean'],
])('a query with %s is told what the parameter takes', (text, words) => {
  expect(() => search(text)).toThrow(words);
});

test('a watch without a query is told what it takes', () => {
  expect(() => parseWatch(new TextEncoder().encode('{}'))).toThrow('/query: takes an object');
});
