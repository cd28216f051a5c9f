/** The way to databases against servers, zones and handlers that do what no library would. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Notices } from '../../host/egress/notices.ts';
import { TenantProxy } from '../../host/egress/proxy.ts';
import { CheckedResolver } from '../../host/egress/resolver.ts';
import { Authorities } from '../../host/egress/secure.ts';
import type { EgressTenant } from '../../host/shared/contracts.ts';
import { type DnsServer, startDns } from './support/dns-server.ts';
import { until } from './support/until.ts';

const int32 = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
};
const message = (type: string, body: Buffer | string = '') => {
  const bytes = Buffer.from(body);
  return Buffer.concat([Buffer.from(type), int32(bytes.length + 4), bytes]);
};
const startup = (...settings: string[]) => {
  const body = Buffer.from(`${['user', 'u', 'database', 'd', ...settings].join('\0')}\0\0`);
  return Buffer.concat([int32(body.length + 8), int32(196_608), body]);
};
/** What a server says that lets everybody in. */
const WELCOME = Buffer.concat([message('R', int32(0)), message('K', 'key 0001'), message('Z', 'I')]);
const QUERY = message('Q', 'SELECT 1\0');
const LEAVE = message('X');

let folder: string;
let dns: DnsServer;
let addresses: string[];
let database: Server;
/** What the server does with a connection, and what it was told on all of them. */
let serve: (socket: Socket) => void;
let connected: number;
let standing: Set<Socket>;
let mostStanding: number;
let heard: string;
let proxy: TenantProxy;
let settings: EgressTenant;

const port = () => (database.address() as AddressInfo).port;
const url = (host: string) => `postgres://u:very-secret@${host}:${port()}/d?sslmode=disable`;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tp-db-'));
  addresses = ['127.0.0.1'];
  connected = 0;
  mostStanding = 0;
  heard = '';
  standing = new Set();
  dns = await startDns((name, type) => (type === 'A' && name === 'db.test' ? addresses : []));
  serve = (socket) => socket.write(WELCOME).valueOf();
  database = createServer((socket) => {
    connected += 1;
    standing.add(socket);
    mostStanding = Math.max(mostStanding, standing.size);
    socket.on('error', () => undefined).on('close', () => standing.delete(socket));
    socket.on('data', (bytes) => {
      heard += bytes.toString('latin1');
      // Every query is answered; the first message is the client's start.
      if (bytes[0] === 0x51) socket.write(Buffer.concat([message('C', 'OK\0'), message('Z', 'I')]));
    });
    socket.once('data', () => serve(socket));
  }).listen(0, '127.0.0.1');
  await once(database, 'listening');
  settings = {
    tenant: 't00000000000000000001',
    slug: 'hello',
    socket: join(folder, 'egress.sock'),
    allow: [`localhost:${port()}`],
    limits: { inFlight: 2, bytesPerHour: 1e9, timeoutMs: 1_000 },
    databases: {
      connections: 3,
      sockets: [
        { socket: join(folder, 'db.sock'), secret: 'DB', url: url('localhost') },
        { socket: join(folder, 'name.sock'), secret: 'NAME', url: url('db.test').replace('?sslmode=disable', '') },
        { socket: join(folder, 'none.sock'), secret: 'NONE', url: undefined },
        { socket: join(folder, 'my.sock'), secret: 'MY', url: url('localhost').replace('postgres', 'mysql') },
      ],
    },
  };
  proxy = new TenantProxy(settings, {
    surroundings: {
      ownHosts: ['api.test'],
      baseDomain: 'tenants.test',
      edgeAddress: { host: '127.0.0.1', port: 1 },
      edgeTlsAddress: undefined,
      connectPorts: undefined,
    },
    resolver: new CheckedResolver([dns.address]),
    notices: new Notices(() => {}),
    authorities: new Authorities(undefined),
    finished: () => {},
    failed: () => {},
  });
  await proxy.listen();
});

afterEach(async () => {
  await proxy.close();
  database.close();
  dns.stop();
  await rm(folder, { recursive: true });
});

/** @returns all that is answered until the end of the connection */
function say(name: string, ...parts: Buffer[]): Promise<string> {
  return new Promise((resolve) => {
    const client = connect(join(folder, name));
    let answered = '';
    client.setTimeout(30_000, () => client.destroy());
    client
      .on('error', () => undefined)
      .on('data', (bytes) => {
        answered += bytes.toString('latin1');
      });
    client.on('close', () => resolve(answered));
    client.write(Buffer.concat(parts));
  });
}

/** A client that has what it asked for, and stays. */
async function stay(name = 'db.sock'): Promise<Socket> {
  const client = connect(join(folder, name)).on('error', () => undefined);
  client.write(startup());
  await once(client, 'data');
  return client;
}

test('a server that never stops talking before it is ready is given up', async () => {
  serve = (socket) => {
    const chunk = Buffer.concat(Array.from({ length: 200 }, () => message('N', 'notice '.repeat(100))));
    const more = () => {
      while (!socket.destroyed && socket.write(chunk));
    };
    socket.on('drain', more);
    more();
  };
  expect(await say('db.sock', startup())).toMatch(/says too much before it is ready/);
  serve = (socket) => socket.write(message('R', int32(0)).fill(0x7f, 1, 5));
  expect(await say('db.sock', startup())).toMatch(/no PostgreSQL server/);
  serve = (socket) => socket.write(message('Z', 'I'));
  expect(await say('db.sock', startup())).toMatch(/out of order/);
  serve = (socket) => socket.destroy();
  expect(await say('db.sock', startup())).toMatch(/the database closed the connection/);
  await until(() => (standing.size === 0 ? true : undefined));
});

