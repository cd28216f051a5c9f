/**
 * Objects, queues and workflows of a box as workerd's cluster mode takes them, and of a cluster as a box does: what each of
 * them has written is read by the other, and goes on.
 */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { objectsAtRest } from '../../host/bindings/durable-objects/at-rest.ts';
import { objectsFolder } from '../../host/bindings/durable-objects/folder.ts';
import { BucketGateway } from '../../host/bindings/objects-bucket/gateway.ts';
import { putObjects } from '../../host/bindings/objects-bucket/move-in.ts';
import { takeObjects } from '../../host/bindings/objects-bucket/move-out.ts';
import { namesOfNamespaces } from '../../host/bindings/objects-bucket/namespaces.ts';
import { BucketRecords } from '../../host/bindings/objects-bucket/records.ts';
import { DiskBlobs } from '../../host/bindings/store-process/blobs/disk.ts';
import { workerdBinary } from '../../host/runtime/workerd-binary.ts';
import { detectSandbox } from '../../host/sandbox/index.ts';
import { NO_OTHERS } from '../../host/shared/others.ts';
import { pgPool } from '../bindings/objects-bucket/support/pg-pool.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { RuntimeRig } from './runtime-rig.ts';
import { postgresPrograms } from './support/databases.ts';

const TENANT = 't1';
const CLASSES = ['Counter', '-queues', '-queue-states', '-workflow-instances', 'miniflare-workflows-flow'];
const CODE = `
import { DurableObject, WorkflowEntrypoint } from 'cloudflare:workers';
export class Counter extends DurableObject {
  async add(value) {
    const { storage } = this.ctx;
    storage.sql.exec('CREATE TABLE IF NOT EXISTS added (value TEXT, more BLOB)');
    storage.sql.exec('INSERT INTO added VALUES (?, randomblob(2000))', value);
    await storage.put('last', { value });
    return this.all();
  }
  async all() {
    const { storage } = this.ctx;
    const rows = storage.sql.exec('SELECT value FROM added').toArray().map(({ value }) => value);
    return [rows.length, rows.at(-1), (await storage.get('last'))?.value];
  }
  async many() {
    for (let at = 0; at < 60; at++) { await this.add('many ' + at); await this.ctx.storage.sync(); }
    return this.all();
  }
  async anew() {
    await this.ctx.storage.put('old', 1);
    await this.ctx.storage.sync();
    await this.ctx.storage.deleteAll();
    await this.ctx.storage.sync();
    return this.add('anew');
  }
  async got(value) { await this.ctx.storage.put('got', value); }
  async gets() { return (await this.ctx.storage.get('got')) ?? ''; }
}
export class Flow extends WorkflowEntrypoint {
  async run(event, step) {
    const first = await step.do('first', async () => 'first');
    const { payload } = await step.waitForEvent('more', { type: 'more' });
    return first + ' ' + payload;
  }
}
export default {
  async fetch(request, env) {
    const [, what, name = ''] = new URL(request.url).pathname.split('/');
    const object = env.COUNTERS.getByName(name);
    if (what === 'send') return Response.json(await env.JOBS.send(name, { delaySeconds: 8 }) && 'sent');
    if (what === 'begin') return Response.json((await env.FLOW.create({ id: name })) && 'begun');
    if (what === 'tell') return Response.json((await (await env.FLOW.get('flow')).sendEvent({ type: 'more', payload: name })) ?? 'told');
    if (what === 'flow') return Response.json(await (await env.FLOW.get(name)).status());
    return Response.json(await object[what](name));
  },
  async queue(batch, env) {
    for (const { body } of batch.messages) await env.COUNTERS.getByName('queue').got(body);
  },
};`;
const DEPLOYMENT = {
  tenant: TENANT,
  bindings: {
    durableObjects: { COUNTERS: { class: 'Counter' } },
    queues: { JOBS: { queue: 'jobs', consumer: { maxBatchTimeout: 0 } } },
    workflows: { FLOW: { name: 'flow', class: 'Flow' } },
  },
};

