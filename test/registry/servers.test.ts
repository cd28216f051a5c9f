/** A PostgreSQL that is gone: one that vanishes without a word, and one whose standby takes over. */
import { once } from 'node:events';
import { createServer, connect as dial, type Server, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { postgresClient } from '../../host/registry/postgres/client.ts';
import { openPostgresRegistry } from '../../host/registry/postgres/index.ts';
import { openPool } from '../../host/shared/pg.ts';
import { serverUrls } from '../../host/shared/postgres-servers.ts';
import { asProblem } from '../../host/shared/problem.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { freePort } from '../e2e/support/ports.ts';
import { expectTime } from '../times.ts';
import { PostgresServer } from './support/postgres-server.ts';

/** Longer than the server that vanished is given for an answer, ms. */
const ANSWER_MS = 500;

test('addresses of several servers are those of libpq', () => {
  expect(serverUrls('postgres://u:p%2C@one:1,[::2]:2,three/d?sslmode=verify-full')).toEqual([
    'postgres://u:p%2C@one:1/d?sslmode=verify-full',
    'postgres://u:p%2C@[::2]:2/d?sslmode=verify-full',
    'postgres://u:p%2C@three/d?sslmode=verify-full',
  ]);
  for (const one of ['postgres://u@h/a,b', 'postgres://h?host=/tmp', '']) expect(serverUrls(one)).toEqual([one]);
});

describe.skipIf(!postgresPrograms())('a server that vanishes', () => {
  let server: PostgresServer;
  let relay: Server;
  let port: number;
  let url: string;
  const sockets = new Set<Socket>();
  let isGone = false;

  beforeAll(async () => {
    const tcp = { host: '127.0.0.1', port: await freePort() };
    server = await PostgresServer.start({ tcp });
    server.create('host');
    // As a network that is cut: nothing is refused, and nothing arrives.
    relay = createServer((from) => {
      const to = dial(tcp);
      for (const [one, other] of [
        [from, to],
        [to, from],
      ] as const) {
        sockets.add(one);
        one.on('data', (bytes) => isGone || other.write(bytes));
        one.on('error', () => undefined);
        one.once('close', () => isGone || other.destroy());
      }
    });
    await once(relay.listen(0, '127.0.0.1'), 'listening');
    port = (relay.address() as { port: number }).port;
    url = `postgres://turnpike@127.0.0.1:${port}/host`;
  }, 60_000);
  afterAll(async () => {
    for (const socket of sockets) socket.destroy();
    relay.close();
    await server.stop();
  });

  test('is given up, and so are those who wait for its connections; back again, it is used', async () => {
    const pool = openPool(
      { connectionString: url, max: 1, connectionTimeoutMillis: 4 * ANSWER_MS, query_timeout: ANSWER_MS },
      'SET lock_timeout = 1000',
    );
    const one = { text: 'SELECT 1 AS one' };
    await pool.query(one);
    isGone = true;
    const outcomes = await Promise.allSettled(Array.from({ length: 3 }, () => pool.query(one)));
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    isGone = false;
    expect((await pool.query(one)).rows).toEqual([{ one: 1 }]);
    isGone = true;
    const since = performance.now();
    await pool.end();
    expectTime('the end of a pool whose server is gone', performance.now() - since, 4_000);
    isGone = false;
  });

  test('does not hold up the end of a node that was cut off', async () => {
    const registry = await openPostgresRegistry(url, { leaseMs: 1_200 });
    isGone = true;
    await expect.poll(() => registry.leases.livesUntil()).toBeUndefined();
    isGone = false;
    await expect.poll(() => registry.leases.livesUntil()).toBeDefined();
    await registry.end();
  });
});

describe.skipIf(!postgresPrograms())('a server and its standby', () => {
  test('what was acknowledged before the server died is there once the standby has taken over', async () => {
    const [first, second] = [
      { host: '127.0.0.1', port: await freePort() },
      { host: '127.0.0.1', port: await freePort() },
    ];
    const primary = await PostgresServer.start({ tcp: first });
    const standby = await primary.standby({ tcp: second });
    primary.create('host');
    // Whoever asks the standby first is sent on.
    const url = `postgres://turnpike@127.0.0.1:${second.port},127.0.0.1:${first.port}/host`;
    const registry = await openPostgresRegistry(url);
    try {
      const put = (name: string) =>
        registry.client.execute('INSERT INTO settings (name, value) VALUES (?, ?)', [name, 'x']);
      const acknowledged: string[] = [];
      let promotedAt = Number.POSITIVE_INFINITY;
      let after = 0;
      const writers = Array.from({ length: 4 }, async (_, lane) => {
        for (let at = 0; after < 50; at++) {
          const name = `${lane} ${at}`;
          try {
            await put(name);
            acknowledged.push(name);
            if (performance.now() > promotedAt && after++ === 0)
              console.info(`written again ${Math.round(performance.now() - promotedAt)} ms after the promotion`);
          } catch {
            // The next one has another name: this one may be there.
          }
        }
      });
      await expect.poll(() => acknowledged.length).toBeGreaterThan(100);
      await primary.kill();
      await expect(put('nowhere')).rejects.toThrow();
      promotedAt = performance.now();
      standby.promote();
      await Promise.all(writers);
      const { rows } = await registry.client.execute('SELECT name FROM settings');
      const kept = new Set(rows.map(({ name }) => name));
      expect(acknowledged.filter((name) => !kept.has(name))).toEqual([]);
    } finally {
      await registry.end();
      await Promise.all([standby.stop(), primary.stop()]);
    }
  });
});

describe.skipIf(!postgresPrograms())('a server that ends', () => {
  test('is told to callers as a database that is away; what it refuses is not', async () => {
    const server = await PostgresServer.start();
    const client = postgresClient(server.create('host'));
    const codeOf = (work: Promise<unknown>) =>
      work.then(
        () => undefined,
        (error) => asProblem(error).code,
      );
    expect(await codeOf(client.execute('SELECT 1'))).toBeUndefined();
    expect(await codeOf(client.execute('SELECT wrong'))).toBe('internal');
    expect(await codeOf(client.execute('SELECT pg_terminate_backend(pg_backend_pid())'))).toBe('database_away');
    await server.kill();
    const lost = await client.execute('SELECT 1').catch((error: Error) => error);
    expect(asProblem(lost)).toMatchObject({ code: 'database_away', status: 503, isFault: true });
    expect(asProblem(new Error('a statement failed', { cause: lost })).headers).toEqual({ 'retry-after': '5' });
    await client.end();
    await server.stop();
  });
});