test('a server of MySQL that does is, too', async () => {
  // It speaks first; the client of the other protocol is what makes it do so here.
  database.on('connection', (socket) => socket.write(Buffer.from('ffffff0a', 'hex')));
  expect(await say('my.sock', Buffer.alloc(4))).toMatch(/no MySQL server/);
  database.removeAllListeners('connection');
  database.on(
    'connection',
    (socket) => socket.write(Buffer.from('1f0000000a382e30', 'hex')).valueOf() && socket.end(Buffer.alloc(40)),
  );
  expect(await say('my.sock', Buffer.alloc(4))).toMatch(/no MySQL server/);
});

test('a client has its own words to the server, and nobody else’s connection', async () => {
  const client = await stay();
  client.write(QUERY);
  const [answer] = await once(client, 'data');
  expect(String(answer)).toContain('OK');
  client.write(Buffer.concat([LEAVE, QUERY]));
  await until(() => (heard.includes('DISCARD ALL') ? true : undefined));
  expect(heard).not.toContain('X\0\0\0\x04');
  // Who wants other settings gets a connection of its own.
  await until(async () => {
    await say('db.sock', startup(), LEAVE);
    return heard.split('DISCARD ALL').length > 2 ? true : undefined;
  });
  const before = connected;
  await say('db.sock', startup('application_name', 'a'), LEAVE);
  expect(connected).toBe(before + 1);
});

test('a client that leaves in the middle takes its connection with it', async () => {
  const client = await stay();
  client.end(QUERY.subarray(0, 8));
  await until(() => (standing.size === 0 ? true : undefined));
  expect(heard).not.toContain('DISCARD ALL');
});

test('what a client says first is bounded, and no protocol of its own', async () => {
  expect(await say('db.sock', Buffer.concat([int32(60_000), int32(196_608)]))).toMatch(/does not speak its protocol/);
  expect(await say('db.sock', Buffer.from('GET / HTTP/1.1\r\n\r\n'))).toMatch(/does not speak its protocol/);
  const asks = Buffer.concat(Array.from({ length: 5 }, () => Buffer.concat([int32(8), int32(80_877_103)])));
  expect(await say('db.sock', asks)).toMatch(/^NNNN.*does not speak its protocol/s);
  // A key that no client of it has cancels nothing.
  expect(await say('db.sock', Buffer.concat([int32(16), int32(80_877_102), Buffer.from('key 9999')]))).toBe('');
  expect(connected).toBe(0);
  expect(await say('none.sock', startup())).toMatch(/The secret NONE is not set/);
});

test('a query is cancelled by the key of its client', async () => {
  const client = await stay();
  await say('db.sock', Buffer.concat([int32(16), int32(80_877_102), Buffer.from('key 0001')]));
  expect(heard).toContain('\x04\xd2\x16.key 0001');
  client.destroy();
});

test('thousands of clients have the connections of one tenant, and no more', async () => {
  let gone = 0;
  const clients = Array.from({ length: 2_000 }, () => {
    const client = connect(join(folder, 'db.sock')).on('error', () => undefined);
    client.on('close', () => (gone += 1)).write(startup());
    return client.resume();
  });
  // Three have a connection, ten for each wait, and the others are sent away at once.
  await until(
    () => (gone >= clients.length - 33 ? true : undefined),
    () => `${gone} are gone`,
  );
  expect(mostStanding).toBe(3);
  for (const client of clients) client.destroy();
  await until(async () => ((await say('db.sock', startup(), LEAVE)).includes('key 0001') ? true : undefined));
});

test('a name that leads to a private address is refused, also once it did not', async () => {
  expect(await say('name.sock', startup())).toMatch(/may not be reached from here: its address is loopback/);
  addresses = ['10.1.2.3'];
  expect(await say('name.sock', startup())).toMatch(/its address is private/);
  expect(connected).toBe(0);
});

test('what the operator takes back is closed, kept connections, too', async () => {
  await say('db.sock', startup(), LEAVE);
  await until(() => (heard.includes('DISCARD ALL') ? true : undefined));
  await proxy.update({ ...settings, allow: [] });
  await until(() => (standing.size === 0 ? true : undefined));
  const before = connected;
  expect(await say('db.sock', startup())).toMatch(/may not be reached from here/);
  expect(connected).toBe(before);
});

test('silence ends a connection, and the secret is in no answer', async () => {
  const client = await stay();
  const ended = once(client, 'close');
  client.resume();
  await ended;
  await proxy.update({
    ...settings,
    databases: {
      connections: 3,
      sockets: [{ socket: join(folder, 'db.sock'), secret: 'DB', url: 'postgres://u:very-secret@/' }],
    },
  });
  const told = await say('db.sock', startup());
  expect(told).toMatch(/The secret DB is no connection string/);
  expect(told).not.toContain('very-secret');
  await expect(say('name.sock', startup())).resolves.toBe('');
});
