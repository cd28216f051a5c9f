/**
 * A box that becomes a cluster, by the command, with what it holds: two nodes go on with it, get another cluster.key, and
 * become one box again. Data, secrets and money are the same throughout.
 */
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { account, deploy, jsonPost, jsonPut, signInFetch, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import { balanceUsd, createWatch, dealsAreUp, readWatches, register } from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import { x402Balance } from './support/local-network.ts';
import { bearer, type TestAccount } from './support/pay-callers.ts';
import { turnpike } from './support/turnpike-command.ts';

const PRICE = 10_000n;
/** After a put. Where a move is slower, it rings before. */
const ALARM_MS = 12_000;
const BUILT_IN = { 'builtin-tenants-enabled': '["pay","deals"]' };
const NEW_KEY = 'another key of thirty-two characters, or more';
const CODE = (text: string) => `
import { DurableObject } from 'cloudflare:workers';
export class Counter extends DurableObject {
  count(value: string) {
    this.ctx.storage.sql.exec('CREATE TABLE IF NOT EXISTS counted (value TEXT)');
    this.ctx.storage.sql.exec('INSERT INTO counted VALUES (?)', value);
  }
  counted() {
    return this.ctx.storage.sql.exec('SELECT value FROM counted').toArray().map(({ value }) => value).join(' ');
  }
  wake() { return this.ctx.storage.setAlarm(Date.now() + ${ALARM_MS}); }
  async rang() { return (await this.ctx.storage.get('rang')) ?? 0; }
  async alarm() { await this.ctx.storage.put('rang', (await this.rang() as number) + 1); }
}
export default {
  async fetch(request: Request, env: any) {
    const url = new URL(request.url);
    const value = url.searchParams.get('put');
    if (url.pathname === '/rang') return Response.json(await env.COUNTERS.getByName(url.search).rang());
    if (value !== null) {
      env.VISITS.writeDataPoint({ blobs: [value] });
      await env.STORE.put('key', value);
      await env.DB.exec('CREATE TABLE IF NOT EXISTS noted (value TEXT)');
      await env.DB.prepare('INSERT INTO noted VALUES (?)').bind(value).run();
      await env.COUNTERS.getByName('one').count(value);
      await env.COUNTERS.getByName('?' + value).wake();
      await env.BUCKET.put('object', value.repeat(30_000), { customMetadata: { value } });
    }
    const object = await env.BUCKET.get('object');
    const [key, bytes] = [await env.STORE.get('key'), (await object.text()).length];
    const { noted } = await env.DB.prepare("SELECT group_concat(value, ' ') AS noted FROM noted").first();
    return Response.json([${JSON.stringify(text)}, env.NAME, key, bytes, object.customMetadata.value, await env.COUNTERS.getByName('one').counted(), noted]);
  },
};`;

describe.skipIf(!clusterPrograms())('a box that becomes a cluster, and a box again', () => {
  let cluster: Cluster;

  beforeAll(async () => {
    cluster = await Cluster.start();
  });
  afterAll(() => cluster?.stop());

  const through = (host: TestHost) => cluster.via(() => host);
  const sold = async (host: TestHost) => {
    const answer = await x402Fetch(cluster.network, 1, through(host))(`${cluster.url}/first/paid`);
    return [answer.status, ((await answer.json()) as string[])[1]];
  };
  const values = async (host: TestHost, query = '') => (await fetch(`${host.url}/first/${query}`)).json();
  /** An alarm that was set before the move rings after it. */
  const rang = (host: TestHost, value: string) =>
    expect.poll(async () => (await fetch(`${host.url}/first/rang?${value}`)).json(), { interval: 500 }).toBe(1);
  const revenue = async (host: TestHost) => JSON.parse((await host.operator('GET', '/payments/revenue')).text);
  /** What a watcher has with the built-in tenants: its credit, its watches, and the books of all credit. */
  const kept = async (host: TestHost, watcher: TestAccount) => {
    await dealsAreUp(host);
    const { json } = await host.operator('GET', '/pay/ledger');
    expect(json).toMatchObject({ ok: true });
    const { watches } = await readWatches(host, watcher);
    return { balance: await balanceUsd(host, watcher), watches: watches.map(({ id }) => id) };
  };
  const buyCredit = async (host: TestHost, watcher: TestAccount) => {
    const purchase = jsonPost({ amountUsd: '5.00' }, bearer(watcher));
    const answer = await x402Fetch(
      cluster.network,
      2,
      through(host),
    )(`${cluster.url}/pay/deals-watches/plans/default/purchase`, purchase);
    expect(answer.status, await answer.text()).toBe(201);
  };
  async function command(folder: string, args: string[], env: Record<string, string> = {}): Promise<string> {
    const how = { cwd: folder, env: { ...cluster.environment, ...env } };
    const { code, stdout, stderr } = await turnpike(args, how);
    expect(code, stderr).toBe(0);
    return stdout;
  }

  it('keeps its data, its secrets and its money, and sells on', async () => {
    const box = await cluster.box('a', BUILT_IN);
    const paidRoutes = [{ method: 'GET', path: '/paid', price: '0.01', description: 'one' }];
    await deploy(x402Fetch(cluster.network, 0, through(box)), cluster.url, {
      slug: 'first',
      code: CODE('one'),
      secrets: { NAME: 'Ada' },
      bindings: {
        kv: true,
        d1: true,
        r2: true,
        analytics: { VISITS: {} },
        durableObjects: { COUNTERS: { class: 'Counter' } },
      },
      paidRoutes,
    });
    expect(await values(box, '?put=box')).toEqual(['one', 'Ada', 'box', 90_000, 'box', 'box', 'box']);
    expect(await sold(box)).toEqual([200, 'Ada']);
    await dealsAreUp(box);
    const watcher = await register(box);
    await buyCredit(box, watcher);
    await createWatch(box, watcher);
    const before = await kept(box, watcher);
    expect(before.watches).toHaveLength(1);
    const earned = await revenue(box);
    const payer = account(cluster.network, 1).address;
    const held = await x402Balance(cluster.chain, payer);
    await box.stop();
    const certificates = { 'one.test.pem': 'key and chain', '_wildcard.test.pem': 'of all', 'account.key': 'account' };
    for (const [file, text] of Object.entries(certificates))
      await writeFile(path.join(box.data, 'certificates', file), text);

    const into = await command(box.data, ['--data', box.data, 'cluster', 'move-in']);
    expect(into).toMatch(/^moved {4}\d+ rows of \d+ tables, each compared; 3 versions of code/);
    expect(into).toMatch(/^stores {3}2 of KV and R2, 2 rows, /m);
    expect(into).toMatch(/^d1 {7}4 databases, \d+ rows, /m);
    expect(into).toMatch(/^objects {2}2, [01] alarms, /m);
    expect(into).toMatch(/^tls {6}2 certificates/m);
    const [a, b] = await Promise.all([cluster.node('a', BUILT_IN), cluster.node('b', BUILT_IN)]);
    expect(await values(b)).toEqual(['one', 'Ada', 'box', 90_000, 'box', 'box', 'box']);
    expect(await revenue(b)).toEqual(earned);
    expect(await kept(b, watcher)).toEqual(before);
    await createWatch(a, watcher);
    await buyCredit(b, watcher);
    await rang(b, 'box');
    const prove = signInFetch(cluster.network, 0, through(b));
    const updated = await prove(`${cluster.url}/_admin/code/first`, jsonPut({ code: CODE('two') }));
    expect(updated.status, await updated.text()).toBe(200);
    expect(await values(a, '?put=node')).toEqual(['two', 'Ada', 'node', 120_000, 'node', 'box node', 'box node']);

    const file = path.join(box.data, 'new.key');
    await writeFile(file, `${NEW_KEY}\n`);
    expect(await command(box.data, ['cluster', 'rotate-key', '--new-key-file', file])).toMatch(
      /^sealed {3}\d+ keys anew/,
    );
    expect(await sold(b)).toEqual([200, 'Ada']);
    await b.stop();
    const key = { TURNPIKE_CLUSTER_KEY: NEW_KEY };
    const b2 = await cluster.node('b', BUILT_IN, key);
    expect(await values(b2)).toEqual(['two', 'Ada', 'node', 120_000, 'node', 'box node', 'box node']);
    const there = await kept(b2, watcher);
    expect(there.watches).toHaveLength(2);
    const earnedThere = await revenue(b2);
    await Promise.all([a.stop(), b2.stop()]);

    const out = path.join(path.dirname(box.data), 'out');
    expect(await command(box.data, ['--data', out, 'cluster', 'move-out'], key)).toContain(
      path.join(out, 'registry.db'),
    );
    const wallets = await readFile(path.join(box.data, 'network-keys.json'), 'utf8');
    expect(await readFile(path.join(out, 'network-keys.json'), 'utf8')).toBe(wallets);
    for (const [file, text] of Object.entries(certificates))
      expect(await readFile(path.join(out, 'certificates', file), 'utf8')).toBe(text);
    const again = await cluster.box('out', BUILT_IN);
    expect(await values(again)).toEqual(['two', 'Ada', 'node', 120_000, 'node', 'box node', 'box node']);
    expect(await revenue(again)).toEqual(earnedThere);
    expect(await kept(again, watcher)).toEqual(there);
    const ask = signInFetch(cluster.network, 0, through(again));
    const query = jsonPost({ query: 'SELECT blob1 FROM VISITS' });
    const visits = await (await ask(`${cluster.url}/_admin/first/data/VISITS`, query)).json();
    expect(visits).toMatchObject({ data: [{ blob1: 'box' }, { blob1: 'node' }] });
    await createWatch(again, watcher);
    await rang(again, 'node');
    expect(await sold(again)).toEqual([200, 'Ada']);
    // Sold twice since, and each paid once.
    expect(held - (await x402Balance(cluster.chain, payer))).toBe(2n * PRICE);
  });
});
