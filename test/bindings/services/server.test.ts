/** The socket of a service binding, where callers and callees go away at the wrong moment. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { ServiceDirectory } from '../../../host/bindings/services/directory.ts';
import { servicesServer } from '../../../host/bindings/services/server.ts';
import { Problem } from '../../../host/shared/problem.ts';

const MOST_REQUESTS = 128;
let folder: string;
let callee: Server;
let served: { open(): Promise<void>; close(): Promise<void> };
let visit: () => Promise<void>;
let checks = 0;
let told: string[] = [];
const place = (name: string) => path.join(folder, name);

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'services-'));
  visit = async () => undefined;
  told = [];
  callee = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', (data) => {
      // Handshakes are cut off; requests are answered.
      if (/^upgrade:/im.test(data.toString())) socket.destroy();
      else socket.end('HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi');
    });
  });
  await once(callee.listen(place('callee')), 'listening');
  const directory: ServiceDirectory = {
    check: async () => {
      checks++;
      return { tenant: 'callee', related: true };
    },
    visit: async () => {
      await visit();
      const leaving = new AbortController().signal;
      return { entrySocket: () => place('callee'), systemSocket: place('system'), leaving, during: (work) => work() };
    },
    count: () => undefined,
    refused: (_caller, detail) => void told.push(detail),
  };
  const server = servicesServer({ services: directory } as never);
  const settings = { service: 'callee' };
  served = server?.serve({
    socket: place('caller'),
    tenant: 'caller',
    settings,
    permit: () => undefined,
  } as never) as never;
  await served.open();
});
afterEach(async () => {
  vi.useRealTimers();
  await served.close();
  callee.close();
  rmSync(folder, { recursive: true });
});

function say(text: string): Socket {
  const socket = connect(place('caller'));
  socket.on('error', () => {});
  socket.write(text);
  return socket;
}
const ask = () =>
  new Promise<number | undefined>((resolve, reject) => {
    http
      .get({ socketPath: place('caller'), path: 'http://callee/' }, (answer) => {
        answer.resume();
        resolve(answer.statusCode);
      })
      .on('error', reject);
  });
const HANDSHAKE = 'GET http://callee/ HTTP/1.1\r\nhost: callee\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n';
const REQUEST = 'POST http://callee/ HTTP/1.1\r\nhost: callee\r\ncontent-length: 5\r\n\r\n';

test.each([
  ['a request', REQUEST],
  ['a handshake', HANDSHAKE],
])('%s whose caller has gone before the callee was there takes no place', async (_, text) => {
  const gate = Promise.withResolvers<void>();
  let waiting = 0;
  visit = () => {
    waiting++;
    return gate.promise;
  };
  const callers = Array.from({ length: MOST_REQUESTS }, () => say(text));
  await expect.poll(() => waiting).toBe(MOST_REQUESTS);
  for (const caller of callers) caller.destroy();
  // The server has seen all of them go when it has none but this one's successor.
  await expect.poll(ask).toBe(503);
  gate.resolve();
  visit = async () => undefined;
  await expect.poll(ask).toBe(200);
});

test('a handshake that fails is asked about no more', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  const caller = say(HANDSHAKE);
  const [answer] = (await once(caller, 'data')) as [Buffer];
  expect(answer.toString()).toContain(' 502 ');
  const before = checks;
  await vi.advanceTimersByTimeAsync(10_000);
  expect(checks).toBe(before);
});

test('each reason of a refusal is told once in a second, however often it comes', async () => {
  const reasons = ['one', 'another'];
  let asked = 0;
  visit = async () => {
    throw new Problem('overloaded', reasons[asked++ % 2] ?? '');
  };
  for (let index = 0; index < 6; index++) expect(await ask()).toBe(503);
  expect(told).toEqual(['one', 'another'].map((reason) => `A call of callee was refused: ${reason}`));
});
