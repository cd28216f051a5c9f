/** A cluster that is closed for a move: who lives keeps it open, who was cut off comes back to nothing, and nobody starts. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { close, readClosed, reopen } from '../../host/registry/postgres/closed.ts';
import { openPostgresRegistry, openWithoutNodes } from '../../host/registry/postgres/index.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { PostgresServer } from './support/postgres-server.ts';

const LEASE_MS = 1_500;
const OUT = { why: 'moving out', move: 'a' } as const;

describe.skipIf(!postgresPrograms())('a closed cluster', () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server?.stop());

  test('a node that comes back takes no lease, and writes nothing under one', async () => {
    const url = server.create('closed');
    const node = await openPostgresRegistry(url, { leaseMs: LEASE_MS });
    const operator = await openWithoutNodes(url);
    try {
      await expect(close(operator.client, OUT)).rejects.toThrow(/These nodes run/);
      const worked: string[] = [];
      const write = (name: string) =>
        node.leases.run('money', async () => {
          await node.client.execute("INSERT INTO settings (name, value) VALUES (?, 'x')", [name]);
          worked.push(name);
        });
      await write('before');

      // As if it had been cut off for long: all leases have ended, and the move begins.
      const transaction = await operator.client.transaction('write');
      await transaction.execute('UPDATE leases SET valid_until = 0');
      await transaction.execute({
        sql: "INSERT INTO settings (name, value) VALUES ('cluster:closed', ?)",
        args: [JSON.stringify(OUT)],
      });
      await transaction.commit();

      await expect.poll(() => node.leases.livesUntil()).toBeUndefined();
      // What it thinks it holds does not count any more, and it gets nothing.
      await expect(write('after')).rejects.toThrow(/closed|lease/i);
      expect(worked).toEqual(['before']);
      await expect(openPostgresRegistry(url)).rejects.toThrow(/being moved out/);

      await close(operator.client, OUT);
      await expect(close(operator.client, { ...OUT, move: 'b' })).rejects.toThrow(/being moved out/);
      await reopen(operator.client);
      expect(await readClosed(operator.client)).toBeUndefined();
      await expect.poll(() => node.leases.livesUntil()).toBeGreaterThan(0);
      await write('again');
      expect(worked).toEqual(['before', 'again']);
    } finally {
      await Promise.all([node.end(), operator.close()]);
    }
  });

  test('a move that another operator gave up does not end, though the node that ran meanwhile has stopped', async () => {
    const url = server.create('given-up');
    const [mover, other] = [await openWithoutNodes(url), await openWithoutNodes(url)];
    try {
      await close(mover.client, OUT);
      await reopen(other.client);
      const node = await openPostgresRegistry(url, { leaseMs: LEASE_MS });
      await node.end();
      await expect(close(mover.client, { ...OUT, why: 'moved out', moved: {} })).rejects.toThrow(/was given up/);
      expect(await readClosed(mover.client)).toBeUndefined();
      await close(mover.client, OUT);
      await close(mover.client, { ...OUT, why: 'moved out', moved: {} });
      await expect(reopen(other.client)).rejects.toThrow(/not being moved out/);
    } finally {
      await Promise.all([mover.close(), other.close()]);
    }
  });
});
