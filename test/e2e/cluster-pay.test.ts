/**
 * The pay platform and watches on a host of two nodes: what holds for an account, a credential or a charge holds at both,
 * whichever was asked and whichever was killed.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { deploy, jsonPost, x402Fetch } from './support/callers.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import { balanceUsd, createWatch, DAY_MS, dealsAreUp, grant, readWatches, register } from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import { bearer, payAtOnce, type TestAccount } from './support/pay-callers.ts';
import { until } from './support/until.ts';

const BUILT_IN = { 'builtin-tenants-enabled': '["pay","deals"]', 'clock-movable': 'true' };
const PRICE = 0.02;
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
