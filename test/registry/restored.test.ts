/** A registry that came back from a backup: no node runs on it before its operator has said that the other one is gone. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readRestored } from '../../host/registry/payments/restored.ts';
import { postgresClient } from '../../host/registry/postgres/client.ts';
import { openPostgresRegistry, openWithoutNodes } from '../../host/registry/postgres/index.ts';
import { Nodes } from '../../host/registry/postgres/nodes.ts';
import { takeRestored } from '../../host/registry/postgres/restored.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { PostgresServer } from './support/postgres-server.ts';

const LEASE_MS = 1_500;

describe.skipIf(!postgresPrograms())('a copy of the registry', () => {
  let server: PostgresServer;

  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server?.stop());

  test('takes nodes once it is said to be the only one, and knows since when money may have moved', async () => {
    const before = Date.now();
    const node = await openPostgresRegistry(server.create('lost'), { leaseMs: LEASE_MS });
    const names = new Nodes(node.client, node.node);
    await names.join('b', '1', undefined);
    await names.remove('b');
    await node.leases.takeKept();
    const other = await openPostgresRegistry(server.url('lost'), { leaseMs: LEASE_MS });
    await new Nodes(other.client, other.node).join('a', '1', undefined);
    const url = server.load('copy', server.dump('lost'));
    await Promise.all([node.end(), other.end()]);

    await expect(openPostgresRegistry(url)).rejects.toThrow(/is a copy.*turnpike cluster restored/);
    const operator = await openWithoutNodes(url);
    try {
      await expect.poll(() => takeRestored(operator.client), { timeout: 30_000 }).toBeUndefined();
      const marked = await readRestored(operator.db);
      expect(marked?.since).toBeGreaterThan(before - 20_000);
      expect(marked?.since).toBeLessThan(Date.now());
      // Again, and none has run meanwhile: as of the same moment.
      await takeRestored(operator.client);
      expect(await readRestored(operator.db)).toEqual(marked);

      const next = await openPostgresRegistry(url, { leaseMs: LEASE_MS });
      try {
        await expect(takeRestored(operator.client)).rejects.toThrow(/These nodes run/);
        // The name is free again, that of a node that was removed is not.
        const joining = new Nodes(next.client, next.node);
        await joining.join('a', '2', undefined);
        await expect(joining.join('b', '2', undefined)).rejects.toThrow(/was removed/);
        // A process of before that is still there is told that it is none of the nodes.
        expect(await new Nodes(next.client, other.node).asked()).toEqual({ draining: false, removed: true });
      } finally {
        await next.end();
      }
    } finally {
      await operator.close();
    }
  });

  test('a node that runs while its PostgreSQL is replaced by a copy gets no lease there', async () => {
    const node = await openPostgresRegistry(server.create('replaced'), { leaseMs: LEASE_MS });
    try {
      expect(await node.leases.run('money', async () => 'sent')).toBe('sent');
      // As a copy has it under the same address: it says that it is another.
      await node.client.execute("UPDATE settings SET value = 'another' WHERE name = 'cluster:database'");
      const send = () => node.leases.run('money', async () => 'sent twice').catch(String);
      await expect.poll(send).toMatch(/is a copy/);
      expect(node.leases.livesUntil()).toBeUndefined();
    } finally {
      await node.end();
    }
  });

  test('nodes run where the server does not tell which one it is', async () => {
    const url = server.create('managed');
    server.sql('CREATE ROLE plain LOGIN');
    server.sql('ALTER DATABASE managed OWNER TO plain');
    const admin = postgresClient(url);
    await admin.execute('REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC');
    await admin.end();
    const open = () => openPostgresRegistry(url.replace('turnpike@', 'plain@'), { leaseMs: LEASE_MS });
    await (await open()).end();
    const node = await open();
    expect(await node.leases.run('money', async () => 'sent')).toBe('sent');
    const { rows } = await node.client.execute("SELECT value FROM settings WHERE name = 'cluster:database'");
    expect(rows[0]?.value).toMatch(/^\d+$/);
    await node.end();
  });

  test('a PostgreSQL that never had a node is nothing to go on with', async () => {
    const operator = await openWithoutNodes(server.create('empty'));
    try {
      await expect(takeRestored(operator.client)).rejects.toThrow(/No node has run/);
    } finally {
      await operator.close();
    }
  });
});
