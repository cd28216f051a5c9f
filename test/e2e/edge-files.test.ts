/**
 * Files that the edge serves itself: its answers are those of workerd's own service, which the code of the same
 * deployment asks through its binding; and callers, owners and operators find everything as it is for an instance.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, rmSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { until } from './support/until.ts';

/** `/via/x` is what the service of the instance says of `/x`. */
const CODE = `export default { async fetch(request, env) {
  const url = new URL(request.url);
  if (!url.pathname.startsWith('/via/')) return new Response('code ' + url.pathname);
  const headers = new Headers(request.headers);
  url.pathname = url.pathname.slice(4);
  return env.FILES?.fetch(new Request(url, { method: request.method, headers, redirect: 'manual' })) ?? new Response('none');
} };`;

const LARGE = randomBytes(3 * 1_048_576);
const TEXT = `${'a line that is repeated\n'.repeat(4_000)}`;
const FILES: Record<string, string | Buffer> = {
  '/index.html': '<h1>home</h1>',
  '/404.html': 'nothing',
  '/about.html': 'about',
  '/docs/index.html': 'docs',
  '/docs/404.html': 'no such docs',
  '/docs/page.html': 'page',
  '/both.html': 'both one',
  '/both/index.html': 'both two',
  '/index/index.html': 'deep',
  '/plain': 'no ending',
  '/plain.html': 'plain page',
  '/a b.txt': 'space',
  '/[x].js': 'brackets',
  '/ü.html': 'umlaut',
  '/%41.txt': 'percent',
  "/it's.txt": 'quote',
  '/UPPER.CSS': 'a{}',
  '/.well-known/x.json': '{}',
  '/data.bin': 'bin',
  '/style.css': TEXT,
  '/large.png': LARGE,
  '/empty.txt': '',
  '/secret/x.txt': 'secret',
  '/moved.txt': 'moved',
  '/old/x.txt': 'old',
  '/file.html/index.html': 'odd',
};
const HEADERS = `/*
  X-All: yes
/docs/*
  X-Splat: is-:splat
  Cache-Control: max-age=60
/:name.txt
  X-Name: :name
  ! X-All
/style.css
  X-All: again
  X-Two: a
  X-Two: b
https://other.example/*
  X-Host: other
not a path
  X-Wrong: 1
/secret/*
  X-Robots-Tag: noindex
`;
const REDIRECTS = `/moved.txt /plain 301
/old/* /docs/:splat
/shown /about 200
/* /index.html 200
`;
const PATHS = [
  ...Object.keys(FILES).flatMap((file) => {
    const at = file.split('/').map(encodeURIComponent).join('/');
    const bare = at.replace(/\.html$/, '');
    return [at, bare, `${bare}/`, at.replace(/\/index\.html$/, '') || '/', at.replace(/index\.html$/, ''), `${at}/`];
  }),
  ...['/nothing', '/docs/nothing', '/docs/nothing/', '/index', '/docs/index', '/shown', '/old/y', '//about', '/[x].js'],
  ...[
    '/%61bout',
    '/about?q=1',
    '/about.html?q=1',
    '/%2e%2e/about',
    '/docs/../about',
    '/about%00',
    '/about%2f',
    '/a%20b.txt/',
  ],
];

const sha256 = (content: string | Buffer) => createHash('sha256').update(content).digest('hex');

let host: TestHost;
let owner: Fetch;
let bearer: Record<string, string>;
const hashes: Record<string, string> = {};

beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'error', 'storage-asset-bytes': String(16 * 1_048_576) } });
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, { slug: 'files', code: CODE });
  const session = await owner(`${host.url}/_admin/session/files`, { method: 'POST' });
  bearer = { authorization: `Bearer ${((await session.json()) as { token: string }).token}` };
  await Promise.all(
    Object.entries(FILES).map(async ([name, content]) => {
      hashes[name] = sha256(content);
      const body = new Uint8Array(Buffer.from(content));
      const url = `${host.url}/_admin/files/assets/${hashes[name]}`;
      expect((await fetch(url, { method: 'PUT', body, headers: bearer })).status).toBe(201);
    }),
  );
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
});

async function update(assets: object, more: object = {}): Promise<void> {
  const change = { assets: { files: hashes, binding: 'FILES', ...assets }, ...more };
  const answer = await fetch(`${host.url}/_admin/code/files`, {
    ...jsonPut(change),
    headers: { ...bearer, 'content-type': 'application/json' },
  });
  expect(await answer.text()).toContain('"slug"');
}

const byEdge = (response: Response) => response.headers.get('accept-ranges') === 'bytes';

