/**
 * A cluster that is lost with all of its machines, and comes back from its backup on a new PostgreSQL and a new bucket. It
 * has what the backup has, goes on from there, and pays nobody twice.
 */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { account, deploy, jsonPut, mppFetch, paymentFor, signInFetch, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import type { TestHost } from './support/host.ts';
import { mppBalance, x402Balance } from './support/local-network.ts';
import { turnpike } from './support/turnpike-command.ts';
import { until } from './support/until.ts';

const PRICE = 10_000n;
/** Of each sale, what is not the operator's share. */
const SHARE = 9_000n;
const FLAGS = { 'payments-fee-bps': '1000', 'payments-min-payout': '0.000001' };
type Held = [seller: bigint, operator: bigint, payer: bigint];
const PAGE = '<h1>in the bucket</h1>';
/** 200 KB in an object: more than its bucket keeps in a row. */
const CODE = (text: string) => `
import { DurableObject } from 'cloudflare:workers';
export class Box extends DurableObject {
  keep(value) {
    this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS kept (value TEXT, large BLOB)');
    for (let i = 0; i < 4; i++)
      this.ctx.storage.sql.exec('INSERT INTO kept VALUES (?, ?)', value, crypto.getRandomValues(new Uint8Array(50_000)));
  }
  kept() {
    const { kept, bytes } = this.ctx.storage.sql
      .exec("SELECT group_concat(DISTINCT value) AS kept, sum(length(hex(large))) / 2 AS bytes FROM kept").one();
    return kept + ' ' + bytes;
  }
}
export default {
  async fetch(request, env) {
    const value = new URL(request.url).searchParams.get('put');
    if (value) {
      await env.STORE.put('small', value);
      await env.STORE.put('large', value.repeat(20_000));
      await env.BUCKET.put('object', value.repeat(30_000));
      await env.DB.exec('CREATE TABLE IF NOT EXISTS noted (value TEXT)');
      await env.DB.prepare('INSERT INTO noted VALUES (?)').bind(value).run();
      await env.BOX.getByName('one').keep(value);
    }
    const [object, large] = [await env.BUCKET.get('object'), await env.STORE.get('large')];
    const { noted } = await env.DB.prepare("SELECT group_concat(value, ' ') AS noted FROM noted").first();
    return Response.json([${JSON.stringify(text)}, env.NAME, await env.STORE.get('small'), large.length,
      (await object.text()).length, noted, await env.BOX.getByName('one').kept()]);
  },
};`;
const KEPT = ['one', 'Ada', 'backup', 120_000, 180_000, 'backup', 'backup 200000'];

describe.skipIf(!clusterPrograms())('a cluster that comes back from its backup', () => {
  let cluster: Cluster;
  let fresh: PostgresServer | undefined;

  beforeAll(async () => {
    cluster = await Cluster.start();
  });
  afterAll(async () => {
    await cluster?.stop();
    await fresh?.stop();
  });

  const values = async (host: TestHost, query = '') => (await fetch(`${host.url}/shop/${query}`)).json();
  const buyer = (host: TestHost, sender?: typeof fetch) => {
    const through = cluster.via(() => host, sender);
    return x402Fetch(cluster.network, 1, through);
  };
  /** Once on each network. */
  const sellTo = async (host: TestHost) => {
    const payers = [
      buyer(host),
      mppFetch(
        cluster.network,
        1,
        cluster.via(() => host),
      ),
    ];
    for (const pay of payers) expect((await pay(`${cluster.url}/shop/paid`)).status).toBe(200);
  };
  /** What the seller, the operator and the payer have on both. */
  const held = async () => {
    const wallets = [account(cluster.network, 0).address, cluster.recipient, account(cluster.network, 1).address];
    const balances = [x402Balance, mppBalance].map(async (balance) =>
      Promise.all(wallets.map((wallet) => balance(cluster.chain, wallet))),
    );
    return (await Promise.all(balances)) as [Held, Held];
  };
  const less = (after: Held, before: Held) => after.map((one, index) => one - (before[index] ?? 0n));
  /** Sends what is due, and compares the books with the chain. */
  const books = async (host: TestHost) => (await host.operator('POST', '/payments/reconcile')).json;

  it('has what the backup has, pays nobody twice, and sells on', async () => {
    const flags = { ...FLAGS, ...cluster.mpp };
    const a = await cluster.node('a', flags);
    const pay = x402Fetch(
      cluster.network,
      0,
      cluster.via(() => a),
    );
    await deploy(pay, cluster.url, {
      slug: 'shop',
      code: CODE('one'),
      secrets: { NAME: 'Ada' },
      bindings: { kv: true, d1: true, r2: true, durableObjects: { BOX: { class: 'Box' } } },
      paidRoutes: [{ method: 'GET', path: '/paid', price: '0.01', description: 'one' }],
    });
    const prove = signInFetch(
      cluster.network,
      0,
      cluster.via(() => a),
    );
    const session = await prove(`${cluster.url}/_admin/session/shop`, { method: 'POST' });
    const authorization = `Bearer ${((await session.json()) as { token: string }).token}`;
    const hash = createHash('sha256').update(PAGE).digest('hex');
    const sent = await fetch(`${a.url}/_admin/shop/assets/${hash}`, {
      method: 'PUT',
      body: PAGE,
      headers: { authorization },
    });
    expect(sent.status).toBe(201);
    const change = async (body: object) => {
      const updated = await prove(`${cluster.url}/_admin/code/shop`, jsonPut(body));
      expect(updated.status, await updated.text()).toBe(200);
    };
    await change({ assets: { files: { '/page.html': hash } } });
    expect(await values(a, '?put=backup')).toEqual(KEPT);
    expect(await books(a)).toMatchObject({ ok: true });
    const before = await held();
    await sellTo(a);
    await sellTo(a);

    const dump = cluster.postgres.dump('cluster');
    expect(await cluster.storage.copyBucket('cluster', 'restored')).toBeGreaterThan(4);

    await sellTo(a);
    const shown = await paymentFor(
      `${cluster.url}/shop/paid`,
      (sender) => buyer(a, sender as typeof fetch) as typeof fetch,
    );
    const paid = await cluster.via(() => a)(`${cluster.url}/shop/paid`, { headers: shown });
    expect(paid.status).toBe(200);
    expect(await books(a)).toMatchObject({ ok: true });
    const lost = await held();
    expect(less(lost[0], before[0])).toEqual([4n * SHARE, 4n * (PRICE - SHARE), -4n * PRICE]);
    expect(less(lost[1], before[1])).toEqual([3n * SHARE, 3n * (PRICE - SHARE), -3n * PRICE]);
    await change({ code: CODE('two') });
    expect(await values(a, '?put=lost')).toContain('backup,lost 400000');
    await a.kill();
    await cluster.postgres.kill();

    fresh = await PostgresServer.start();
    const env = {
      TURNPIKE_CLUSTER_DATABASE: fresh.load('restored', dump),
      TURNPIKE_CLUSTER_STORAGE_BUCKET: 'restored',
    };
    await expect(cluster.node('b', flags, env)).rejects.toThrow('turnpike cluster restored');
    const take = () => turnpike(['cluster', 'restored'], { cwd: a.data, env: { ...cluster.environment, ...env } });
    // Nodes lived when the backup was made, 12 seconds ago by now.
    await until(async () => (await take()).code === 0);
    expect(await take()).toMatchObject({ code: 0, stderr: '' });
    // One with the folder that it had, and a new one.
    const [a2, b] = await Promise.all([cluster.node('a', flags, env), cluster.node('b', flags, env)]);
    expect(await values(b)).toEqual(KEPT);
    expect(await values(a2)).toEqual(KEPT);
    expect(await (await fetch(`${b.url}/shop/page`)).text()).toBe(PAGE);

    expect(await booksOf([a2, b])).toMatchObject({ ok: true, differences: [] });
    expect(await held()).toEqual(lost);
    // What was paid for after the backup is not known, and is not charged again.
    await cluster.via(() => b)(`${cluster.url}/shop/paid`, { headers: shown });
    expect(await held()).toEqual(lost);
    await sellTo(b);
    expect(await booksOf([a2, b])).toMatchObject({ ok: true, differences: [] });
    for (const [index, after] of (await held()).entries())
      expect(less(after, lost[index] as Held)).toEqual([SHARE, PRICE - SHARE, -PRICE]);
    expect((await b.operator('GET', '/payments')).json).toMatchObject({ open: [], stopped: null });
    expect(await values(a2, '?put=after')).toEqual([
      ...KEPT.slice(0, 2),
      'after',
      100_000,
      150_000,
      'backup after',
      'backup,after 400000',
    ]);
  });

  /** Of the node that sends; the other says that it is none. */
  async function booksOf(nodes: TestHost[]): Promise<unknown> {
    const answers = await Promise.all(nodes.map((node) => node.operator('POST', '/payments/reconcile')));
    return answers.find(({ json }) => (json as { ok?: boolean }).ok !== undefined)?.json ?? answers;
  }
});
