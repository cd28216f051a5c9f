/**
 * The Cache API of a handler, through the real edge, instance and storage process, beside Miniflare: every row of the
 * table runs on both, and says where they differ on purpose.
 */
import { Miniflare } from 'miniflare';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RuntimeRig } from './runtime-rig.ts';

/** Does what the body of a request says, step by step, and tells what came of it. */
const CODE = `
const request = ({ url, method, headers }) => new Request(url, { method, headers });
async function step({ op, cache, options, response: { body, ...init } = {}, ...of }) {
  const store = cache === undefined ? caches.default : await caches.open(cache);
  try {
    if (op === 'put') return String(await store.put(request(of), new Response(body ?? null, init)));
    if (op === 'delete') return await store.delete(request(of), options);
    const found = await store.match(request(of), options);
    if (!found) return 'miss';
    const fields = {};
    for (const name of ['cf-cache-status', 'content-range', 'content-length', 'content-type', 'etag', 'vary', 'set-cookie', 'x-a'])
      if (found.headers.has(name)) fields[name] = found.headers.get(name);
    return [found.status, await found.text(), fields];
  } catch (error) {
    return error.message;
  }
}
export default {
  async fetch(request) {
    const said = [];
    for (const each of await request.json()) said.push(await step(each));
    return Response.json(said);
  },
};`;

interface Step {
  op: 'put' | 'match' | 'delete';
  url?: string;
  cache?: string;
  method?: string;
  headers?: Record<string, string>;
  options?: { ignoreMethod?: boolean };
  response?: { body?: string | undefined; status?: number; headers?: Record<string, string> };
}

const put = (headers: Record<string, string>, more: Step['response'] = {}, key: Partial<Step> = {}): Step => ({
  op: 'put',
  response: { body: 'hello world', ...more, headers },
  ...key,
});
const match = (headers: Record<string, string> = {}, key: Partial<Step> = {}): Step => ({
  op: 'match',
  headers,
  ...key,
});
const FRESH = { 'cache-control': 'max-age=60', 'content-type': 'text/x' };
const TAGGED = { ...FRESH, etag: '"e"', 'last-modified': 'Wed, 01 Jan 2025 00:00:00 GMT' };
const hit = (status = 200, body = 'hello world') => [
  status,
  body,
  expect.objectContaining({ 'cf-cache-status': 'HIT' }),
];
const MISS = 'miss';
const DONE = 'undefined';

/** What is expected of the last step; `miniflare`: of Miniflare, where it differs. */
type Row = readonly [name: string, steps: Step[], ours: unknown, miniflare?: unknown];

const kept = (name: string, headers: Record<string, string>, is: boolean, differs = false): Row => [
  `keeps ${name}: ${is}`,
  [put(headers), match()],
  is ? hit() : MISS,
  differs ? (is ? MISS : hit()) : undefined,
];
const byStatus = (status: number, headers: Record<string, string>, is: boolean, differs = false): Row => [
  `keeps ${status} with ${JSON.stringify(headers)}: ${is}`,
  [put(headers, { status }), match()],
  is ? hit(status) : MISS,
  differs ? (is ? MISS : hit(status)) : undefined,
];
const asks = (name: string, headers: Record<string, string>, ours: unknown, miniflare?: unknown): Row => [
  `match with ${name}`,
  [put(TAGGED), match(headers)],
  ours,
  miniflare,
];
const part = (body: string, range: string) => [
  206,
  body,
  expect.objectContaining({ 'content-range': range, 'content-length': String(body.length), 'cf-cache-status': 'HIT' }),
];

