/**
 * Deals on the whole host, as a new caller meets it: bought per call by stock clients, recomputed with another CEL
 * engine; an account, credit, watches and their days; the clock is moved and the host killed.
 */
import { Challenge } from 'mppx';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type BoughtRules, recompute } from '../deals/support/buyer.ts';
import { balances, jsonPost, mppFetch, account as walletOf, x402Fetch } from './support/callers.ts';
import {
  ANY_WATCH,
  balanceUsd,
  createWatch,
  DAY_MS,
  dealsAreUp,
  deleteWatch,
  grant,
  HOUR_MS,
  readDatabase,
  readWatches,
  register,
  runCrons,
  startDealsHost,
  topUp,
  type WatchView,
} from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import { bearer, payFromCredit, type TestAccount } from './support/pay-callers.ts';
import { until } from './support/until.ts';

let host: TestHost;

beforeAll(async () => {
  host = await startDealsHost();
});
afterAll(() => host?.stop());

const pay = (path: string) => `${host.url}/pay/deals${path}`;
const ledgerIsSound = async () => ((await host.operator('GET', '/pay/ledger')).json as { ok: boolean }).ok;
/** Polls the account's watches: news of credit come by themselves. */
const watchesBecome = (account: TestAccount, expected: (watches: WatchView[]) => boolean) =>
  until(
    async () => {
      const { watches } = await readWatches(host, account);
      return expected(watches) ? watches : undefined;
    },
    () => `the watches did not become what was expected\n${host.output().slice(-2_000)}`,
  );
/** A run that does not learn whether pay charged leaves its watches to one after the end of its claim, 40 s later. */
const LEFT_TO_ANOTHER_MS = 150_000;
/** Polls them, and runs the crons each time: what a run leaves behind is another one's. */
const watchesBecomeByRuns = (account: TestAccount, expected: (watches: WatchView[]) => boolean) => {
  let outcome: unknown;
  return until(
    async () => {
      outcome = await runCrons(host).catch((error: unknown) => error);
      const { watches } = await readWatches(host, account);
      return expected(watches) ? watches : undefined;
    },
    () => `the watches did not become what was expected; the last run: ${outcome}`,
    LEFT_TO_ANOTHER_MS,
  );
};
const charges = (watch: string) =>
  readDatabase<{ key: string; amount: number; at: number }>(
    host,
    'pay',
    `SELECT request_id AS key, amount, at FROM ledger_transactions WHERE kind = 'charge' AND request_id LIKE 'watch_day:${watch}:%' ORDER BY rowid`,
  );

describe('calls past the platform', () => {
  test.each([
    ['GET', '/v1/deals'],
    ['GET', '/v1/rules'],
    ['GET', '/v1/watches'],
    ['POST', '/v1/watches'],
    ['DELETE', '/v1/watches/wat_1'],
    ['POST', '/internal/pay-events'],
  ])('%s %s is refused without a signature', async (method, path) => {
    const init = { method, ...(method === 'POST' ? { body: '{}' } : {}) };
    expect((await fetch(`${host.url}/deals${path}`, init)).status).toBe(401);
    const forged = {
      'x-pay-account': 'acc_1',
      'x-pay-usage': '[{"meterSlug":"deal_query","quantity":1}]',
      'x-pay-request-id': 'req_1',
      'content-digest': 'sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:',
      'signature-input':
        'pay=("@method" "@target-uri" "content-digest" "x-pay-account" "x-pay-request-id" "x-pay-usage");created=1;expires=9999999999;nonce="n";keyid="k";alg="ed25519";tag="pay-gateway"',
      signature: 'pay=:AAAA:',
    };
    expect((await fetch(`${host.url}/deals${path}`, { ...init, headers: forged })).status).toBe(401);
  });
});

