/** Durable Objects and queues of one slug on two nodes: workerd's cluster mode in the sandbox, on a real PostgreSQL. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BucketGateway } from '../../host/bindings/objects-bucket/gateway.ts';
import { BucketRecords } from '../../host/bindings/objects-bucket/records.ts';
import { DiskBlobs } from '../../host/bindings/store-process/blobs/disk.ts';
import { type PgTestPool, pgPool } from '../bindings/objects-bucket/support/pg-pool.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { RuntimeRig } from './runtime-rig.ts';
import { postgresPrograms } from './support/databases.ts';

const CODE = `
import { DurableObject } from 'cloudflare:workers';
export class Counter extends DurableObject {
  async add() { const n = ((await this.ctx.storage.get('n')) ?? 0) + 1; await this.ctx.storage.put('n', n); return n; }
}
export default { async fetch(request, env) {
  const name = new URL(request.url).searchParams.get('o') ?? 'one';
  return new Response(String(await env.COUNTERS.get(env.COUNTERS.idFromName(name)).add()));
} };`;
const SECRET = Buffer.alloc(32, 9);

describe.skipIf(!postgresPrograms())('objects of a cluster', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'oc-'));
  const log = pino({ level: process.env.RIG_LOG ?? 'silent' });
  let postgres: PostgresServer;
  let pool: PgTestPool;
  const nodes: RuntimeRig[] = [];

  async function node(number: number): Promise<RuntimeRig> {
    const records = await BucketRecords.open(pool, (tenant) => new DiskBlobs(path.join(folder, tenant)));
    const rig = await RuntimeRig.start({
      cluster: {
        node: number,
        secret: SECRET,
        bucket: new BucketGateway({ records, log }),
        dialPeer: (to) => {
          const { readable: a, writable: b } = new TransformStream();
          throw new Error(`${to} ${a} ${b}`);
        },
      },
    });
    await rig.deploy('count', CODE, { tenant: 't1', bindings: { durableObjects: { COUNTERS: { class: 'Counter' } } } });
    nodes.push(rig);
    return rig;
  }

  beforeAll(async () => {
    postgres = await PostgresServer.start();
    pool = pgPool(postgres.create('objects'));
  });
  afterAll(async () => {
    for (const rig of nodes) await rig.stop();
    await pool.end();
    await postgres.stop();
    rmSync(folder, { recursive: true });
  });

  test('counts', async () => {
    const rig = await node(1);
    let t = performance.now();
    expect(await rig.text('count')).toBe('1');
    console.log('cold', performance.now() - t);
    t = performance.now();
    for (let i = 0; i < 50; i++) await rig.text('count');
    console.log('write', (performance.now() - t) / 50);
  });
});