const ROWS: Row[] = [
  // What is kept.
  kept('max-age', FRESH, true),
  kept('max-age with quotes', { 'cache-control': 'max-age="60"' }, true),
  kept('s-maxage', { 'cache-control': 's-maxage=60' }, true),
  kept('s-maxage before max-age', { 'cache-control': 'max-age=0, s-maxage=60' }, true),
  kept('max-age=0', { 'cache-control': 'max-age=0' }, false),
  kept('s-maxage=0', { 'cache-control': 'max-age=60, s-maxage=0' }, false),
  kept('a max-age that is no number', { 'cache-control': 'max-age=soon' }, false),
  kept('Expires in time to come', { expires: 'Fri, 01 Jan 2100 00:00:00 GMT' }, true),
  kept('Expires in the past', { expires: 'Wed, 01 Jan 2020 00:00:00 GMT' }, false),
  kept('Expires that is no date', { expires: '0' }, false),
  kept('max-age before Expires', { ...FRESH, expires: 'Wed, 01 Jan 2020 00:00:00 GMT' }, true),
  kept('an age above max-age', { ...FRESH, age: '61' }, false),
  kept('no-store', { 'cache-control': 'no-store, max-age=60' }, false),
  kept('no-cache', { 'cache-control': 'no-cache, max-age=60' }, false),
  kept('private', { 'cache-control': 'private, max-age=60' }, false),
  kept('an upper case NO-STORE', { 'cache-control': 'NO-STORE, max-age=60' }, false, true),
  kept('Set-Cookie', { ...FRESH, 'set-cookie': 'a=b' }, false),
  // Cloudflare's documentation names times by status where the answer says none.
  kept('what says nothing', {}, true, true),
  kept('public alone', { 'cache-control': 'public' }, true, true),
  byStatus(301, FRESH, true),
  byStatus(404, FRESH, true),
  byStatus(404, {}, true, true),
  byStatus(302, {}, true, true),
  byStatus(500, {}, false),
  byStatus(500, FRESH, true, true),
  byStatus(403, {}, false),
  [
    'Set-Cookie is left out where Cache-Control says private=Set-Cookie',
    [put({ 'set-cookie': 'a=b', 'x-a': 'kept', 'cache-control': 'private=Set-Cookie, max-age=60' }), match()],
    [
      200,
      'hello world',
      { 'cf-cache-status': 'HIT', 'content-length': '11', 'content-type': 'text/plain;charset=UTF-8', 'x-a': 'kept' },
    ],
  ],
  [
    'Vary does not make another key',
    [
      put({ ...FRESH, vary: 'accept-language' }, {}, { headers: { 'accept-language': 'de' } }),
      match({ 'accept-language': 'fr' }),
    ],
    hit(),
  ],
  ['Vary: * is refused', [put({ ...FRESH, vary: 'accept, *' })], "Cannot cache response with 'Vary: *' header."],
  ['206 is refused', [put(FRESH, { status: 206 })], 'Cannot cache response to a range request (206 Partial Content).'],
  [
    'another method than GET is refused',
    [put(FRESH, {}, { method: 'POST' })],
    'Cannot cache response to non-GET request.',
  ],
  ['304 is dropped', [put(TAGGED, { status: 304, body: undefined }), match()], MISS],
  ['an answer without a body', [put(FRESH, { status: 204, body: undefined }), match()], hit(204, ''), MISS],
  ['credentials in the key', [put(FRESH, {}, { headers: { authorization: 'x' } }), match()], MISS],
  [
    'credentials in the key, and public',
    [put({ 'cache-control': 'public, max-age=60' }, {}, { headers: { authorization: 'x' } }), match()],
    hit(),
  ],
  [
    'a put that is not kept leaves what was there',
    [put(FRESH, { body: 'old' }), put({ 'cache-control': 'no-store' }), match()],
    hit(200, 'old'),
  ],
  [
    'a put that ends at once takes its place',
    [put(FRESH, { body: 'old' }), put({ 'cache-control': 'max-age=0' }), match()],
    MISS,
  ],
  ['a put replaces', [put(FRESH, { body: 'old' }), put(FRESH), match()], hit()],
  ['a put resolves to undefined', [put({ 'cache-control': 'no-store' })], DONE],
  // Which key it is.
  ['the query is part of the key', [put(FRESH, {}, { url: '$?a' }), match({}, { url: '$?b' })], MISS],
  [
    'the case of the host is not',
    [put(FRESH, {}, { url: 'http://CACHED.example/$case' }), match({}, { url: 'http://cached.example/$case' })],
    hit(),
  ],
  [
    'the usual port is not',
    [put(FRESH, {}, { url: 'http://cached.example:80/$port' }), match({}, { url: 'http://cached.example/$port' })],
    hit(),
  ],
  [
    'the scheme is',
    [put(FRESH, {}, { url: 'https://cached.example/$scheme' }), match({}, { url: 'http://cached.example/$scheme' })],
    MISS,
  ],
  [
    'the host is',
    [put(FRESH, {}, { url: 'http://other.example/$host' }), match({}, { url: 'http://cached.example/$host' })],
    MISS,
  ],
  ['a fragment is not', [put(FRESH, {}, { url: '$#a' }), match()], hit()],
  [
    'a key of 16 KB',
    [put(FRESH, {}, { url: `$${'x'.repeat(16_000)}` }), match({}, { url: `$${'x'.repeat(16_000)}` })],
    hit(),
  ],
  ['the method is part of it', [put(FRESH), match({}, { method: 'HEAD' })], MISS],
  [
    'the method is not, with ignoreMethod',
    [put(FRESH), match({}, { method: 'HEAD', options: { ignoreMethod: true } })],
    hit(),
  ],
  ['a cache by name is another one', [put(FRESH), match({}, { cache: 'other' })], MISS],
  ['a cache by name', [put(FRESH, {}, { cache: 'mine' }), match({}, { cache: 'mine' })], hit()],
  // What is removed.
  ['delete of what is there', [put(FRESH), { op: 'delete' }], true],
  ['delete of what is not', [{ op: 'delete' }], false],
  ['delete twice', [put(FRESH), { op: 'delete' }, { op: 'delete' }], false],
  ['a match after delete', [put(FRESH), { op: 'delete' }, match()], MISS],
  ['delete with another method', [put(FRESH), { op: 'delete', method: 'POST' }], false],
  ['delete with ignoreMethod', [put(FRESH), { op: 'delete', method: 'POST', options: { ignoreMethod: true } }], true],
  ['delete in another cache', [put(FRESH), { op: 'delete', cache: 'other' }, match()], hit()],
  // Conditions and ranges.
  asks('its etag', { 'if-none-match': '"e"' }, [304, '', expect.objectContaining({ etag: '"e"' })]),
  asks('its etag as a weak one', { 'if-none-match': 'W/"e"' }, hit(304, '')),
  asks('its etag among others', { 'if-none-match': '"a", "e"' }, hit(304, '')),
  asks('any etag', { 'if-none-match': '*' }, hit(304, '')),
  asks('another etag', { 'if-none-match': '"f"' }, hit()),
  asks('its time', { 'if-modified-since': 'Wed, 01 Jan 2025 00:00:00 GMT' }, hit(304, '')),
  asks('an earlier time', { 'if-modified-since': 'Tue, 31 Dec 2024 00:00:00 GMT' }, hit()),
  asks('what is no time', { 'if-modified-since': 'yesterday' }, hit()),
  asks(
    'another etag and its time',
    { 'if-none-match': '"f"', 'if-modified-since': 'Wed, 01 Jan 2025 00:00:00 GMT' },
    hit(),
    hit(304, ''),
  ),
  asks('a range', { range: 'bytes=1-3' }, part('ell', 'bytes 1-3/11')),
  asks('a range to the end', { range: 'bytes=6-' }, part('world', 'bytes 6-10/11')),
  asks('a range beyond the end', { range: 'bytes=6-99' }, part('world', 'bytes 6-10/11')),
  asks('the last bytes', { range: 'bytes=-5' }, part('world', 'bytes 6-10/11')),
  asks('a range that is not there', { range: 'bytes=11-' }, [
    416,
    '',
    expect.objectContaining({ 'content-range': 'bytes */11' }),
  ]),
  asks('a range in another unit', { range: 'lines=1-2' }, hit(), hit(416, '')),
  asks('a range and its etag', { range: 'bytes=1-3', 'if-none-match': '"e"' }, hit(304, '')),
  asks('a range of another version', { range: 'bytes=1-3', 'if-range': '"f"' }, hit(), part('ell', 'bytes 1-3/11')),
  asks('a range of this version', { range: 'bytes=1-3', 'if-range': '"e"' }, part('ell', 'bytes 1-3/11')),
  asks('several ranges', { range: 'bytes=0-1,3-4' }, hit(), hit(206, expect.stringContaining('bytes 0-1/11') as never)),
];