describe('bought per call', () => {
  test.each([
    ['mppx', mppFetch, 1, 'mpp'],
    ['@x402/fetch', x402Fetch, 2, 'x402'],
  ] as const)('deals and rules by stock %s for 0.15 and 0.05 USD', async (_name, client, wallet, token) => {
    const { address } = walletOf(host.network, wallet);
    const buy = client(host.network, wallet);
    const before = (await balances(host.network, address))[token];
    const answer = await buy(pay(`/v1/deals?currency=EUR&limit=${wallet}`));
    expect(answer.status).toBe(200);
    const { deals } = (await answer.json()) as { deals: { demo: boolean }[] };
    expect(deals.length).toBeGreaterThan(0);
    expect(deals.every(({ demo }) => demo)).toBe(true);
    const middle = (await balances(host.network, address))[token];
    expect(before - middle).toBe(150_000n);
    expect((await buy(pay('/v1/rules'))).status).toBe(200);
    expect(middle - (await balances(host.network, address))[token]).toBe(50_000n);
  });

  test('a buyer recomputes every deal from the rules and its facts, with an engine of its own', async () => {
    const buy = mppFetch(host.network, 3);
    const rulesAnswer = await buy(pay('/v1/rules'));
    const text = await rulesAnswer.text();
    const rules = JSON.parse(text) as BoughtRules & { version: number };
    const digest = Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.from(text))).toString('hex');
    expect(rulesAnswer.headers.get('etag')).toBe(`"${digest}"`);
    const { deals, ruleset } = JSON.parse(await (await buy(pay('/v1/deals?limit=100'))).text());
    expect(ruleset).toEqual({ version: rules.version, digest });
    expect(deals.length).toBeGreaterThan(0);
    for (const deal of deals) {
      const { gates_failed, score, confidence, tier } = recompute(rules, deal.facts);
      expect(gates_failed).toEqual([]);
      expect({ score, confidence, tier }).toEqual({
        score: deal.score,
        confidence: deal.confidence,
        tier: deal.tier,
      });
      expect(deal.ruleset.digest).toBe(digest);
      // The discount is what the prices say.
      const { minor } = deal.price;
      expect(deal.discount_bps).toBe(Math.floor(((deal.reference.minor - minor) * 10_000) / deal.reference.minor));
      expect(deal.facts.discount_bps).toBe(deal.discount_bps);
      expect(deal.evidence.length).toBeGreaterThan(1);
      expect(Date.parse(deal.evidence[0].observed_at)).toBeLessThan(Date.parse(deal.reference.to));
    }
    const known = await fetch(pay('/v1/rules'), { headers: { 'if-none-match': `"${digest}"` } });
    expect(known.status).toBe(304);
  });

  test('what is refused costs nothing: no price is asked for', async () => {
    for (const query of ['limit=0', 'magic=1', 'sort=price', 'cursor=x.y']) {
      const answer = await fetch(pay(`/v1/deals?${query}`));
      // A cursor is only read once it is paid for; then the payment is given back.
      expect([400, query.startsWith('cursor') ? 402 : 400]).toContain(answer.status);
    }
    const { address } = walletOf(host.network, 4);
    const before = await balances(host.network, address);
    expect((await x402Fetch(host.network, 4)(pay('/v1/deals?cursor=x.y'))).status).toBe(400);
    expect(await balances(host.network, address)).toEqual(before);
    expect((await fetch(pay('/v1/rules?version=99'))).status).toBe(404);
  });

  test('an account that a caller claims by a header is nobody', async () => {
    const answer = await fetch(pay('/v1/watches'), { headers: { 'x-pay-account': 'acc_forged' } });
    expect(answer.status).toBe(403);
    expect(await answer.json()).toMatchObject({ code: 'account_required' });
  });
});

describe('an account with credit', () => {
  let account: TestAccount;
  let watch: WatchView;

  test('is told what a watch costs and how credit is bought, and nobody how to get an account', async () => {
    account = await register(host);
    const answer = await fetch(pay('/v1/watches'), jsonPost(ANY_WATCH, bearer(account)));
    expect(answer.status).toBe(402);
    expect(Challenge.fromResponseList(answer)[0]?.request).toMatchObject({
      amount: '250000',
      serviceSlug: 'deals-watches',
      usage: [{ meterSlug: 'watch_created', quantity: 1 }],
      balance: '0',
      creditPayUrl: expect.stringMatching(/\/pay\/deals-watches$/),
      planId: 'default',
      minimumPurchaseUsd: '5.00',
    });
    const nobody = await fetch(pay('/v1/watches'), jsonPost(ANY_WATCH));
    expect(nobody.status).toBe(402);
    expect(await nobody.text()).toContain('accounts/anonymous');
  });

  test('buys five dollars, makes a watch of it, and lists it', async () => {
    expect((await topUp(host, account, '4.99')).status).toBe(400);
    expect((await topUp(host, account, '5.00')).status).toBe(201);
    watch = await createWatch(host, account, { ...ANY_WATCH, delivery: { webhook: 'https://example.com/hook' } });
    expect(watch).toMatchObject({ state: 'running', webhook_secret: expect.stringMatching(/^whsec_/) });
    expect(Date.parse(watch.paid_through) - Date.parse(watch.created_at)).toBe(DAY_MS);
    expect(await balanceUsd(host, account)).toBe('4.75');
    const { watches } = await readWatches(host, account);
    expect(watches).toEqual([expect.objectContaining({ id: watch.id, state: 'running' })]);
    expect(JSON.stringify(watches)).not.toContain('whsec_');
    expect((await readWatches(host, await register(host))).watches).toEqual([]);
  });

  test('a faulty watch is refused before any price', async () => {
    const answer = await fetch(pay('/v1/watches'), jsonPost({ ...ANY_WATCH, every_s: 1 }, bearer(account)));
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ errors: [{ pointer: '/every_s' }] });
  });

  test('the same Idempotency-Key makes one watch for one price', async () => {
    const { body, headers } = jsonPost(ANY_WATCH, { 'idempotency-key': 'watch-1' });
    const make = () =>
      payFromCredit(pay('/v1/watches'), account, {
        method: 'POST',
        body: String(body),
        headers: headers as Record<string, string>,
      });
    const first = (await (await make()).json()) as WatchView;
    const second = (await (await make()).json()) as WatchView;
    expect(second.id).toBe(first.id);
    expect(await balanceUsd(host, account)).toBe('4.50');
    expect(await deleteWatch(host, account, first.id)).toBe(204);
  });

  test('each further day is charged once, by however many schedulers', async () => {
    await host.advance(DAY_MS);
    await dealsAreUp(host);
    await Promise.allSettled([runCrons(host), runCrons(host), runCrons(host)]);
    const isPaid = ([one]: WatchView[]) => Date.parse(one?.paid_through ?? '') > Date.now() + DAY_MS;
    const [after] = await watchesBecomeByRuns(account, isPaid);
    expect(await charges(watch.id)).toHaveLength(1);
    expect(Date.parse(after?.paid_through ?? '') - Date.parse(watch.paid_through)).toBe(DAY_MS);
    expect(await balanceUsd(host, account)).toBe('4.40');
  });

  test('it is deleted for good, for nothing, by its owner alone', async () => {
    expect(await deleteWatch(host, await register(host), watch.id)).toBe(404);
    expect(await deleteWatch(host, account, watch.id)).toBe(204);
    expect(await deleteWatch(host, account, watch.id)).toBe(204);
    expect((await readWatches(host, account)).watches).toEqual([]);
    expect(await balanceUsd(host, account)).toBe('4.40');
  });
});

