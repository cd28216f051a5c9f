/** Control's way to an instance: what a paid call goes through, against a real workerd. */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer as createHttpServer, type Server as HttpServer } from 'node:http';
import { type AddressInfo, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { UpstreamPool } from '../../host/http/client/pool.ts';
import { fetchInstance, instancePool, openInstanceSocket } from '../../host/http/instance/fetch.ts';
import type { EdgeContext } from '../../host/shared/contracts.ts';
import { startWorkerd, type Workerd } from './edge/harness.ts';
import { until } from './support/until.ts';

const MODULE = `
let cancelled = 0;
let closed = 0;
let spoken = 0;
export default {
  async fetch(request) {
    const url = new URL(request.url);
    if (request.headers.get('upgrade') === 'websocket') {
      if (url.pathname === '/no') return new Response('not you', { status: 403 });
      const [client, server] = Object.values(new WebSocketPair());
      server.accept();
      if (url.pathname === '/live') setTimeout(() => { server.send('first'); spoken += 1; }, 10);
      server.addEventListener('message', ({ data }) => server.send(request.headers.get('x-payer') + data));
      server.addEventListener('close', () => { closed += 1; });
      return new Response(null, { status: 101, webSocket: client, headers: { 'x-charge': '0.03' } });
    }
    if (url.pathname === '/pipe') return new Response(request.body, { headers: { 'x-charge': '0.01' } });
    if (url.pathname === '/hang') await scheduler.wait(60_000);
    if (url.pathname === '/sockets') return Response.json({ closed, spoken });
    if (url.pathname === '/cancelled') return Response.json({ cancelled });
    if (url.pathname === '/ticks') {
      let timer;
      return new Response(new ReadableStream({
        start(c) { timer = setInterval(() => c.enqueue(new Uint8Array(100_000)), 5); },
        cancel() { cancelled += 1; clearInterval(timer); },
      }));
    }
    if (url.pathname === '/none') return new Response(null, { status: Number(url.searchParams.get('status')) });
    return Response.json({ url: request.url, headers: Object.fromEntries(request.headers), body: await request.text() },
      { headers: [['set-cookie', 'a=1'], ['set-cookie', 'b=2'], ['x-charge', '0.02']] });
  },
};`;

const CONTEXT: EdgeContext = {
  requestId: 'request-1',
  clientIp: '9.9.9.9',
  proto: 'https',
  host: 'api.test',
  slug: 'hello',
  tenantPath: '/x',
  prefix: '/hello',
  via: 'path',
};

const HANDSHAKE = {
  headers: [
    ['sec-websocket-version', '13'],
    ['sec-websocket-key', 'dGhlIHNhbXBsZSBub25jZQ=='],
  ] as [string, string][],
};

let folder: string;
let workerd: Workerd;
let pool: UpstreamPool;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'fetch-'));
  workerd = await startWorkerd(folder, 'w', MODULE);
  pool = instancePool(workerd.socket);
});

afterAll(async () => {
  pool.close();
  await workerd.stop();
  await rm(folder, { recursive: true, force: true });
});

test('the handler sees what it would see from the edge, and control sees the whole answer', async () => {
  const response = await fetchInstance(
    pool,
    {
      method: 'POST',
      path: '/x?y',
      headers: [
        ['x-payer', 'forged'],
        ['x-max-price', '9'],
        ['host', 'forged'],
        ['accept', 'text/plain'],
        ['content-length', '99'],
      ],
      body: new TextEncoder().encode('body'),
      extra: { 'x-payer': 'did:pkh:me', 'x-max-price': '0.05' },
    },
    CONTEXT,
  );
  expect(response.status).toBe(200);
  expect(response.headers.get('x-charge')).toBe('0.02');
  expect(response.headers.getSetCookie()).toEqual(['a=1', 'b=2']);
  expect(await response.json()).toMatchObject({
    url: 'https://api.test/x?y',
    body: 'body',
    headers: {
      'x-payer': 'did:pkh:me',
      'x-max-price': '0.05',
      accept: 'text/plain',
      'x-forwarded-prefix': '/hello',
      'cf-connecting-ip': '9.9.9.9',
    },
  });
});

