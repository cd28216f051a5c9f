/** Another cluster.key: what nodes with the one before know, what they may not write, and a rotation that is killed. */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { keyFilesOfNodes, sealAnew } from '../../host/registry/key-file.ts';
import { openPostgresRegistry, openWithoutNodes } from '../../host/registry/postgres/index.ts';
import { Client } from '../../host/shared/pg.ts';
import { Servers } from '../../host/shared/postgres-servers.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { PostgresServer } from './support/postgres-server.ts';

const CHILD = fileURLToPath(new URL('support/cluster-key-child.ts', import.meta.url));
const [OLD, NEW] = ['o'.repeat(32), 'n'.repeat(32)];

describe.skipIf(!postgresPrograms())('rotation of cluster.key', () => {
  let server: PostgresServer;
  let folder: string;

  beforeAll(async () => {
    server = await PostgresServer.start();
    folder = mkdtempSync(path.join(tmpdir(), 'tp-key-'));
  });
  afterAll(async () => {
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  test('killed in the middle it has changed nothing; then it changes all, and nodes with the old key go on', async () => {
    const url = server.create('rotated');
    const node = await openPostgresRegistry(url);
    const operator = await openWithoutNodes(url);
    const rows = new Client({
      application_name: 'test',
      servers: new Servers(url),
      connectionTimeoutMillis: 5_000,
      query_timeout: 30_000,
    });
    await rows.connect();
    try {
      const before = await keyFilesOfNodes(node, OLD, folder);
      await before('secrets.key').add('of tenants');
      await before('payments.key').add('of payments');
      const payments = before('payments.key');
      expect(await payments.read()).toBe('of payments');

      // The last row that it seals is held by another.
      await rows.query("BEGIN; SELECT 1 FROM settings WHERE name = 'key:secrets.key' FOR UPDATE");
      const child = fork(CHILD, [url, OLD, NEW]);
      await once(child, 'message');
      const waiting = async () => {
        const { rows: found } = await operator.client.execute(
          "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE settings%'",
        );
        return found.length;
      };
      await expect.poll(waiting).toBe(1);
      child.kill('SIGKILL');
      await once(child, 'exit');
      await rows.query('ROLLBACK');
      const unchanged = await keyFilesOfNodes(operator, OLD, folder);
      expect(await unchanged('secrets.key').read()).toBe('of tenants');

      await expect(sealAnew(operator, NEW.replace('n', 'm'), NEW)).rejects.toThrow(/cluster.key is another/);
      expect(await sealAnew(operator, OLD, NEW)).toBe(3);
      expect(await sealAnew(operator, OLD, NEW)).toBe(0);
      await expect(keyFilesOfNodes(operator, OLD, folder)).rejects.toThrow(/cluster.key is another/);
      const after = await keyFilesOfNodes(operator, NEW, folder);
      expect(await after('secrets.key').read()).toBe('of tenants');

      // What it has read it has; what it has not, it cannot open, and it seals nothing.
      expect(await payments.read()).toBe('of payments');
      await expect(before('secrets.key').read()).rejects.toThrow(/cluster.key is another/);
      await expect(payments.replace('of nobody')).rejects.toThrow(/cluster.key is another/);
      await expect(before('other').add('of nobody')).rejects.toThrow(/cluster.key is another/);
      expect(await after('payments.key').read()).toBe('of payments');
      await after('payments.key').replace('of payments, anew');
      await expect(payments.read()).rejects.toThrow(/cluster.key is another/);
    } finally {
      await rows.end();
      await Promise.all([node.end(), operator.close()]);
    }
  });
});
