/** Sources of deals on the whole host: shops of the test are read by the real service, and hostile ones do no harm. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  dealsAreUp,
  HOUR_MS,
  type LocalServer,
  MINUTE_MS,
  readDatabase,
  runCrons,
  serveLocally,
  startDealsHost,
} from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import { until } from './support/until.ts';

type Answer = (asked: IncomingMessage, reply: ServerResponse) => void;

let shop: LocalServer;
let secret: LocalServer;
let host: TestHost;
const routes = new Map<string, Answer>();
/** What the shop was asked for. */
const asked: { path: string; headers: IncomingMessage['headers'] }[] = [];
let secretAsked = 0;

const send =
  (type: string, body: string | Buffer, headers: Record<string, string> = {}): Answer =>
  (_asked, reply) =>
    void reply.writeHead(200, { 'content-type': type, ...headers }).end(body);

beforeAll(async () => {
  shop = await serveLocally((one, reply) => {
    const path = (one.url ?? '').split('?')[0] ?? '';
    asked.push({ path, headers: one.headers });
    const answer = routes.get(path);
    if (answer) answer(one, reply);
    else reply.writeHead(404).end();
  });
  secret = await serveLocally((_asked, reply) => {
    secretAsked++;
    reply.writeHead(200, { 'content-type': 'text/csv' }).end('id,title,link,price\nX,secret,https://x.example/,1.00\n');
  });
  const xml = (price: string, link = `${shop.url}/lamp`) =>
    `<?xml version="1.0" encoding="iso-8859-1"?><rss version="2.0" xmlns:g="http://base.google.com/ns/1.0"><channel><item><title><![CDATA[<script>alert("Caf\u00e9")</script> Lamp]]></title><link>${link}</link><g:id>GM1</g:id><g:price>${price}</g:price><g:availability>in_stock</g:availability></item></channel></rss>`;
  routes.set('/merchant.xml', (one, reply) => {
    if (one.headers['if-none-match'] === '"v1"') return void reply.writeHead(304, { etag: '"v1"' }).end();
    return void reply
      .writeHead(200, { 'content-type': 'application/xml', etag: '"v1"' })
      .end(Buffer.from(xml('1980 JPY'), 'latin1'));
  });
  routes.set('/feed.csv', (_asked, reply) =>
    send('text/csv; charset=utf-8', `id,title,link,price\nLAMP,Lamp,${shop.url}/lamp,100.00 EUR\n`)(_asked, reply),
  );
  routes.set(
    '/shopify/products.json',
    (_asked, reply) =>
      void reply.writeHead(200, { 'content-type': 'application/json' }).end(
        JSON.stringify({
          products: [
            {
              handle: 'mug',
              title: 'Mug',
              variants: [{ id: 1, title: 'Blue', price: '9.90', available: true, sku: 'MUG' }],
            },
          ],
        }),
      ),
  );
  const product = (name: string, offer: object) =>
    `<html><head><meta charset="utf-8"><script type="application/ld+json">{broken</script><script type="application/ld+json">${JSON.stringify({ '@context': 'https://schema.org', '@graph': [{ '@type': 'Product', name, sku: name, offers: { '@type': 'Offer', ...offer } }] })}</script></head><body></body></html>`;
  routes.set(
    '/page',
    send(
      'text/html',
      product('Dinar thing', { price: '1.234', priceCurrency: 'KWD', availability: 'https://schema.org/InStock' }),
    ),
  );
  const rss = send(
    'application/rss+xml',
    `<rss version="2.0"><channel><title>n</title><item><title>a</title><link>${shop.url}/page-of-rss</link></item><item><title>b</title><link>${secret.url}/</link></item></channel></rss>`,
    { etag: '"rss"' },
  );
  routes.set('/rss', (one, reply) =>
    one.headers['if-none-match'] === '"rss"' ? void reply.writeHead(304, { etag: '"rss"' }).end() : rss(one, reply),
  );
  routes.set(
    '/atom',
    send(
      'application/atom+xml',
      `<feed xmlns="http://www.w3.org/2005/Atom"><title>n</title><id>1</id><updated>2026-01-01T00:00:00Z</updated><entry><title>a</title><id>2</id><updated>2026-01-01T00:00:00Z</updated><link href="${shop.url}/page-of-atom"/></entry></feed>`,
    ),
  );
  let rssRead = 0;
  routes.set('/page-of-rss', (one, reply) =>
    send('text/html', product('From RSS', { price: rssRead++ === 0 ? 5 : 4, priceCurrency: 'EUR' }))(one, reply),
  );
  // Its header contradicts its byte order mark, which is right.
  routes.set(
    '/page-of-atom',
    send('text/html; charset=iso-8859-1', `\ufeff${product('From Atöm', { price: '6.00', priceCurrency: 'EUR' })}`),
  );
  routes.set('/busy', (_asked, reply) => void reply.writeHead(429, { 'retry-after': '7200' }).end());
  routes.set('/broken', (_asked, reply) => void reply.writeHead(500).end());
  routes.set('/no', (_asked, reply) => void reply.writeHead(403).end());
  routes.set('/moved', (_asked, reply) => void reply.writeHead(301, { location: '/moved-again' }).end());
  routes.set('/moved-again', (_asked, reply) => void reply.writeHead(302, { location: `${shop.url}/moved.csv` }).end());
  routes.set('/moved.csv', send('text/csv', 'id,title,link,price\nMOVED,Moved,https://shop.example/m,3.00 EUR\n'));
  routes.set('/loop', (_asked, reply) => void reply.writeHead(302, { location: '/loop' }).end());
  routes.set('/ssrf', (_asked, reply) => void reply.writeHead(302, { location: `${secret.url}/` }).end());
  routes.set('/file', (_asked, reply) => void reply.writeHead(302, { location: 'file:///etc/passwd' }).end());
  const bomb = gzipSync(Buffer.alloc(200_000_000, 'a'), { level: 9 });
  expect(bomb.length).toBeLessThan(250_000);
  routes.set('/bomb', send('text/csv', bomb, { 'content-encoding': 'gzip' }));
  routes.set(
    '/entities',
    send('application/xml', `<rss><channel><title>${'&#9;&lt;'.repeat(10)}&unknown;</title></channel></rss>`),
  );
  routes.set('/deep', send('application/xml', `<rss>${'<a>'.repeat(200_000)}`));
  routes.set('/deep.json', send('application/json', `{"products":${'['.repeat(200_000)}`));
  const row = `1,Lamp,${shop.url}/lamp,1.00 EUR\n`;
  routes.set('/rows', send('text/csv', `id,title,link,price\n${row.repeat(300_000)}`));
  const columns = Array.from({ length: 9_000 }, (_, at) => `c${at}`);
  const wide = gzipSync(`${columns.join(',')}\n${`${'1,'.repeat(8_999)}1\n`.repeat(1_000)}`);
  expect(wide.length).toBeLessThan(100_000);
  routes.set('/columns', send('text/csv', wide, { 'content-encoding': 'gzip' }));
  routes.set('/values', send('application/json', `{"products":[${'{},'.repeat(1_200_000)}{}]}`));
  const levels = `<script type="application/ld+json">${'{"@graph":['.repeat(100_000)}</script>`;
  routes.set('/levels', send('text/html', levels));
  routes.set('/doctype', send('application/xml', '<!DOCTYPE x [<!ENTITY a "b">]><rss>&a;</rss>'));

  const source = (id: string, kind: string, path: string, more: object = {}) => ({
    id,
    kind,
    url: `${shop.url}${path}`,
    merchant: 'Test shop',
    country: 'DE',
    currency: 'EUR',
    every_s: 3_600,
    legal_basis: 'a test of its own',
    ...more,
  });
  host = await startDealsHost(
    [shop],
    [
      source('merchant', 'google-merchant', '/merchant.xml'),
      source('csv', 'csv', '/feed.csv'),
      source('shopify', 'shopify', '/shopify/products.json'),
      source('page', 'json-ld', '/page'),
      source('rss', 'feed', '/rss'),
      source('atom', 'feed', '/atom'),
      source('busy', 'csv', '/busy'),
      source('broken', 'csv', '/broken'),
      source('no', 'csv', '/no'),
      source('moved', 'csv', '/moved'),
      source('loop', 'csv', '/loop'),
      source('ssrf', 'csv', '/ssrf'),
      source('local', 'csv', '/', { url: `${secret.url}/` }),
      source('file', 'csv', '/file'),
      source('bomb', 'csv', '/bomb'),
      source('entities', 'google-merchant', '/entities'),
      source('deep', 'google-merchant', '/deep'),
      source('deep-json', 'shopify', '/deep.json'),
      source('doctype', 'google-merchant', '/doctype'),
      source('rows', 'csv', '/rows'),
      source('columns', 'csv', '/columns'),
      source('values', 'shopify', '/values'),
      source('levels', 'json-ld', '/levels'),
    ],
  );
});
afterAll(async () => {
  await host?.stop();
  for (const server of [shop, secret]) await server?.close();
});
interface Health {
  id: string;
  state: string;
  failures: number;
  error: string | null;
}
const health = async () => {
  const { sources } = (await (await fetch(`${host.url}/deals/healthz`)).json()) as { sources: Health[] };
  return Object.fromEntries(sources.map((one) => [one.id, one]));
};
const nextReading = async (source: string) => {
  const [row] = await readDatabase<{ next_at: number; last_try_at: number }>(
    host,
    'deals',
    `SELECT next_at, last_try_at FROM sources WHERE id = '${source}'`,
  );
  return Math.round(((row?.next_at ?? 0) - (row?.last_try_at ?? 0)) / 1_000);
};