/** The whole answer as bytes on the wire would show it, but for what cannot be the same. */
async function answer(
  target: string,
  init: RequestInit = {},
): Promise<{ status: number; edge: boolean; rest: object }> {
  const response = await raw(target, init);
  const body = Buffer.from(await response.arrayBuffer()).toString('base64');
  const headers = Object.fromEntries(response.headers);
  for (const own of [
    'etag',
    'accept-ranges',
    'date',
    'x-request-id',
    'connection',
    'keep-alive',
    'transfer-encoding',
    'vary',
  ])
    delete headers[own];
  return { status: response.status, edge: byEdge(response), rest: { headers, body } };
}

/** With the path as it is: `fetch` would rewrite it. */
const raw = (target: string, init: RequestInit) => rawAt(`/files${target}`, init);

function rawAt(target: string, { method = 'GET', headers = {} }: RequestInit): Promise<Response> {
  return new Promise((resolve, reject) => {
    const url = new URL(host.url);
    const socket = net.connect(Number(url.port), url.hostname);
    const fields = Object.entries({ host: url.host, connection: 'close', ...headers }).map(
      ([n, v]) => `${n}: ${v}\r\n`,
    );
    socket.write(`${method} ${target} HTTP/1.1\r\n${fields.join('')}\r\n`);
    const pieces: Buffer[] = [];
    socket.on('data', (piece: Buffer) => pieces.push(piece));
    socket.on('error', reject);
    socket.on('end', () => {
      const all = Buffer.concat(pieces);
      const end = all.indexOf('\r\n\r\n');
      const [first = '', ...lines] = all.toString('latin1', 0, end).split('\r\n');
      const status = Number(first.split(' ')[1]);
      const pairs = lines.map((line): [string, string] => [
        line.slice(0, line.indexOf(':')),
        line.slice(line.indexOf(':') + 1).trim(),
      ]);
      const given = all.subarray(end + 4);
      const chunked = pairs.some(([name]) => name.toLowerCase() === 'transfer-encoding');
      const body = chunked ? unchunked(given) : given;
      resolve(new Response(status === 204 || status === 304 ? null : new Uint8Array(body), { status, headers: pairs }));
    });
  });
}

function unchunked(bytes: Buffer): Buffer {
  const pieces: Buffer[] = [];
  for (let from = 0; ; ) {
    const line = bytes.indexOf('\r\n', from);
    const size = Number.parseInt(bytes.toString('latin1', from, line), 16);
    if (!(size > 0)) return Buffer.concat(pieces);
    pieces.push(bytes.subarray(line + 2, line + 2 + size));
    from = line + 4 + size;
  }
}

describe('answers are those of the service in the instance', () => {
  it.each([
    ['auto-trailing-slash', 'none', 21],
    ['force-trailing-slash', '404-page', 15],
    ['drop-trailing-slash', 'single-page-application', 21],
    ['none', '404-page', 20],
    [undefined, undefined, 21],
  ])('%s, %s', async (htmlHandling, notFoundHandling, least) => {
    await update({ htmlHandling, notFoundHandling, headers: HEADERS, redirects: REDIRECTS });
    let served = 0;
    for (const target of new Set(PATHS)) {
      for (const init of [{}, { method: 'HEAD' }, { headers: { authorization: 'x' } }]) {
        const here = await answer(target, init);
        if (!here.edge) continue;
        served += 1;
        expect({ target, ...here, edge: false }).toEqual({ target, ...(await answer(`/via${target}`, init)) });
      }
    }
    expect(served).toBeGreaterThanOrEqual(3 * least);
  });
});

