/** Files of the edge over every protocol, to callers who take them slowly; no instance is there to ask. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { connect as connectHttp2 } from 'node:http2';
import type { AddressInfo } from 'node:net';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { privateOf } from '../bench/processes.ts';
import { type Harness, listening, route, startHarness } from './edge/harness.ts';
import { selfSigned } from './support/authority.ts';
import { until } from './support/until.ts';

const SITE = 'site.test';
const MIB = 1_048_576;
const TABLE = `${'b'.repeat(64)}.${'c'.repeat(16)}`;
const contents: Record<string, Buffer> = {
  '/small': randomBytes(10_240),
  '/kept': randomBytes(MIB),
  '/large': randomBytes(6 * MIB),
  ...Object.fromEntries(Array.from({ length: 80 }, (_, index) => [`/m${index}`, Buffer.alloc(2 * MIB, `${index} `)])),
};

let folder: string;
let harness: Harness;
let secure: number;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'edge-files-'));
  const pair = { cert: path.join(folder, 'tls.crt'), key: path.join(folder, 'tls.key') };
  selfSigned([SITE], pair);
  for (const name of ['files', 'tables']) await mkdir(path.join(folder, name));
  const paths: Record<string, [string, number]> = {};
  for (const [name, content] of Object.entries(contents)) {
    const hash = createHash('sha256').update(content).digest('hex');
    paths[name] = [hash, 0];
    await writeFile(path.join(folder, 'files', hash), content);
  }
  await writeFile(path.join(folder, 'tables', TABLE), JSON.stringify({ fields: [{ lines: '', coded: false }], paths }));
  harness = await startHarness({ tls: { mode: 'files', certificates: [{ names: [SITE], ...pair }] } });
  harness.onAcquire = () => Promise.reject(new Error('nothing may start'));
  await harness.edge.call('setRoutes', [route('site', { domains: [SITE], files: { folder, table: TABLE } })]);
  const server = await listening();
  await harness.edge.call('listen', { kind: 'https' }, server);
  secure = (server.address() as AddressInfo).port;
  server.close();
});
afterAll(async () => {
  await harness?.close();
  await rm(folder, { recursive: true, force: true });
});

const descriptors = async () => (await readdir(`/proc/${harness.process.pid}/fd`)).length;

function session() {
  const opened = connectHttp2(`https://${SITE}:${secure}`, {
    createConnection: () =>
      connectTls({
        host: '127.0.0.1',
        port: secure,
        servername: SITE,
        ALPNProtocols: ['h2'],
        rejectUnauthorized: false,
      }),
  });
  opened.on('error', () => {});
  return opened;
}

it('over HTTP/2, many at once, some of which are given up', async () => {
  const client = session();
  const get = async (target: string, headers = {}) => {
    const stream = client.request({ ':path': target, ...headers });
    const answered = once(stream, 'response') as Promise<[Record<string, unknown>]>;
    const pieces: Buffer[] = [];
    stream.on('data', (piece: Buffer) => pieces.push(piece));
    const [[head]] = await Promise.all([answered, once(stream, 'end')]);
    return { head, body: Buffer.concat(pieces) };
  };
  // Their session's window is soon full.
  const other = session();
  for (let i = 0; i < 10; i++) other.request({ ':path': '/large' }).on('error', () => {});
  const names = ['/small', '/kept', '/large', '/small', '/kept', '/large'];
  const answers = await Promise.all(names.map((name) => get(name)));
  for (const [index, name] of names.entries())
    expect(answers[index]?.body.equals(contents[name] ?? Buffer.alloc(0)), name).toBe(true);
  other.destroy();
  const part = await get('/large', { range: 'bytes=5000000-' });
  expect([part.head[':status'], part.body.equals(contents['/large']?.subarray(5_000_000) ?? Buffer.alloc(0))]).toEqual([
    206,
    true,
  ]);
  const same = await get('/small', { 'if-none-match': String(answers[0]?.head.etag) });
  expect([same.head[':status'], same.body.length]).toEqual([304, 0]);
  client.destroy();
});

it('over TLS with HTTP/1.1', async () => {
  const socket = connectTls({ host: '127.0.0.1', port: secure, servername: SITE, rejectUnauthorized: false });
  socket.write(`GET /large HTTP/1.1\r\nhost: ${SITE}\r\nconnection: close\r\n\r\n`);
  const pieces: Buffer[] = [];
  for await (const piece of socket) pieces.push(piece as Buffer);
  const all = Buffer.concat(pieces);
  expect(all.subarray(all.indexOf('\r\n\r\n') + 4).equals(contents['/large'] ?? Buffer.alloc(0))).toBe(true);
});

it('to a caller who reads slowly, one after the other, all and in part', async () => {
  const wanted = ['/kept', '/m3', '/large', '/kept', '/small', '/m3'];
  const ranges: [name: string, from: number, to: number][] = [
    ['/m3', 70_001, 1_900_000],
    ['/kept', 1, MIB - 2],
  ];
  const socket = net.connect(harness.port, '127.0.0.1');
  for (const name of wanted) socket.write(`GET ${name} HTTP/1.1\r\nhost: ${SITE}\r\n\r\n`);
  for (const [name, from, to] of ranges)
    socket.write(`GET ${name} HTTP/1.1\r\nhost: ${SITE}\r\nrange: bytes=${from}-${to}\r\n\r\n`);
  socket.write(`GET /small HTTP/1.1\r\nhost: ${SITE}\r\nconnection: close\r\n\r\n`);
  const pieces: Buffer[] = [];
  for await (const piece of socket) {
    pieces.push(piece as Buffer);
    // The kernel's buffers are full by then, again and again.
    if (pieces.length % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  }
  let all = Buffer.concat(pieces);
  const bodies = [
    ...wanted.map((name) => contents[name]),
    ...ranges.map(([name, from, to]) => contents[name]?.subarray(from, to + 1)),
  ];
  for (const body of bodies) {
    const start = all.indexOf('\r\n\r\n') + 4;
    const length = Number(/content-length: (\d+)/i.exec(all.toString('latin1', 0, start))?.[1]);
    expect(all.subarray(start, start + length).equals(body ?? Buffer.alloc(0))).toBe(true);
    all = all.subarray(start + length);
  }
});

it('callers who read nothing take neither memory without end nor descriptors for long', async () => {
  const before = { files: await descriptors(), memory: privateOf(harness.process.pid ?? 0) };
  const slow = Array.from({ length: 400 }, (_, index) => {
    const socket = net.connect(harness.port, '127.0.0.1').on('error', () => {});
    socket.pause();
    socket.write(`GET /${index % 5 === 0 ? 'large' : `m${index % 80}`} HTTP/1.1\r\nhost: ${SITE}\r\n\r\n`);
    return socket;
  });
  await until(() => harness.traffic.reduce((sum, { requests }) => sum + requests, 0) >= 400);
  expect(privateOf(harness.process.pid ?? 0) - before.memory).toBeLessThan(300 * MIB);
  const quick = await fetch(`${harness.origin}/site/small`);
  expect(Buffer.from(await quick.arrayBuffer()).equals(contents['/small'] ?? Buffer.alloc(0))).toBe(true);
  for (const socket of slow) socket.resetAndDestroy();
  // Those in memory stay open for half a minute: 64 MiB of them.
  await until(async () => (await descriptors()) <= before.files + 8 + 32);
  await until(() => harness.traffic.at(-1)?.inFlight === 0);
  expect(harness.acquired).toEqual([]);
});