describe('reading sources', () => {
  test('of every kind finds their offers in their own currencies', async () => {
    const all = await until(async () => {
      await runCrons(host);
      const now = await health();
      return Object.values(now).every(({ state }) => state !== 'new') ? now : undefined;
    });
    for (const good of ['merchant', 'csv', 'shopify', 'page', 'rss', 'atom', 'moved'])
      expect(all[good], good).toMatchObject({ state: 'ok', failures: 0, error: null });
    const offers = await readDatabase<{ title: string; price: string }>(
      host,
      'deals',
      `SELECT o.title AS title, (SELECT minor FROM observations b WHERE b.offer = o.id AND state = 'ok') || ' ' || o.currency || ' ' || o.exponent AS price FROM offers o ORDER BY o.title`,
    );
    expect(offers.map(({ title, price }) => `${title}: ${price}`).toSorted()).toEqual(
      [
        '<script>alert("Café")</script> Lamp: 1980 JPY 0',
        'Dinar thing: 1234 KWD 3',
        'From Atöm: 600 EUR 2',
        'From RSS: 500 EUR 2',
        'Moved: 300 EUR 2',
        'Mug: 990 EUR 2',
        'Lamp: 10000 EUR 2',
      ].toSorted(),
    );
  });

  test('that fail, refuse or attack says so, and harms nothing', async () => {
    const all = await health();
    expect(all.no).toMatchObject({ state: 'blocked' });
    for (const [id, why] of [
      ['busy', /429/],
      ['broken', /500/],
      ['loop', /redirects/],
      ['file', /another protocol/],
      ['bomb', /20 MB/],
      ['doctype', /DOCTYPE/],
      ['entities', /entity/],
      ['deep', /deep/],
      ['deep-json', /deep/],
      ['rows', /rows/],
      ['columns', /columns/],
      ['values', /values/],
      ['ssrf', /its address is loopback/],
      ['local', /its address is loopback/],
    ] as const)
      expect(all[id], id).toMatchObject({ state: 'failing', failures: 1, error: expect.stringMatching(why) });
    expect(all.levels).toMatchObject({ state: 'ok' });
    expect(secretAsked).toBe(0);
    expect((await fetch(`${host.url}/deals/`)).status).toBe(200);
  });

  test('again is later for those that ask for it, and ever later for those that fail', async () => {
    expect(await nextReading('busy')).toBe(7_200);
    expect(await nextReading('broken')).toBe(3_600);
    expect(await nextReading('csv')).toBe(3_600);
    await host.advance(HOUR_MS + MINUTE_MS);
    await dealsAreUp(host);
    await runCrons(host);
    expect(await nextReading('broken')).toBe(7_200);
    expect((await health()).busy?.failures).toBe(1);
  });

  test('of what did not change is a question with its ETag, and no new row', async () => {
    const conditional = asked.filter(({ path, headers }) => path === '/merchant.xml' && headers['if-none-match']);
    expect(conditional[0]?.headers['if-none-match']).toBe('"v1"');
    const rows = await readDatabase<{ count: number }>(
      host,
      'deals',
      "SELECT count(*) AS count FROM observations b JOIN offers o ON o.id = b.offer WHERE o.source = 'merchant'",
    );
    expect(rows[0]?.count).toBe(1);
    expect((await health()).merchant).toMatchObject({ state: 'ok' });
  });

  test('by pointers reads the pages anew, though the feed itself did not change, and their digests are the evidence', async () => {
    await until(async () => ((await health()).rss?.state === 'ok' ? true : undefined));
    const seen = await readDatabase<{ minor: number; url: string }>(
      host,
      'deals',
      "SELECT b.minor AS minor, b.url AS url FROM observations b JOIN offers o ON o.id = b.offer WHERE o.source = 'rss' AND b.state = 'ok' ORDER BY b.at",
    );
    expect(seen).toEqual([
      { minor: 500, url: `${shop.url}/page-of-rss` },
      { minor: 400, url: `${shop.url}/page-of-rss` },
    ]);
  });

  test('keeps observations as they were: nobody changes or removes one', async () => {
    await expect(readDatabase(host, 'deals', 'UPDATE observations SET minor = 1')).rejects.toThrow('append-only');
    await expect(readDatabase(host, 'deals', 'DELETE FROM observations')).rejects.toThrow('append-only');
  });
});