test('a caller of HTTP/1.0 need not name the host, and what is no name of one goes nowhere', async () => {
  const call = { method: 'GET', path: '/x', headers: [] };
  const response = await fetchInstance(pool, call, { ...CONTEXT, host: '' });
  expect(await response.json()).toMatchObject({ url: 'https://localhost/x' });
  for (const host of ['a b', 'a/b', 'a\r\nb: c', 'a?b'])
    await expect(fetchInstance(pool, call, { ...CONTEXT, host })).rejects.toMatchObject({ code: 'bad_request' });
});

test('a body streams both ways at once', async () => {
  const { readable, writable } = new TransformStream<Uint8Array>();
  const writer = writable.getWriter();
  void writer.write(new TextEncoder().encode('one'));
  const response = await fetchInstance(pool, { method: 'POST', path: '/pipe', headers: [], body: readable }, CONTEXT);
  const reader = response.body!.getReader();
  expect(new TextDecoder().decode((await reader.read()).value)).toBe('one');
  void writer.write(new TextEncoder().encode('two'));
  expect(new TextDecoder().decode((await reader.read()).value)).toBe('two');
  await writer.close();
  expect((await reader.read()).done).toBe(true);
});

test('10 MB through a slow reader, and back-pressure holds', async () => {
  const size = 10_000_000;
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      controller.enqueue(new Uint8Array(size));
      controller.close();
    },
  });
  const response = await fetchInstance(
    pool,
    { method: 'POST', path: '/pipe', headers: [['content-length', String(size)]], body },
    CONTEXT,
  );
  let received = 0;
  for await (const chunk of response.body!) {
    received += chunk.length;
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(received).toBe(size);
});

test('a body that is not as long as declared never reaches the handler as two requests', async () => {
  for (const declared of ['2', '9']) {
    const body = new Blob(['abcd']).stream() as ReadableStream<Uint8Array>;
    const call = { method: 'POST', path: '/x', headers: [['content-length', declared]] as [string, string][], body };
    await expect(fetchInstance(pool, call, CONTEXT)).rejects.toMatchObject({ code: 'bad_request' });
  }
});

test('no body for 204, 205, 304, a HEAD, and what is cancelled is cancelled in the handler', async () => {
  for (const status of [204, 205, 304]) {
    const none = await fetchInstance(pool, { method: 'GET', path: `/none?status=${status}`, headers: [] }, CONTEXT);
    expect([none.status, none.body]).toEqual([status, null]);
  }
  const head = await fetchInstance(pool, { method: 'HEAD', path: '/x', headers: [] }, CONTEXT);
  expect([head.status, head.body]).toEqual([200, null]);
  const ticks = await fetchInstance(pool, { method: 'GET', path: '/ticks', headers: [] }, CONTEXT);
  await ticks.body!.cancel();
  await until(async () => {
    const response = await fetchInstance(pool, { method: 'GET', path: '/cancelled', headers: [] }, CONTEXT);
    return ((await response.json()) as { cancelled: number }).cancelled === 1;
  });
});

test('time in which nobody reads an answer is not the handler’s silence', async () => {
  const call = { method: 'GET', path: '/ticks', headers: [], idleTimeoutMs: 50 };
  const reader = (await fetchInstance(pool, call, CONTEXT)).body!.getReader();
  await reader.read();
  const from = performance.now();
  await until(() => performance.now() - from > 500);
  for (let n = 0; n < 20; n += 1) expect((await reader.read()).done).toBe(false);
  await reader.cancel();
});

test('time-outs, aborts and nobody there are told apart', async () => {
  const call = { method: 'GET', path: '/hang', headers: [] };
  await expect(fetchInstance(pool, { ...call, idleTimeoutMs: 50 }, CONTEXT)).rejects.toMatchObject({
    code: 'upstream_timeout',
  });
  const controller = new AbortController();
  const pending = fetchInstance(pool, { ...call, signal: controller.signal }, CONTEXT);
  controller.abort(new Error('enough'));
  await expect(pending).rejects.toThrow('enough');
  const nobody = instancePool(join(folder, 'nobody.sock'));
  await expect(fetchInstance(nobody, call, CONTEXT)).rejects.toMatchObject({ code: 'upstream_failed' });
});