describe('what an instance does not do', () => {
  beforeAll(() => update({ headers: '/style.css\n  X-A: b\n' }));
  const get = (target: string, headers: Record<string, string> = {}, method = 'GET') =>
    raw(target, { headers, method });
  const bytes = async (response: Response) => Buffer.from(await response.arrayBuffer());

  it('an etag is the content, however it is asked again', async () => {
    const first = await get('/about');
    const etag = first.headers.get('etag') ?? '';
    expect(etag).toBe(`"${sha256('about')}"`);
    for (const known of [etag, `W/${etag}`, `"x", ${etag}`, '*']) {
      const again = await get('/about', { 'if-none-match': known });
      expect([again.status, again.headers.get('etag'), (await bytes(again)).length]).toEqual([304, etag, 0]);
      expect(again.headers.get('cache-control')).toBe('public, max-age=0, must-revalidate');
    }
    expect((await get('/about', { 'if-none-match': '"x"' })).status).toBe(200);
  });

  it.each<[string, Record<string, string>, number, [number, number] | undefined]>([
    ['the first bytes', { range: 'bytes=0-99' }, 206, [0, 100]],
    ['from the middle', { range: 'bytes=3000000-' }, 206, [3_000_000, LARGE.length]],
    ['the last bytes', { range: 'bytes=-5' }, 206, [LARGE.length - 5, LARGE.length]],
    ['more than there is', { range: 'bytes=3000000-99999999' }, 206, [3_000_000, LARGE.length]],
    ['behind the end', { range: `bytes=${LARGE.length}-` }, 416, undefined],
    ['nothing', { range: 'bytes=-0' }, 416, undefined],
    ['several parts', { range: 'bytes=0-1,5-6' }, 200, [0, LARGE.length]],
    ['backwards', { range: 'bytes=5-1' }, 200, [0, LARGE.length]],
    ['another unit', { range: 'lines=0-1' }, 200, [0, LARGE.length]],
    ['of this file', { range: 'bytes=1-2', 'if-range': `"${sha256(LARGE)}"` }, 206, [1, 3]],
    ['of another', { range: 'bytes=1-2', 'if-range': '"x"' }, 200, [0, LARGE.length]],
    ['by a weak etag', { range: 'bytes=1-2', 'if-range': `W/"${sha256(LARGE)}"` }, 200, [0, LARGE.length]],
  ])('a range: %s', async (_what, headers, status, part) => {
    const response = await get('/large.png', headers);
    expect(response.status).toBe(status);
    const [from, to] = part ?? [0, 0];
    expect((await bytes(response)).equals(LARGE.subarray(from, to))).toBe(true);
    if (status === 206) expect(response.headers.get('content-range')).toBe(`bytes ${from}-${to - 1}/${LARGE.length}`);
    if (status === 416) expect(response.headers.get('content-range')).toBe(`bytes */${LARGE.length}`);
  });

  it('text is sent compressed to who takes it, once it was compressed', async () => {
    const zipped = await until(async () => {
      const response = await get('/style.css', { 'accept-encoding': 'gzip;q=0.5, br;q=0' });
      return response.headers.get('content-encoding') ? response : undefined;
    });
    expect(zipped.headers.get('content-encoding')).toBe('gzip');
    expect(zipped.headers.get('x-a')).toBe('b');
    const kept = await bytes(zipped);
    expect(Number(zipped.headers.get('content-length'))).toBe(kept.length);
    expect(gunzipSync(kept).toString()).toBe(TEXT);
    const small = await get('/style.css', { 'accept-encoding': 'gzip, br' });
    expect(brotliDecompressSync(await bytes(small)).toString()).toBe(TEXT);
    const etag = small.headers.get('etag') ?? '';
    expect(etag).toBe(`W/"${sha256(TEXT)}"`);
    for (const accepted of [{}, { 'accept-encoding': 'identity' }, { 'accept-encoding': 'br', range: 'bytes=0-9' }]) {
      const plain = await get('/style.css', accepted);
      expect([plain.headers.get('content-encoding'), plain.headers.get('vary')]).toEqual([null, 'accept-encoding']);
    }
    expect((await get('/style.css', { 'accept-encoding': 'br', 'if-none-match': etag })).status).toBe(304);
    const head = await get('/style.css', { 'accept-encoding': 'br' }, 'HEAD');
    expect(head.headers.get('content-length')).toBe(small.headers.get('content-length'));
    for (const never of ['/large.png', '/about']) {
      const response = await get(never, { 'accept-encoding': 'gzip, br' });
      expect([byEdge(response), response.headers.get('content-encoding')]).toEqual([true, null]);
    }
  });
});

