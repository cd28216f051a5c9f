/**
 * The pay platform and watches on a host of two nodes: what holds for an account, a credential or a charge holds at both,
 * whichever was asked and whichever was killed.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresClient } from '../../host/registry/postgres/client.ts';
import { deploy, jsonPost, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import { balanceUsd, createWatch, DAY_MS, dealsAreUp, grant, readWatches, register } from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import { bearer, payAtOnce, type TestAccount } from './support/pay-callers.ts';
import { until } from './support/until.ts';

const BUILT_IN = { 'builtin-tenants-enabled': '["pay","deals"]', 'clock-movable': 'true' };
const PRICE = 0.02;
const CALLERS = 4;
const SHOP = `export default {
  async fetch(request) {
    if (new URL(request.url).pathname === '/internal/pay-events') return new Response(null, { status: 204 });
    if (request.headers.get('x-pay-usage') !== 'none') return new Response('sold');
    return Response.json({ serviceSlug: 'shop', usage: [{ meterSlug: 'look', quantity: 1 }] }, { status: 402 });
  },
};`;
/** A run of the crons at the other node: its lease, and the next minute. */
const TAKEN_OVER_MS = 240_000;

describe.skipIf(!clusterPrograms())('the pay platform on two nodes', () => {
  let cluster: Cluster;
  let a: TestHost;
  let b: TestHost;
  let account: TestAccount;

  beforeAll(async () => {
    cluster = await Cluster.start();
    [a, b] = await Promise.all([cluster.node('a', BUILT_IN), cluster.node('b', BUILT_IN)]);
    const owner = x402Fetch(
      cluster.network,
      0,
      cluster.via(() => a),
    );
    await deploy(owner, cluster.url, { slug: 'shop', code: SHOP });
    await Promise.all([dealsAreUp(a), dealsAreUp(b)]);
    const set = async (path: string, body: object) =>
      expect((await a.operator('PUT', `/pay/services/shop${path}`, body)).status).toBeLessThan(300);
    await set('', { name: 'Shop', origin: '{app_url}/shop' });
    await set('/meters/look', { priceUsd: String(PRICE) });
    account = await register(a);
    await grant(a, account, '10.00');
  });
  afterAll(() => cluster?.stop());

  const balance = async (host: TestHost) => Number(await balanceUsd(host, account));
  const look = (host: TestHost, credential: string) => payAtOnce(`${host.url}/pay/shop/x`, { ...account, credential });

  /** One more credential of the account, made at A. */
  async function credentialOf(more: object): Promise<{ id: string; credential: string }> {
    const answer = await fetch(
      `${a.url}/pay/me/credentials`,
      jsonPost({ label: randomUUID(), ...more }, bearer(account)),
    );
    const text = await answer.text();
    expect(answer.status, text).toBe(201);
    return JSON.parse(text);
  }

  /** The node whose instance owns the one object that the pay platform has; its address has the number of its node. */
  async function ownerOfLedger(): Promise<unknown> {
    const client = postgresClient(cluster.database);
    try {
      const { rows } = await client.execute(
        `SELECT n.name FROM turnpike_stores.bucket_objects AS o JOIN deployments AS d ON d.tenant = o.tenant AND d.slug = 'pay'
          JOIN turnpike_stores.bucket_objects AS m ON m.tenant = o.tenant AND m.key = 'v1/nodes/' || (convert_from(o.body, 'UTF8')::json ->> 'node') || '.json'
          JOIN nodes AS n ON (convert_from(m.body, 'UTF8')::json ->> 'address') LIKE '127.' || n.number || '.%'
          WHERE o.key LIKE '%/own.json'`,
      );
      return rows[0]?.name;
    } finally {
      await client.end();
    }
  }

  it('a daily cap of a credential is one for both', async () => {
    const { credential } = await credentialOf({ dailyCapUsd: '0.20' });
    const before = await balance(b);
    const answers = await Promise.all(Array.from({ length: 30 }, (_, at) => look(at % 2 ? a : b, credential)));
    const said = await Promise.all(answers.map(async (answer) => `${answer.status} ${await answer.text()}`));
    const sold = said.filter((text) => text === '200 sold');
    expect(sold, said.join('\n')).toHaveLength(10);
    for (const text of said) if (text !== '200 sold') expect(text).toContain('"spend_cap_reached"');
    expect(before - (await balance(a))).toBeCloseTo(0.2, 6);
  });

  it('a credential that was revoked at one opens nothing at the other from then on', async () => {
    for (let turn = 0; turn < 5; turn++) {
      const { id, credential } = await credentialOf({});
      expect((await look(b, credential)).status).toBe(200);
      const revoked = await fetch(`${a.url}/pay/me/credentials/${id}`, { method: 'DELETE', headers: bearer(account) });
      expect(revoked.ok).toBe(true);
      expect((await look(b, credential)).status).toBe(401);
    }
  });

  it('a charge that operators give back at both nodes at once is given back once', async () => {
    for (let turn = 0; turn < 5; turn++) {
      const before = await balance(a);
      expect((await look(b, account.credential)).status).toBe(200);
      const me = await fetch(`${a.url}/pay/me`, { headers: bearer(account) });
      const { lines } = (await me.json()) as { lines: { requestId: string | null }[] };
      const requestId = lines.find((line) => line.requestId !== null)?.requestId;
      expect(await balance(a)).toBeCloseTo(before - PRICE, 6);
      const refund = { accountId: account.id, requestId, note: 'asked for' };
      const refunds = await Promise.all([a, b, a, b].map((node) => node.operator('POST', '/pay/refunds', refund)));
      expect(refunds.filter(({ status }) => status < 300).length, JSON.stringify(refunds)).toBeGreaterThan(0);
      expect(refunds.filter(({ status }) => status >= 500)).toEqual([]);
      expect(await balance(a)).toBeCloseTo(before, 6);
      expect(await balance(b)).toBeCloseTo(before, 6);
    }
  });

  it('a charge is one for each key, at both nodes at once, and when the one with the ledger is killed', async () => {
    const { json } = await a.operator('POST', '/pay/services/shop/keys', {});
    const buyer = await register(a);
    await grant(a, buyer, '50.00');
    const headers = { authorization: `Bearer ${(json as { key: string }).key}` };
    const charge = async (host: TestHost, key: string) => {
      const usage = [{ meterSlug: 'look', quantity: 1 }];
      const body = { key, accountId: buyer.id, serviceSlug: 'shop', usage };
      const answer = await fetch(`${host.url}/pay/internal/charges`, jsonPost(body, headers));
      await answer.body?.cancel();
      return answer.status;
    };
    const before = Number(await balanceUsd(b, buyer));
    const charged = new Map<string, number>();
    let isRunning = true;
    const callers = Array.from({ length: CALLERS }, async () => {
      while (isRunning) {
        const key = `look:${charged.size}`;
        charged.set(key, 0);
        const both = await Promise.all([a, b].map((host) => charge(host, key).catch(() => 0)));
        charged.set(key, both.filter((status) => status === 201).length);
        if (!both.includes(0))
          expect(
            both.every((status) => status === 201 || status === 200 || status >= 500),
            String(both),
          ).toBe(true);
      }
    });
    await until(() => [...charged.values()].filter(Boolean).length > 20);
    const owner = await ownerOfLedger();
    const [killed, left] = owner === 'a' ? [a, b] : [b, a];
    await killed.kill();
    isRunning = false;
    await Promise.all(callers);
    // A caller without an answer asks again with the same key.
    for (const key of charged.keys())
      await until(async () => [200, 201].includes(await charge(left, key).catch(() => 0)));
    const acknowledged = [...charged.values()];
    console.log(
      `${acknowledged.filter(Boolean).length} of ${charged.size} charges were acknowledged before ${owner} was killed`,
    );
    expect(acknowledged.filter((times) => times > 1)).toEqual([]);
    expect(before - Number(await balanceUsd(left, buyer))).toBeCloseTo(charged.size * PRICE, 6);
    expect((await left.operator('GET', '/pay/ledger')).json).toMatchObject({ ok: true });
    const again = await killed.restart();
    cluster.nodes.push(again);
    if (owner === 'a') a = again;
    else b = again;
  });

  it('a watch’s day is charged once though the node is killed meanwhile; who has no credit is resumed at the other', async () => {
    const watcher = await register(a);
    await grant(a, watcher, '1.00');
    const made = [await createWatch(a, watcher), await createWatch(b, watcher), await createWatch(a, watcher)];
    const left = Number(await balanceUsd(b, watcher));
    await a.advance(DAY_MS + 60_000);
    await a.kill();
    const become = (expected: (states: string[]) => boolean) =>
      until(
        async () => {
          const { watches } = await readWatches(b, watcher).catch(() => ({ watches: [] }));
          const paid = watches.filter(
            ({ paid_through, created_at }) => Date.parse(paid_through) - Date.parse(created_at) > DAY_MS,
          );
          return expected([...paid.map(() => 'paid'), ...watches.map(({ state }) => state)]) && watches;
        },
        () => `watches that were charged\n${b.output().slice(-2_000)}`,
        TAKEN_OVER_MS,
      );
    const count = (states: string[], state: string) => states.filter((one) => one === state).length;
    await become((states) => count(states, 'paid') === 2 && count(states, 'suspended') === 1);
    expect(Number(await balanceUsd(b, watcher))).toBeCloseTo(left - 0.2, 6);
    await grant(b, watcher, '1.00');
    await become((states) => count(states, 'running') === made.length);
    const statement = await (await fetch(`${b.url}/pay/me?format=csv`, { headers: bearer(watcher) })).text();
    for (const { id } of made) expect(statement.split(`watch_day:${id}:`), statement).toHaveLength(2);
    expect((await b.operator('GET', '/pay/ledger')).json).toMatchObject({ ok: true });
  });
});