test('a path or header with a line end is refused', async () => {
  const evil = '/x HTTP/1.1\r\nhost: y\r\n\r\nGET /';
  await expect(fetchInstance(pool, { method: 'GET', path: evil, headers: [] }, CONTEXT)).rejects.toThrow();
  await expect(
    fetchInstance(pool, { method: 'GET', path: '/', headers: [], extra: { 'x-payer': 'a\r\nb: c' } }, CONTEXT),
  ).rejects.toThrow();
});

test('an idle connection that the instance closed costs no request', async () => {
  let count = 0;
  const socket = join(folder, 'stale.sock');
  const server = createServer((connection) => {
    connection.on('data', () => {
      count += 1;
      if (count === 2) connection.destroy();
      else connection.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
    });
  });
  await new Promise<void>((resolve) => server.listen(socket, resolve));
  const own = instancePool(socket);
  for (let i = 0; i < 2; i += 1) {
    const response = await fetchInstance(own, { method: 'GET', path: '/', headers: [] }, CONTEXT);
    expect(await response.text()).toBe('ok');
  }
  expect(count).toBe(3);
  own.close();
  server.close();
});

test('a WebSocket is opened, held until its caller may hear of it, and joined', async () => {
  const opened = await openInstanceSocket(pool, { ...HANDSHAKE, path: '/live', extra: { 'x-payer': 'me:' } }, CONTEXT);
  if (opened instanceof Response) throw new Error('no socket');
  expect(opened.headers.get('x-charge')).toBe('0.03');
  // The handler speaks before its caller is there.
  await until(async () => {
    const response = await fetchInstance(pool, { method: 'GET', path: '/sockets', headers: [] }, CONTEXT);
    return ((await response.json()) as { spoken: number }).spoken > 0;
  });
  const server: HttpServer = createHttpServer();
  let ended = false;
  server.on('upgrade', async (_request, socket, head) => {
    const headers = new Headers({ 'sec-websocket-accept': opened.headers.get('sec-websocket-accept') ?? '' });
    await opened.join(socket, head, headers);
    ended = true;
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address() as AddressInfo;
  const raw = connect(address.port, '127.0.0.1');
  raw.write(
    'GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x82\0\0\0\0hi',
    'latin1',
  );
  let received = '';
  raw.on('data', (bytes) => {
    received += bytes.toString('latin1');
  });
  // What the handler sent before it was joined, and its answer to a frame that came with the handshake.
  await until(() => received.endsWith('\x81\x05first\x81\x05me:hi'));
  expect(received).toMatch(/^HTTP\/1\.1 101 /);
  expect(received).not.toContain('x-charge');
  raw.destroy();
  await until(() => ended);
  server.close();
});

test('a handler that opens no WebSocket answers; one that vanishes, and one that is abandoned, leave nothing', async () => {
  const refused = await openInstanceSocket(pool, { ...HANDSHAKE, path: '/no' }, CONTEXT);
  if (!(refused instanceof Response)) throw new Error('a socket');
  expect([refused.status, await refused.text()]).toEqual([403, 'not you']);
  const nobody = instancePool(join(folder, 'nobody.sock'));
  await expect(openInstanceSocket(nobody, { ...HANDSHAKE, path: '/' }, CONTEXT)).rejects.toMatchObject({
    code: 'upstream_failed',
  });
  const opened = await openInstanceSocket(pool, { ...HANDSHAKE, path: '/live' }, CONTEXT);
  if (opened instanceof Response) throw new Error('no socket');
  opened.abandon();
  await until(async () => {
    const response = await fetchInstance(pool, { method: 'GET', path: '/sockets', headers: [] }, CONTEXT);
    return ((await response.json()) as { closed: number }).closed > 0;
  });
});
