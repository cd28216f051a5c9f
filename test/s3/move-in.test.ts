/** A box that moves into PostgreSQL and a bucket: what is refused, what is compared, and a move that breaks off. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Act, Audit } from '../../host/registry/audit.ts';
import { Deployments } from '../../host/registry/deployments.ts';
import { openRegistry, type Registry } from '../../host/registry/index.ts';
import { openPostgresRegistry } from '../../host/registry/postgres/index.ts';
import { moveIn } from '../../host/registry/postgres/move-in.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { loadConfig } from '../../host/supervisor/configuration.ts';
import { moveBoxIn } from '../../host/supervisor/moving-in.ts';
import { newDeployment } from '../registry/support/new-deployment.ts';
import { deliver, paymentsOn } from '../registry/support/paying.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { s3Settings } from './radosgw.ts';

const PAYMENTS = 50;
const ACT: Act = { act: 'POST /blocks', subject: null, parameters: {}, reason: null, address: 'socket' };
const NO_BINDINGS = { kv: false, d1: false, r2: false, payments: false };

describe('moving in', () => {
  let server: PostgresServer;
  let url: string;
  let folder: string;
  let box: Registry;
  let databases = 0;

  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    url = server.create(`moved${++databases}`);
    folder = mkdtempSync(path.join(tmpdir(), 'tp-move-'));
    box = await openRegistry(path.join(folder, 'registry.db'));
  });
  afterEach(async () => {
    await box.close();
    rmSync(folder, { recursive: true });
  });

  const move = () => {
    const { endpoint, bucket, accessKey, secretKey } = s3Settings(`moved${databases}`);
    return moveBoxIn(
      loadConfig({
        folder,
        env: {
          TURNPIKE_CLUSTER_DATABASE: url,
          TURNPIKE_CLUSTER_KEY: 'k'.repeat(32),
          TURNPIKE_CLUSTER_STORAGE_ENDPOINT: endpoint,
          TURNPIKE_CLUSTER_STORAGE_BUCKET: bucket,
          TURNPIKE_CLUSTER_STORAGE_ACCESS_KEY: accessKey,
          TURNPIKE_CLUSTER_STORAGE_SECRET_KEY: secretKey,
          TURNPIKE_PUBLIC_URL: 'https://example.com',
          TURNPIKE_PAYMENTS_NETWORK: 'none',
          TURNPIKE_BUILTIN_TENANTS_ENABLED: '',
        },
        flags: [],
      }),
      folder,
    );
  };

  test('a deployment that keeps data on one node is named, and all stays as it is', async () => {
    const settings = { bindings: { ...NO_BINDINGS, kv: true } };
    await new Deployments(box.db).create(newDeployment({ slug: 'keeper', settings }), 0);
    await expect(move()).rejects.toThrow(/one node.*: keeper\./);
    expect(existsSync(path.join(folder, 'registry.db'))).toBe(true);
  });

  test('one that breaks off changes nothing, and the next has every row; ids go on after the last', async () => {
    const deployments = new Deployments(box.db);
    const secrets = [{ name: 'KEY', keyId: 'k1', sealed: Buffer.from([0, 1, 255]).toString('base64') }];
    await deployments.create(newDeployment({ slug: 'first', secrets }), 0);
    const store = paymentsOn(box);
    for (let at = 0; at < PAYMENTS; at++) await deliver(store, `credential ${at}`, {});
    await new Audit(box.db, new AdjustableClock()).begin(ACT);

    const node = await openPostgresRegistry(url);
    try {
      const broken = moveIn(box.client, node.client, async () => {
        throw new Error('the power went');
      });
      await expect(broken).rejects.toThrow('the power went');
      expect((await node.client.execute('SELECT 1 FROM payments')).rows).toEqual([]);
    } finally {
      await node.end();
    }

    const { rows, registry } = await move();
    expect(rows).toMatchObject({ deployments: 1, payments: PAYMENTS, secrets: 1, audit: 1 });
    expect([existsSync(path.join(folder, 'registry.db')), existsSync(registry)]).toEqual([false, true]);
    await expect(move()).rejects.toThrow(/holds a host already/);

    const moved = await openPostgresRegistry(url);
    try {
      for (const table of ['ledger', 'payments', 'secrets', 'versions', 'settings']) {
        // Those of nodes were made for the move.
        const moving = table === 'settings' ? "WHERE name NOT LIKE 'key:%' AND name NOT LIKE 'cluster:%'" : '';
        const sql = `SELECT * FROM ${table} ${moving}`;
        const there = (await moved.client.execute(sql)).rows.map((row) => JSON.stringify(Object.values(row))).sort();
        const here = (await box.client.execute(sql)).rows.map((row) => JSON.stringify(Object.values(row))).sort();
        expect(there, table).toEqual(here);
      }
      await new Audit(moved.db, new AdjustableClock()).begin(ACT);
      expect((await moved.client.execute('SELECT id FROM audit ORDER BY id')).rows.map(({ id }) => id)).toEqual([1, 2]);
    } finally {
      await moved.end();
    }
  });
});
