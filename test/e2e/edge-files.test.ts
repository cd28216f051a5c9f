/**
 * Files that the edge serves itself: its answers are those of workerd's own service, which the code of the same
 * deployment asks through its binding; and callers, owners and operators find everything as it is for an instance.
 */
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, rmSync } from 'node:fs';
import http2 from 'node:http2';
import net from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost, until } from './support/host.ts';

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
}, 60_000);
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

const at = (target: string) => `${host.url}/files${target}`;
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
function raw(target: string, { method = 'GET', headers = {} }: RequestInit): Promise<Response> {
  return new Promise((resolve, reject) => {
    const url = new URL(host.url);
    const socket = net.connect(Number(url.port), url.hostname);
    const fields = Object.entries({ host: url.host, connection: 'close', ...headers }).map(
      ([n, v]) => `${n}: ${v}\r\n`,
    );
    socket.write(`${method} /files${target} HTTP/1.1\r\n${fields.join('')}\r\n`);
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
  ])('%s, %s', { timeout: 60_000 }, async (htmlHandling, notFoundHandling, least) => {
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