let rig: RuntimeRig;
let miniflare: Miniflare;
beforeAll(async () => {
  rig = await RuntimeRig.start({ storage: { cacheBytes: 4_000_000 } });
  await rig.deploy('cached', CODE);
  miniflare = new Miniflare({ modules: true, script: CODE, compatibilityDate: '2026-01-01' });
  await miniflare.ready;
});
afterAll(async () => {
  await rig?.stop();
  await miniflare?.dispose();
});

const at = (steps: Step[], row: string) =>
  JSON.stringify(
    steps.map((step) => {
      const url = (step.url ?? '$').replace('$', step.url?.includes('://') ? row : `http://cached.example/${row}`);
      return { ...step, url };
    }),
  );

async function ours(steps: Step[], row: string, slug = 'cached'): Promise<unknown[]> {
  const answer = await rig.fetch(slug, '/', { method: 'POST', body: at(steps, row) });
  return JSON.parse(await answer.text());
}

it.each(ROWS.map((row, index) => [row[0], index, row] as const))(
  '%s',
  async (_name, index, [, steps, expected, its]) => {
    const peer = await miniflare.dispatchFetch('http://x/', { method: 'POST', body: at(steps, `r${index}`) });
    expect([(await ours(steps, `r${index}`)).at(-1), ((await peer.json()) as unknown[]).at(-1)]).toEqual([
      expected,
      its ?? expected,
    ]);
  },
);

it('outlives its instance and its version, and is no other tenant’s', async () => {
  expect(await ours([put(FRESH), match()], 'kept')).toEqual([DONE, hit()]);
  process.kill(rig.pidOf('cached'), 'SIGKILL');
  await expect.poll(() => ours([match()], 'kept').catch(() => [])).toEqual([hit()]);
  await rig.deploy('cached', `${CODE}\n// Another version.`);
  await rig.runtime.activate('cached');
  expect(await ours([match()], 'kept')).toEqual([hit()]);
  await rig.deploy('other', CODE);
  expect(await ours([match(), { op: 'delete' }], 'kept', 'other')).toEqual([MISS, false]);
});

it('a handler goes on where an answer finds no room', async () => {
  const large = { body: 'x'.repeat(5_000_000) };
  expect(await ours([put(FRESH), put(FRESH, large), match()], 'large')).toEqual([DONE, DONE, hit()]);
  // The fields of a caller are those of a match, too.
  const fields = { 'x-huge': 'x'.repeat(70_000), expect: '100-continue', connection: 'close', range: 'bytes=0-0' };
  expect(await ours([match(fields)], 'large')).toEqual([part('h', 'bytes 0-0/11')]);
});