describe('who may have them, and who pays', () => {
  it('patterns of run_worker_first, a base path and prices come first', async () => {
    await update({ runWorkerFirst: ['/docs/*', '!/docs/page'] });
    expect(await (await raw('/docs/', {})).text()).toBe('code /docs/');
    expect([await (await raw('/docs/page', {})).text(), byEdge(await raw('/about', {}))]).toEqual(['page', true]);
    await update({ runWorkerFirst: true });
    expect(await (await raw('/about', {})).text()).toBe('code /about');
    await update({ basePath: '/base' });
    const based = await raw('/base/about', {});
    expect([byEdge(based), await based.text()]).toEqual([true, 'about']);
    expect(await (await raw('/about', {})).text()).toBe('code /about');
    const owned = (body: object) => owner(`${host.url}/_admin/code/files`, jsonPut(body));
    expect((await owned({ paidRoutes: [{ method: 'GET', path: '/base/about', price: '0.01' }] })).status).toBe(200);
    for (const target of ['/base/about', '/base/%61bout', '/base/about?x'])
      expect((await raw(target, {})).status).toBe(402);
    expect((await raw('/base/both', {})).status).toBe(200);
    expect((await owned({ paidRoutes: [] })).status).toBe(200);
  });

  it('a preview has its own; on path addresses they are confined, on subdomains not', async () => {
    await update({});
    const files = { ...hashes, '/about.html': sha256('docs') };
    const made = await fetch(`${host.url}/_admin/code/files`, {
      ...jsonPut({ preview: true, assets: { files, binding: 'FILES' } }),
      headers: { ...bearer, 'content-type': 'application/json' },
    });
    const { preview } = (await made.json()) as { preview: { id: string } };
    expect(await (await fetch(`${host.url}/${preview.id}--files/about`)).text()).toBe('docs');
    expect(await (await raw('/about', {})).text()).toBe('about');
    const page = await raw('/about', {});
    expect(page.headers.get('content-security-policy')).toMatch(/^sandbox /);
    const named = { host: `files.localhost:${new URL(host.url).port}` };
    const there = await rawAt('/about', { headers: named });
    expect([byEdge(there), there.headers.get('content-security-policy')]).toEqual([true, null]);
    const worker = await raw('/style.css', { headers: { 'service-worker': 'script' } });
    expect(worker.status).toBe(403);
  });

  it('they need no instance, are counted, and end with a suspension', async () => {
    await host.kill();
    host = await host.restart();
    owner = mppFetch(host.network, 0);
    const usage = async () => JSON.stringify(await (await owner(`${host.url}/_admin/files/usage`)).json());
    const before = Number(/"bytesOut":(\d+)/.exec(await usage())?.[1] ?? 0);
    const response = await until(async () => {
      const given = await raw('/large.png', {});
      return byEdge(given) ? given : undefined;
    });
    expect((await response.arrayBuffer()).byteLength).toBe(LARGE.length);
    await until(async () => Number(/"bytesOut":(\d+)/.exec(await usage())?.[1] ?? 0) >= before + LARGE.length);
    const shown = (await (await fetch(`${host.url}/_admin/get/files`)).json()) as object;
    expect(JSON.stringify(shown)).toContain('"cold"');
    const act = (what: string) => host.operator('POST', `/tenants/files/${what}`, { reason: 'a test of it' });
    expect((await act('suspend')).status).toBe(200);
    expect((await raw('/about', {})).status).toBe(403);
    expect((await act('resume')).status).toBe(200);
    expect((await raw('/about', {})).status).toBe(200);
  });
});

describe('callers who do not behave', () => {
  const port = () => Number(new URL(host.url).port);
  const REQUEST = 'GET /files/large.png HTTP/1.1\r\nhost: localhost\r\n\r\n';

  it('who reads nothing, or leaves, holds nothing for long', async () => {
    const slow = Array.from({ length: 100 }, () => {
      const socket = net.connect(port(), '127.0.0.1').on('error', () => {});
      socket.pause();
      socket.write(REQUEST);
      return socket;
    });
    for (let i = 0; i < 20; i++) expect((await raw('/about', {})).status).toBe(200);
    for (const socket of slow.slice(50)) socket.resetAndDestroy();
    const [last = slow[0]] = slow.slice(0, 50);
    let got = 0;
    last?.on('data', (piece: Buffer) => {
      got += piece.length;
    });
    last?.resume();
    await until(() => got > LARGE.length);
    for (const socket of slow) socket.destroy();
    expect((await (await raw('/large.png', {})).arrayBuffer()).byteLength).toBe(LARGE.length);
  });

  it('two requests in one piece are answered in turn', async () => {
    const socket = net.connect(port(), '127.0.0.1');
    let text = '';
    socket.on('data', (piece: Buffer) => {
      text += piece.toString('latin1');
    });
    const ask = (target: string) => `GET /files${target} HTTP/1.1\r\nhost: localhost\r\n\r\n`;
    socket.write(ask('/about') + ask('/nothing') + ask('/docs/'));
    await until(() => /about[\s\S]*code \/nothing[\s\S]*docs$/.test(text));
    socket.destroy();
  });

  it('a file that is gone from the disk is left to the instance', async () => {
    const [tenant = ''] = readdirSync(path.join(host.data, 'tenants')).filter((name) =>
      readdirSync(path.join(host.data, 'tenants', name)).includes('assets'),
    );
    const hash = hashes['/plain'] ?? '';
    rmSync(path.join(host.data, 'tenants', tenant, 'assets/files', hash));
    const response = await raw('/plain', {});
    expect([byEdge(response), response.status]).toEqual([false, 200]);
  });
});