describe('days without enough credit', () => {
  test('suspend as of the end of the paid time; a top-up resumes the oldest first, exactly as far as it goes', async () => {
    const account = await register(host);
    await grant(host, account, '0.75');
    const made: WatchView[] = [];
    for (let count = 0; count < 3; count++) {
      made.push(await createWatch(host, account));
    }
    expect(await balanceUsd(host, account)).toBe('0.00');
    await host.advance(DAY_MS + HOUR_MS);
    await dealsAreUp(host);
    const suspended = await watchesBecomeByRuns(account, (all) => all.every(({ state }) => state === 'suspended'));
    for (const one of suspended) {
      const before = made.find(({ id }) => id === one.id);
      expect(one.suspended_at).toBe(before?.paid_through);
    }
    // Told by the platform at once, without any sweep of deals; two of three days and nearly a third.
    await grant(host, account, '0.29');
    const now = await watchesBecome(account, (all) => all.filter(({ state }) => state === 'running').length === 2);
    const running = now.filter(({ state }) => state === 'running').map(({ id }) => id);
    expect(running.toSorted()).toEqual([made[0]?.id, made[1]?.id].toSorted());
    expect(await balanceUsd(host, account)).toBe('0.09');
    for (const { id } of made.slice(0, 2)) expect(await charges(id)).toHaveLength(1);
    // One cent more is exactly the third day.
    await grant(host, account, '0.01');
    await watchesBecome(account, (all) => all.every(({ state }) => state === 'running'));
    expect(await balanceUsd(host, account)).toBe('0.00');
  });

  test('three days in which the host was away are not billed', async () => {
    const account = await register(host);
    await grant(host, account, '1.00');
    const watch = await createWatch(host, account);
    await host.kill();
    host = await host.restart();
    await host.advance(4 * DAY_MS);
    await dealsAreUp(host);
    const [after] = await watchesBecomeByRuns(
      account,
      ([one]) => Date.parse(one?.paid_through ?? '') > Date.parse(watch.paid_through),
    );
    expect(after?.state).toBe('running');
    expect(await charges(watch.id)).toHaveLength(1);
    expect(Date.parse(after?.paid_through ?? '')).toBeGreaterThanOrEqual(Date.parse(watch.paid_through) + 4 * DAY_MS);
    expect(await balanceUsd(host, account)).toBe('0.65');
  });

  test('a host that is killed while it charges charges every day once', async () => {
    const account = await register(host);
    await grant(host, account, '10.00');
    const made: WatchView[] = [];
    for (let count = 0; count < 8; count++) made.push(await createWatch(host, account));
    await host.advance(DAY_MS);
    await dealsAreUp(host);
    let killed = false;
    let outcome: unknown;
    const cut = (async () => {
      while (!killed) outcome = await runCrons(host).catch((error: unknown) => error);
    })();
    try {
      await until(
        async () => ((await charges(made[0]?.id ?? '')).length > 0 ? true : undefined),
        () => `nothing was charged; the last run: ${outcome}`,
        LEFT_TO_ANOTHER_MS,
      );
      await host.kill();
    } finally {
      killed = true;
      await cut;
    }
    host = await host.restart();
    await dealsAreUp(host);
    await watchesBecomeByRuns(account, (watches) =>
      watches.every(({ state, paid_through }) => {
        return state === 'running' && Date.parse(paid_through) > Date.parse(made[0]?.paid_through ?? '');
      }),
    );
    for (const { id } of made) expect(await charges(id)).toHaveLength(1);
    expect(await balanceUsd(host, account)).toBe('7.20');
    expect(await ledgerIsSound()).toBe(true);
  });
});
