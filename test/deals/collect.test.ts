/** The table of sources follows the operator's list; when sources are read again, and how. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { MIGRATIONS } from '../../builtin-tenants/deals/src/database/migrations.ts';
import { collectDue, syncSources } from '../../builtin-tenants/deals/src/sources/collect.ts';
import { type MemoryDatabase, memoryDatabase } from './support/memory-database.ts';
import { HOUR_MS, NOON, SOURCE } from './support/parts.ts';

let db: MemoryDatabase;
beforeEach(() => {
  db = memoryDatabase();
  for (const { statements } of MIGRATIONS) for (const statement of statements) db.sql(statement);
});
afterEach(() => {
  vi.unstubAllGlobals();
  db.close();
});

test('a source that left the list and came back is read again', async () => {
  const next = () => db.sql<{ next_at: number }>('SELECT next_at FROM sources')[0]?.next_at;
  await syncSources(db, [SOURCE], 1_000);
  expect(next()).toBe(1_000);
  await syncSources(db, [], 2_000);
  expect(next()).toBe(Number.MAX_SAFE_INTEGER);
  await syncSources(db, [SOURCE], 3_000);
  expect(next()).toBe(3_000);
  // One that stayed keeps its turn.
  await syncSources(db, [SOURCE], 4_000);
  expect(next()).toBe(3_000);
});

test('a document that does not change is read anew when a sale in it begins or ends', async () => {
  const time = (at: number) => new Date(at).toISOString();
  const dates = `${time(NOON + 2.5 * HOUR_MS)}/${time(NOON + 4.5 * HOUR_MS)}`;
  const xml =
    '<rss xmlns:g="http://base.google.com/ns/1.0"><channel><item><title>Lamp</title><link>https://shop.example/lamp</link>' +
    '<g:price>45.00 EUR</g:price><g:sale_price>36.90 EUR</g:sale_price>' +
    `<g:sale_price_effective_date>${dates}</g:sale_price_effective_date></item></channel></rss>`;
  const asked: (string | null)[] = [];
  vi.stubGlobal('fetch', async (_url: string, { headers }: { headers: Record<string, string> }) => {
    asked.push(headers['if-none-match'] ?? null);
    if (headers['if-none-match'] === '"v1"') return new Response(null, { status: 304 });
    return new Response(xml, { headers: { etag: '"v1"' } });
  });
  await syncSources(db, [SOURCE], NOON);
  for (let hour = 0; hour <= 7; hour++) await collectDue(db, NOON + hour * HOUR_MS);
  expect(asked).toEqual([null, '"v1"', '"v1"', null, '"v1"', null, '"v1"', '"v1"']);
  const prices = db.sql<{ at: number; minor: number }>('SELECT at, minor FROM observations ORDER BY at');
  expect(prices.map(({ at, minor }) => [(at - NOON) / HOUR_MS, minor])).toEqual([
    [0, 4_500],
    [3, 3_690],
    [5, 4_500],
  ]);
});

test.each([
  ['99999999999', 86_400],
  ['9'.repeat(300), 86_400],
  ['7200', 7_200],
  ['-5', 3_600],
])('a source that asks to wait for %s s is read again', async (retryAfter, seconds) => {
  vi.stubGlobal('fetch', async () => new Response('', { status: 429, headers: { 'retry-after': retryAfter } }));
  await syncSources(db, [SOURCE], NOON);
  await collectDue(db, NOON);
  expect(db.sql('SELECT state, failures, next_at FROM sources')).toEqual([
    { state: 'failing', failures: 1, next_at: NOON + seconds * 1_000 },
  ]);
});

test('an attempt counts before the document is read: one that ends the instance is not read again at once', async () => {
  const reading = Promise.withResolvers<Response>();
  let asked = 0;
  vi.stubGlobal('fetch', () => {
    asked++;
    return reading.promise;
  });
  await syncSources(db, [SOURCE], NOON);
  // Cut off, as by the end of its instance.
  const first = collectDue(db, NOON);
  const row = () => db.sql<{ failures: number; next_at: number }>('SELECT failures, next_at FROM sources')[0];
  await expect.poll(() => asked).toBe(1);
  expect(row()).toEqual({ failures: 1, next_at: NOON + HOUR_MS });
  void collectDue(db, NOON + HOUR_MS);
  await expect.poll(() => asked).toBe(2);
  expect(row()).toEqual({ failures: 2, next_at: NOON + 3 * HOUR_MS });
  reading.resolve(new Response(null, { status: 304 }));
  await first;
  expect(db.sql('SELECT state, failures, error FROM sources')).toEqual([{ state: 'ok', failures: 0, error: null }]);
});

test('a document that is broken at its end changes no price', async () => {
  const csv = { ...SOURCE, kind: 'csv' as const };
  const rows = 'L,Lamp,https://shop.example/lamp,1.00\n'.repeat(500);
  vi.stubGlobal('fetch', async () => new Response(`id,title,link,price\n${rows}X,"Lamp`));
  await syncSources(db, [csv], NOON);
  await collectDue(db, NOON);
  expect(db.sql('SELECT state, failures FROM sources')).toEqual([{ state: 'failing', failures: 1 }]);
  expect(db.sql('SELECT id FROM offers')).toEqual([]);
});

test('sources are read one after the other', async () => {
  let open = 0;
  let most = 0;
  vi.stubGlobal('fetch', async () => {
    most = Math.max(most, ++open);
    await new Promise((resolve) => setTimeout(resolve, 5));
    open--;
    return new Response(null, { status: 304 });
  });
  await syncSources(
    db,
    ['a', 'b', 'c'].map((id) => ({ ...SOURCE, id })),
    NOON,
  );
  expect(await collectDue(db, NOON)).toBe(3);
  expect(most).toBe(1);
});
