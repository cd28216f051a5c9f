/** What a server of the supervisor writes of an answer whose body is at hand, and of one whose body comes in pieces. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { wholeAnswer } from '../../host/shared/whole-answer.ts';
import { type RunningServer, serve } from '../../host/supervisor/server.ts';

const BODY = new Uint8Array([104, 0, 255]);
const HEADERS: [string, string][] = [
  ['content-length', '3'],
  ['set-cookie', 'a=1'],
  ['set-cookie', 'b=2'],
];

let folder: string;
let server: RunningServer;
let socket: string;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tp-server-'));
  socket = path.join(folder, 'a.sock');
  server = await serve(answerTo, { socket });
});
afterEach(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

function answerTo(request: Request): Response {
  switch (new URL(request.url).pathname) {
    case '/whole':
      return wholeAnswer(BODY, { status: 201, headers: HEADERS });
    case '/none':
      return wholeAnswer(new Uint8Array(), { status: 204 });
    default:
      return new Response(new ReadableStream({ pull: (body) => body.error(new Error('broken off')) }));
  }
}

/** All that the server sends until it closes the connection. */
async function sentTo(method: string, target: string): Promise<string> {
  const connection = net.connect(socket);
  connection.write(`${method} ${target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n`);
  let sent = '';
  connection.on('data', (chunk) => {
    sent += chunk.toString('latin1');
  });
  await once(connection, 'close');
  return sent.replace(/^Date: .*\r\n/m, '');
}

const FIELDS = 'content-length: 3\r\nset-cookie: a=1\r\nset-cookie: b=2\r\nConnection: close\r\n\r\n';

test('a body at hand is sent as it is, with no field that the answer does not have', async () => {
  expect(await sentTo('GET', '/whole')).toBe(`HTTP/1.1 201 Created\r\n${FIELDS}h\0\xff`);
  expect(await sentTo('HEAD', '/whole')).toBe(`HTTP/1.1 201 Created\r\n${FIELDS}`);
  expect(await sentTo('GET', '/none')).toBe('HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n');
});

test('a body that breaks off is not ended properly', async () => {
  expect(await sentTo('GET', '/broken')).not.toMatch(/\r\n0\r\n\r\n$|content-length/i);
});