describe.skipIf(!postgresPrograms())('objects that move', () => {
  let server: PostgresServer;
  let folder: string;
  let records: BucketRecords;
  let pool: ReturnType<typeof pgPool>;

  beforeAll(async () => {
    server = await PostgresServer.start();
    folder = mkdtempSync(path.join(tmpdir(), 'tp-objects-'));
    pool = pgPool(server.create('objects'));
    records = await BucketRecords.open(pool, (tenant) => new DiskBlobs(path.join(folder, 'blobs', tenant)));
  });
  afterAll(async () => {
    records?.close();
    await pool?.end();
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Asks a runtime, which then ends as one does that is stopped. */
  async function using(rig: RuntimeRig, work: (ask: (what: string) => Promise<unknown>) => Promise<void>) {
    await rig.deploy('moved', CODE, DEPLOYMENT as never);
    await work(async (what) => {
      const answer = await fetch(`http://127.0.0.1:${rig.port}/moved/${what}`);
      return answer.ok ? answer.json() : `${answer.status} ${await answer.text()}`;
    });
  }

  test('from a box into a cluster and back, with their tables, messages and instances', async () => {
    const box = await RuntimeRig.start();
    await using(box, async (ask) => {
      expect(await ask('add/one')).toEqual([1, 'one', 'one']);
      expect(await ask('anew/two')).toEqual([1, 'anew', 'anew']);
      expect(await ask('many/many')).toEqual([60, 'many 59', 'many 59']);
      expect(await ask('begin/flow')).toBe('begun');
      await expect.poll(() => ask('flow/flow')).toMatchObject({ status: expect.stringMatching(/running|waiting/) });
      expect(await ask('send/job')).toBe('sent');
    });
    await box.runtime.stop('moved', 'idle');
    const names = await namesOfNamespaces(workerdBinary(), records, CLASSES, folder);
    const sandbox = await detectSandbox('auto');
    for (const id of readdirSync(objectsFolder(box.tenants, TENANT))) {
      const copies = path.join(folder, `copies${id}`);
      mkdirSync(copies);
      const found = await objectsAtRest(sandbox, TENANT, path.join(objectsFolder(box.tenants, TENANT), id), copies);
      await putObjects(records, TENANT, names.get(id) as string, found);
    }
    await box.stop();

    const bucket = new BucketGateway({ records, log: pino({ level: 'silent' }) });
    const dialPeer = () => {
      throw new Error('there is one node');
    };
    const node = await RuntimeRig.start({
      cluster: { node: 1, secret: Buffer.alloc(32, 9), bucket, dialPeer, others: NO_OTHERS },
    });
    await using(node, async (ask) => {
      expect(await ask('all/one')).toEqual([1, 'one', 'one']);
      expect(await ask('add/two')).toEqual([2, 'two', 'two']);
      expect(await ask('many/many')).toEqual([120, 'many 59', 'many 59']);
      await expect.poll(() => ask('gets/queue')).toBe('job');
      expect(await ask('flow/flow')).toMatchObject({ status: expect.stringMatching(/running|waiting/) });
      expect(await ask('anew/three')).toEqual([1, 'anew', 'anew']);
    });
    await node.stop();

    const back = await RuntimeRig.start();
    const ids = new Map([...names].map(([id, name]) => [name, id]));
    expect(await takeObjects(records, TENANT, ids, objectsFolder(back.tenants, TENANT))).toMatchObject({ left: 0 });
    await using(back, async (ask) => {
      expect(await ask('all/one')).toEqual([1, 'one', 'one']);
      expect(await ask('all/two')).toEqual([2, 'two', 'two']);
      expect(await ask('all/many')).toEqual([120, 'many 59', 'many 59']);
      expect(await ask('all/three')).toEqual([1, 'anew', 'anew']);
      expect(await ask('gets/queue')).toBe('job');
      expect(await ask('tell/done')).toBe('told');
      await expect.poll(() => ask('flow/flow')).toMatchObject({ status: 'complete', output: 'first done' });
    });
    await back.stop();
  });
});
