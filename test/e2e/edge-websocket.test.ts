/** WebSockets through the edge, with the stock `ws` client. */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import WebSocket from 'ws';
import { type Harness, route, startHarness, startWorkerd, type Workerd } from './edge/harness.ts';
import { rawConnection } from './edge/raw.ts';
import { until } from './support/until.ts';

const MODULE = `export default {
  async fetch(request) {
    if (request.headers.get('upgrade') !== 'websocket') return new Response('no handshake', { status: 426 });
    if (new URL(request.url).pathname === '/no') return new Response('not you', { status: 403 });
    const [client, server] = Object.values(new WebSocketPair());
    server.binaryType = 'arraybuffer';
    server.accept();
    if (new URL(request.url).pathname === '/greets') server.send('welcome');
    server.addEventListener('message', ({ data }) => {
      if (data === 'bye') server.close(4001, 'as asked');
      else server.send(data);
    });
    return new Response(null, { status: 101, webSocket: client, headers: { 'x-own': '1', 'x-charge': '1' } });
  },
};`;

let harness: Harness;
let workerd: Workerd;

beforeAll(async () => {
  harness = await startHarness();
  workerd = await startWorkerd(harness.folder, 'ws', MODULE);
  harness.onAcquire = () => ({ socket: workerd.socket, generation: 1 });
  await harness.edge.call('setRoutes', [
    route('chat'),
    route('quiet', { idleTimeoutMs: 1_000 }),
    route('paid', { paidRoutes: [{ method: 'GET', path: '/live' }] }),
  ]);
});

afterAll(async () => {
  await workerd?.stop();
  await harness?.close();
});

function open(path: string): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`ws://127.0.0.1:${harness.port}${path}`);
    socket.once('open', () => resolve(socket));
    socket.once('error', reject);
  });
}

function next(socket: WebSocket): Promise<Buffer> {
  return new Promise((resolve) => socket.once('message', (data) => resolve(data as Buffer)));
}

test('messages go both ways, small and large', async () => {
  const socket = await open('/chat/');
  socket.send('hello');
  expect(String(await next(socket))).toBe('hello');
  const large = Buffer.alloc(900_000, 7);
  socket.send(large);
  expect(
    createHash('sha256')
      .update(await next(socket))
      .digest('hex'),
  ).toBe(createHash('sha256').update(large).digest('hex'));
  socket.terminate();
});

test('what a slow reader has not taken yet is not mixed with what others send', async () => {
  const [slow, other] = await Promise.all([open('/chat/'), open('/chat/')]);
  const received: Buffer[] = [];
  const all = new Promise<void>((resolve) => {
    slow.on('message', (data) => {
      if (received.push(data as Buffer) === 400) resolve();
    });
  });
  slow.pause();
  for (let turn = 0; turn < 400; turn++) {
    slow.send(Buffer.alloc(20_000, turn));
    if (turn % 50 > 0) continue;
    // Through the memory that the edge reads both sockets into.
    other.send(Buffer.alloc(30_000, 255));
    await next(other);
  }
  slow.resume();
  await all;
  for (const [turn, message] of received.entries()) expect(message.equals(Buffer.alloc(20_000, turn))).toBe(true);
  slow.terminate();
  other.terminate();
});

test('closing goes through with code and reason, from either side', async () => {
  const socket = await open('/chat/');
  const closed = new Promise<[number, string]>((resolve) =>
    socket.once('close', (code, reason) => resolve([code, String(reason)])),
  );
  socket.send('bye');
  expect(await closed).toEqual([4001, 'as asked']);
});

test('a refused handshake is an ordinary answer', async () => {
  const refused = await new Promise<number>((resolve) => {
    const socket = new WebSocket(`ws://127.0.0.1:${harness.port}/chat/no`);
    socket.on('unexpected-response', (_request, response) => {
      resolve(response.statusCode ?? 0);
      socket.terminate();
    });
    socket.on('error', () => {});
  });
  expect(refused).toBe(403);
});

test('a socket counts as in flight until it ends, and retiring waits for it', async () => {
  const socket = await open('/chat/');
  await until(() => harness.traffic.some(({ slug, inFlight }) => slug === 'chat' && inFlight >= 1));
  const retired = harness.edge.call('retire', { slug: 'chat', generation: 1, timeoutMs: 30_000 });
  socket.send('still here');
  expect(String(await next(socket))).toBe('still here');
  socket.terminate();
  expect(await retired).toEqual({ inFlight: 0 });
});

test('a caller that vanishes takes the handler’s side along', async () => {
  harness.onAcquire = () => ({ socket: workerd.socket, generation: 2 });
  const socket = await open('/chat/');
  socket.terminate();
  await until(() => harness.traffic.at(-1)?.inFlight === 0);
});

test('a handler that speaks first is heard, and hears', async () => {
  const socket = new WebSocket(`ws://127.0.0.1:${harness.port}/chat/greets`);
  expect(String(await next(socket))).toBe('welcome');
  socket.send('thanks');
  expect(String(await next(socket))).toBe('thanks');
  socket.terminate();
});

test('a silent socket ends after the idle limit', async () => {
  const socket = await open('/quiet/');
  const started = Date.now();
  await new Promise((resolve) => socket.once('close', resolve));
  expect(Date.now() - started).toBeGreaterThan(900);
});

test('frames that come with the handshake are not lost', async () => {
  const raw = await rawConnection(harness.port);
  const masked = Buffer.from([0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]);
  raw.socket.write(
    Buffer.concat([
      Buffer.from(
        'GET /chat/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
      ),
      masked,
    ]),
  );
  const received = await raw.seen('\x81\x02hi');
  expect(received).toMatch(/^HTTP\/1\.1 101 Switching Protocols\r\n/);
  expect(received.toLowerCase()).not.toContain('x-charge');
  raw.socket.destroy();
});

test('a paid socket is handed to control, handshake and all', async () => {
  const upgraded = new Promise<string>((resolve) => {
    harness.control.once('upgrade', (request, socket) => {
      resolve(String(request.headers['x-turnpike-context']));
      socket.end('HTTP/1.1 402 Payment Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
    });
  });
  const status = await new Promise<number>((resolve) => {
    const socket = new WebSocket(`ws://127.0.0.1:${harness.port}/paid/live`);
    socket.on('unexpected-response', (_request, response) => {
      resolve(response.statusCode ?? 0);
      socket.terminate();
    });
    socket.on('error', () => {});
  });
  expect(status).toBe(402);
  expect(JSON.parse(Buffer.from(await upgraded, 'base64url').toString())).toMatchObject({
    slug: 'paid',
    tenantPath: '/live',
  });
});
