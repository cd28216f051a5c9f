/** The gateway with real payments: what reaches an origin, what callers pay, and that money moves only for answers. */
import { randomUUID } from 'node:crypto';
import { Challenge } from 'mppx';
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import {
  anonymous,
  balanceOf,
  bearer,
  creditChallenge,
  creditPayment,
  give,
  ledgerIsSound,
  operator,
  payFromCredit,
  signX402,
  type TestAccount,
  verifyForward,
} from './support/pay-callers.ts';
import { type Arrived, type PayRig, startPayRig } from './support/pay-rig.ts';
import { noncesOf } from './support/payment-required.ts';
import { balance, mppClient, startNetwork, x402Client } from './support/payments-rig.ts';

let rig: PayRig;
let network: Network;
let stopNetwork: () => Promise<void>;

const walletKey = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const json = (status: number, body: object, headers: object = {}) => ({ status, body, headers });

/** An origin like deals: asks for its price, and answers what was paid for. */
let answerPaid: (arrived: Arrived) => { status: number; body: object; headers: object } | 'hang' | 'drop';

beforeAll(async () => {
  ({ network, stop: stopNetwork } = await startNetwork());
  rig = await startPayRig(network);
});
afterAll(async () => {
  await rig.stop();
  await stopNetwork();
});
beforeEach(() => {
  rig.arrived.length = 0;
  rig.clientIp = '127.0.0.1';
  answerPaid = ({ headers }) => json(200, { answered: headers['x-pay-request-id'] });
  rig.origin = async (arrived, reply) => {
    const send = ({ status, body, headers }: { status: number; body: object; headers: object }) => {
      const text = Buffer.from(JSON.stringify(body));
      reply
        .writeHead(status, { 'content-type': 'application/json', 'content-length': text.length, ...headers })
        .end(text);
    };
    await verifyForward(rig, arrived);
    if (arrived.path === '/internal/pay-events') return void reply.writeHead(204).end();
    const [, , what] = arrived.path.split(/[/?]/);
    if (what === 'free') return send(json(200, { free: arrived.headers['x-pay-account'] }));
    if (what === 'bad') return send(json(400, { bad: true }));
    const [serviceSlug, meterSlug] = what === 'watches' ? ['deals-watches', 'watch_created'] : ['deals', 'deal_query'];
    if (arrived.headers['x-pay-usage'] === 'none')
      return send(json(402, { serviceSlug, usage: [{ meterSlug, quantity: 1 }] }));
    const answer = answerPaid(arrived);
    if (answer === 'drop') return void reply.destroy();
    if (answer !== 'hang') send(answer);
    return undefined;
  };
});

/** What reached the origin, but for news of credit. */
const forwards = () => rig.arrived.filter(({ path }) => path !== '/internal/pay-events');
const usages = () => forwards().map(({ headers }) => headers['x-pay-usage']);
const funded = async (amountUsd: string) => {
  const account = await anonymous(rig);
  await give(rig, account, amountUsd);
  return account;
};

describe('what reaches the origin', () => {
  test('is signed over method, address, body, account, request and usage, each time with another nonce', async () => {
    const account = await anonymous(rig);
    const answer = await fetch(`${rig.pay}/deals/v1/free?q=a%20b&q=c`, {
      method: 'POST',
      headers: { ...bearer(account), 'x-own': 'kept' },
      body: '{"a":1}',
    });
    expect(answer.status).toBe(200);
    const [arrived] = rig.arrived as [Arrived];
    const verified = await verifyForward(rig, arrived);
    expect(verified.parameters.tag).toBe('pay-gateway');
    expect(arrived).toMatchObject({ path: '/v1/free?q=a%20b&q=c', body: '{"a":1}' });
    expect(arrived.headers).toMatchObject({ 'x-pay-account': account.id, 'x-pay-usage': 'none', 'x-own': 'kept' });
    expect(arrived.headers['x-pay-request-id']).toBe(answer.headers.get('x-request-id'));
    await fetch(`${rig.pay}/deals/v1/free`);
    const nonce = (input: string | undefined) => /nonce="([^"]+)"/.exec(input ?? '')?.[1];
    expect(nonce(rig.arrived[1]?.headers['signature-input'])).not.toBe(nonce(arrived.headers['signature-input']));
  });

  test('does not verify when anything of it was changed on the way', async () => {
    await fetch(`${rig.pay}/deals/v1/free`, { method: 'POST', body: 'x' });
    const [arrived] = rig.arrived as [Arrived];
    const changed = (more: object) => verifyForward(rig, { ...arrived, ...more });
    const header = (name: string, value: string) => changed({ headers: { ...arrived.headers, [name]: value } });
    await expect(changed({})).resolves.toBeDefined();
    await expect(changed({ method: 'PUT' })).rejects.toThrow();
    await expect(changed({ url: `${arrived.url}?x` })).rejects.toThrow();
    await expect(changed({ body: 'y' })).rejects.toThrow();
    await expect(header('x-pay-account', 'acc_other')).rejects.toThrow();
    await expect(header('x-pay-usage', '[{"meterSlug":"deal_query","quantity":1}]')).rejects.toThrow();
    await expect(header('x-pay-request-id', 'req_other')).rejects.toThrow();
  });

  test('carries nothing that a caller forged, and no secret of the caller', async () => {
    const account = await anonymous(rig);
    await fetch(`${rig.pay}/deals/v1/free`, {
      headers: {
        ...bearer(account),
        'x-pay-account': 'acc_forged',
        'x-pay-usage': 'forged',
        'x-pay-anything': 'forged',
        signature: 'pay=:Zm9yZ2Vk:',
        'signature-input': 'pay=("@method");keyid="forged"',
        'content-digest': 'sha-256=:Zm9yZ2Vk:',
        cookie: 'pay_session=forged',
        'x-payer': 'forged',
        'x-turnpike-context': 'forged',
      },
    });
    const [arrived] = rig.arrived as [Arrived];
    const text = JSON.stringify(arrived);
    expect(text).not.toContain('forged');
    expect(text).not.toContain('Zm9yZ2Vk');
    expect(text).not.toContain(account.credential);
    expect(arrived.headers['x-pay-account']).toBe(account.id);
  });

  test('is signed by keys that rotate with overlap', async () => {
    const directory = async () => {
      const answer = await fetch(`${rig.pay}/.well-known/http-message-signatures-directory`);
      return ((await answer.json()) as { keys: { kid: string; d?: string }[] }).keys;
    };
    const [old] = await directory();
    expect(old?.d).toBeUndefined();
    const soon = Date.now() + 3 * 3_600_000;
    await rig.sql('UPDATE signing_keys SET signs_until = ?', soon);
    await rig.sweep();
    const both = await directory();
    expect(both.map(({ kid }) => kid)).toHaveLength(2);
    expect(both[0]?.kid).toBe(old?.kid);
    // The old key ends: the new one signs, and the old one can still be verified.
    await rig.sql('UPDATE signing_keys SET signs_until = ? WHERE kid = ?', Date.now() - 1_000, old?.kid ?? '');
    await rig.sql('UPDATE signing_keys SET signs_from = ? WHERE kid <> ?', Date.now() - 1_000, old?.kid ?? '');
    await rig.restart();
    expect((await fetch(`${rig.pay}/deals/v1/free`)).status).toBe(200);
    const [arrived] = rig.arrived as [Arrived];
    expect((await verifyForward(rig, arrived)).parameters.keyid).toBe(both[1]?.kid);
    expect((await directory()).map(({ kid }) => kid)).toContain(old?.kid);
    // Long after its last signature it is gone.
    await rig.sql('UPDATE signing_keys SET signs_until = ? WHERE kid = ?', Date.now() - 7_200_000, old?.kid ?? '');
    await rig.sweep();
    expect((await directory()).map(({ kid }) => kid)).toEqual([both[1]?.kid]);
  });

  test('a credential that opens nothing is refused, and nothing is forwarded', async () => {
    const answer = await fetch(`${rig.pay}/deals/v1/free`, { headers: { authorization: 'Bearer tpk_wrong' } });
    expect(answer.status).toBe(401);
    expect(rig.arrived).toHaveLength(0);
  });
});

describe('an unpaid call', () => {
  test('gets the price in MPP and x402; with an account in credit too', async () => {
    const url = `${rig.pay}/deals/v1/deals?q=x`;
    const plain = await fetch(url);
    expect(plain.status).toBe(402);
    expect(plain.headers.get('cache-control')).toBe('no-store');
    expect(plain.headers.get('access-control-expose-headers')).toContain('PAYMENT-REQUIRED');
    expect(Challenge.fromResponseList(plain).map(({ method }) => method)).toContain('tempo');
    expect(creditChallenge(plain)).toBeUndefined();
    const realms = Challenge.fromResponseList(plain).map(({ realm }) => realm);
    const required = JSON.parse(Buffer.from(plain.headers.get('payment-required') ?? '', 'base64').toString());
    expect(required.accepts[0]).toMatchObject({ scheme: 'exact', amount: '150000' });
    const asked = { serviceSlug: 'deals', usage: [{ meterSlug: 'deal_query', quantity: 1 }] };
    expect(await plain.json()).toMatchObject({
      code: 'payment_required',
      ...asked,
      price: { amountUsd: '0.15', ...asked },
    });
    const account = await funded('1.00');
    const known = await fetch(url, { headers: bearer(account) });
    expect(Challenge.fromResponseList(known).map(({ method }) => method)).toEqual(
      expect.arrayContaining(['tempo', 'credit']),
    );
    realms.push(...Challenge.fromResponseList(known).map(({ realm }) => realm));
    expect(new Set(realms)).toEqual(new Set([new URL(rig.pay).hostname]));
  });

  test('of a meter that is sold from credit only says which, how much there is, and where to buy', async () => {
    const account = await funded('0.10');
    const answer = await fetch(`${rig.pay}/deals/v1/watches`, { method: 'POST', body: '{}', headers: bearer(account) });
    expect(answer.status).toBe(402);
    expect(answer.headers.get('payment-required')).toBeNull();
    const challenges = Challenge.fromResponseList(answer);
    expect(challenges).toHaveLength(1);
    const asked = { serviceSlug: 'deals-watches', usage: [{ meterSlug: 'watch_created', quantity: 1 }] };
    expect(await answer.json()).toMatchObject({ ...asked, credit: asked, price: asked });
    expect(challenges[0]?.request).toMatchObject({
      amount: '250000',
      ...asked,
      balance: '100000',
      creditPayUrl: `${rig.pay}/deals-watches`,
      planId: 'default',
      minimumPurchaseUsd: '5.00',
    });
    const nobody = await fetch(`${rig.pay}/deals/v1/watches`, { method: 'POST', body: '{}' });
    expect(((await nobody.json()) as { detail: string }).detail).toContain('accounts/anonymous');
    const page = await fetch(`${rig.pay}/deals/v1/watches?q=<b>'"`, {
      method: 'POST',
      body: '{}',
      headers: { accept: 'text/html,*/*;q=0.8' },
    });
    expect([page.status, page.headers.get('content-type')]).toEqual([402, 'text/html; charset=utf-8']);
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");
    expect(Challenge.fromResponseList(page)).toHaveLength(1);
    const text = await page.text();
    expect(text).toContain('0.25 USD');
    expect(text).toContain(`href="${rig.pages}/dashboard"`);
    expect(text).not.toMatch(/<b>|<script/);
  });

  test('that the origin refuses or serves for nothing is passed on, uncharged', async () => {
    expect((await fetch(`${rig.pay}/deals/v1/bad`)).status).toBe(400);
    expect(await (await fetch(`${rig.pay}/deals/v1/free`)).json()).toEqual({ free: 'none' });
    expect((await fetch(`${rig.pay}/nothing/v1/free`)).status).toBe(404);
  });

  test('an origin cannot ask in the name of another one, nor for what is not known', async () => {
    await operator(rig, 'PUT', '/services/foreign', { origin: 'https://foreign.example' });
    await operator(rig, 'PUT', '/services/foreign/meters/call', { priceUsd: '9.00' });
    for (const [serviceSlug, meterSlug] of [
      ['foreign', 'call'],
      ['deals', 'nothing'],
      ['deals', '__proto__'],
    ]) {
      rig.origin = (_arrived, reply) => {
        const text = JSON.stringify({ serviceSlug, usage: [{ meterSlug, quantity: 1 }] });
        reply.writeHead(402, { 'content-type': 'application/json' }).end(text);
      };
      expect((await fetch(`${rig.pay}/deals/v1/deals`)).status).toBe(502);
    }
  });

  test('a price that the operator changes is the next price', async () => {
    const set = (priceUsd: string) => operator(rig, 'PUT', '/services/deals/meters/deal_query', { priceUsd });
    await set('0.17');
    const answer = await fetch(`${rig.pay}/deals/v1/deals`);
    expect(await answer.json()).toMatchObject({ price: { amountUsd: '0.17' } });
    await set('0.15');
  });
});

describe('paid by a wallet', () => {
  test.each(['MPP', 'x402'] as const)('a stock %s client buys one call for its price', async (protocol) => {
    const client = protocol === 'MPP' ? mppClient(network, walletKey(0)) : x402Client(network, walletKey(1));
    const token = protocol === 'MPP' ? 'tempo' : 'usdc';
    const before = await balance(network, token, client.address);
    const answer = await client.fetch(`${rig.pay}/deals/v1/deals?q=${protocol}`);
    expect(answer.status).toBe(200);
    expect(usages().at(-1)).toBe('[{"meterSlug":"deal_query","quantity":1}]');
    expect(rig.arrived.at(-1)?.headers['x-pay-account']).toMatch(
      new RegExp(`^did:pkh:eip155:\\d+:${client.address}$`, 'i'),
    );
    expect(answer.headers.get(protocol === 'MPP' ? 'payment-receipt' : 'payment-response')).toBeTruthy();
    expect(before - (await balance(network, token, client.address))).toBe(150_000n);
  });

  test('the same payment again answers the stored answer; for another request it is refused', async () => {
    const client = mppClient(network, walletKey(2));
    const first = await client.fetch(`${rig.pay}/deals/v1/deals?q=again`);
    const body = await first.json();
    const count = forwards().length;
    const before = await balance(network, 'tempo', client.address);
    const headers = { authorization: client.sent.authorization ?? '' };
    const again = await fetch(`${rig.pay}/deals/v1/deals?q=again`, { headers });
    expect(again.status).toBe(200);
    expect(again.headers.get('idempotent-replay')).toBe('true');
    expect(await again.json()).toEqual(body);
    expect(forwards()).toHaveLength(count);
    const other = await fetch(`${rig.pay}/deals/v1/deals?q=other`, { headers });
    expect(other.status).toBe(409);
    expect(await balance(network, 'tempo', client.address)).toBe(before);
  });

  test('each 402 tells its caller something that no other has, so that nobody makes a payment again from the chain', async () => {
    const ask = async () => noncesOf(await fetch(`${rig.pay}/deals/v1/deals?q=nonce`));
    const [first, second] = [await ask(), await ask()];
    const tokens = [first, second].map((all) => new Set(all.map((each) => each.slice(0, -37))));
    expect([...(tokens[0] ?? [])]).toEqual([...(tokens[1] ?? [])]);
    expect(new Set([...first, ...second]).size).toBe(2);
    for (const each of first) expect(each).toMatch(/^[\w-]+\.[\w-]{43}\.[0-9a-f-]{36}$/);
  });

  test('a payment of x402 v1, which the chain shows to everybody, is answered again in its payer’s network only', async () => {
    const url = `${rig.pay}/deals/v1/deals?q=v1`;
    const { payload } = JSON.parse(atob(await signX402(network, walletKey(5), url)));
    const payment = btoa(JSON.stringify({ x402Version: 1, scheme: 'exact', network: 'base-sepolia', payload }));
    const show = async (ip: string, headers: Record<string, string> = {}) => {
      rig.clientIp = ip;
      return fetch(url, { headers: { 'x-payment': payment, ...headers } });
    };
    const first = await show('192.0.2.1');
    const body = await first.json();
    expect(first.status, JSON.stringify(body)).toBe(200);
    const again = await show('192.0.2.1');
    expect([again.status, await again.json()]).toEqual([200, body]);
    const stolen = await show('192.0.2.7');
    expect([stolen.status, await stolen.json()]).toMatchObject([409, { code: 'idempotency_conflict' }]);
    for (const key of ['guessed', '192.0.2.1'])
      expect((await show('192.0.2.7', { 'idempotency-key': key })).status, key).toBe(409);
    expect(usages().filter((usage) => usage !== 'none')).toHaveLength(1);
  });

  test('one x402 payment in twenty wrappings at once is one call', async () => {
    const url = `${rig.pay}/deals/v1/deals?q=parallel`;
    const before = await balance(network, 'usdc', privateKeyToAccount(walletKey(5)).address);
    const signature = await signX402(network, walletKey(5), url);
    const accounts = await Promise.all(Array.from({ length: 20 }, () => anonymous(rig)));
    const answers = await Promise.all(
      accounts.map((account) => fetch(url, { headers: { ...bearer(account), 'payment-signature': signature } })),
    );
    const statuses = answers.map(({ status }) => status);
    expect(statuses).toContain(200);
    expect(statuses.every((status) => status === 200 || status === 409)).toBe(true);
    expect(usages().filter((usage) => usage !== 'none')).toHaveLength(1);
    expect(before - (await balance(network, 'usdc', privateKeyToAccount(walletKey(5)).address))).toBe(150_000n);
  });

  test('a payment for one request does not pay for another', async () => {
    const client = mppClient(network, walletKey(3));
    const before = await balance(network, 'tempo', client.address);
    answerPaid = () => json(500, {});
    expect((await client.fetch(`${rig.pay}/deals/v1/deals?q=first`)).status).toBe(500);
    answerPaid = () => json(200, {});
    const headers = { authorization: client.sent.authorization ?? '' };
    const answer = await fetch(`${rig.pay}/deals/v1/deals?q=second`, { headers });
    expect(answer.status).toBe(402);
    expect(await answer.json()).toMatchObject({ code: 'payment_invalid' });
    expect(usages().filter((usage) => usage !== 'none')).toHaveLength(1);
    await expect.poll(() => balance(network, 'tempo', client.address)).toBe(before);
  });

  test.each([
    ['answers 500', () => json(500, { sorry: true }), 500],
    ['answers 404', () => json(404, {}), 404],
    ['closes the connection', () => 'drop' as const, 502],
    ['asks again', () => json(402, { serviceSlug: 'deals', usage: [{ meterSlug: 'deal_query', quantity: 1 }] }), 502],
  ])('an origin that %s after the payment costs nothing', async (_what, outcome, status) => {
    answerPaid = outcome;
    const client = x402Client(network, walletKey(4));
    const before = await balance(network, 'usdc', client.address);
    const answer = await client.fetch(`${rig.pay}/deals/v1/deals?q=${randomUUID()}`);
    expect(answer.status).toBe(status);
    expect(usages()).toContain('[{"meterSlug":"deal_query","quantity":1}]');
    await expect.poll(() => balance(network, 'usdc', client.address)).toBe(before);
  });
});

describe('paid from credit', () => {
  test('the price is taken once, and the request is on the statement', async () => {
    const account = await funded('1.00');
    const answer = await payFromCredit(`${rig.pay}/deals/v1/watches`, account, { method: 'POST', body: '{"q":1}' });
    expect(answer.status).toBe(200);
    expect(await balanceOf(rig, account)).toBe(750_000);
    expect(usages()).toEqual(['none', '[{"meterSlug":"watch_created","quantity":1}]']);
    const ids = forwards().map(({ headers }) => headers['x-pay-request-id']);
    expect(new Set([...ids, answer.headers.get('x-request-id')]).size).toBe(1);
    const me = (await (await fetch(`${rig.pay}/me`, { headers: bearer(account) })).json()) as {
      lines: { requestId: string }[];
    };
    expect(me.lines.map(({ requestId }) => requestId)).toContain(ids[0]);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('works for per-call meters too, and answers the stored answer when repeated', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/deals?q=credit`;
    const unpaid = await fetch(url, { headers: bearer(account) });
    const headers = creditPayment(creditChallenge(unpaid), account);
    const answers = await Promise.all(Array.from({ length: 10 }, () => fetch(url, { headers })));
    const statuses = answers.map(({ status }) => status);
    expect(statuses.every((status) => status === 200 || status === 409)).toBe(true);
    expect(statuses).toContain(200);
    expect((await fetch(url, { headers })).headers.get('idempotent-replay')).toBe('true');
    expect(rig.arrived.filter(({ headers: sent }) => sent['x-pay-usage'] !== 'none')).toHaveLength(1);
    expect(await balanceOf(rig, account)).toBe(850_000);
  });

  test('Idempotency-Key: the same body answers the stored answer, another one is a conflict', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/watches`;
    const create = (body: string) =>
      payFromCredit(url, account, { method: 'POST', body, headers: { 'idempotency-key': 'once' } });
    const first = await create('{"q":1}');
    const text = await first.text();
    const second = await create('{"q":1}');
    expect(second.headers.get('idempotent-replay')).toBe('true');
    expect(await second.text()).toBe(text);
    const third = await create('{"q":2}');
    expect(third.status).toBe(409);
    expect(await third.json()).toMatchObject({ code: 'idempotency_conflict' });
    expect(await balanceOf(rig, account)).toBe(750_000);
    const other = await funded('1.00');
    const stranger = await payFromCredit(url, other, {
      method: 'POST',
      body: '{"q":1}',
      headers: { 'idempotency-key': 'once' },
    });
    expect(stranger.headers.get('idempotent-replay')).toBeNull();
  });

  test('what is held is given back when the origin fails, and the same credential may try again', async () => {
    const account = await funded('0.25');
    const url = `${rig.pay}/deals/v1/watches`;
    const init = { method: 'POST', body: '{}' };
    const unpaid = await fetch(url, { ...init, headers: bearer(account) });
    const headers = creditPayment(creditChallenge(unpaid), account);
    for (const outcome of [json(500, {}), json(409, {}), 'drop' as const]) {
      answerPaid = () => outcome;
      expect((await fetch(url, { ...init, headers })).ok).toBe(false);
      expect(await balanceOf(rig, account)).toBe(250_000);
    }
    answerPaid = () => json(201, { id: 'wat_1' });
    expect((await fetch(url, { ...init, headers })).status).toBe(201);
    expect(await balanceOf(rig, account)).toBe(0);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('60 calls at once on credit for ten: ten are served, ten are paid', async () => {
    const account = await funded('1.50');
    const url = `${rig.pay}/deals/v1/deals`;
    const headers = await Promise.all(
      Array.from({ length: 60 }, async () =>
        creditPayment(creditChallenge(await fetch(url, { headers: bearer(account) })), account),
      ),
    );
    rig.arrived.length = 0;
    let late = 0;
    const said = await Promise.all(
      headers.map(async (one) => {
        for (;;) {
          const answer = await fetch(url, { headers: one });
          const text = await answer.text();
          if (answer.status !== 504)
            return answer.status === 200 ? 'sold' : answer.status === 402 ? 'asked' : `${answer.status} ${text}`;
          // A busy machine may take longer than an origin has; nothing was charged then, and the call is good again.
          late++;
        }
      }),
    );
    const count = (what: string) => said.filter((one) => one === what).length;
    const other = said.filter((one) => one !== 'sold' && one !== 'asked');
    expect({ sold: count('sold'), asked: count('asked'), other }).toEqual({ sold: 10, asked: 50, other: [] });
    expect(forwards().length).toBeGreaterThanOrEqual(10);
    expect(forwards().length).toBeLessThanOrEqual(10 + late);
    expect(await balanceOf(rig, account)).toBe(0);
  });

  test('a challenge that was altered, is for another request or another account’s is refused', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/deals?q=1`;
    const challenge = creditChallenge(await fetch(url, { headers: bearer(account) })) ?? {};
    const cheaper = JSON.parse(Buffer.from(challenge.request ?? '', 'base64url').toString());
    cheaper.amount = '1';
    const altered = { ...challenge, request: Buffer.from(JSON.stringify(cheaper)).toString('base64url') };
    const later = { ...challenge, expires: new Date(Date.now() + 9e9).toISOString() };
    const send = (one: Record<string, string>, at = url, who = account) =>
      fetch(at, { headers: creditPayment(one, who) });
    expect((await send(altered)).status).toBe(402);
    expect((await send(later)).status).toBe(402);
    expect((await send(challenge, `${rig.pay}/deals/v1/deals?q=2`)).status).toBe(402);
    expect((await send(challenge, url, { id: '', credential: 'tpk_wrong' })).status).toBe(401);
    expect(await balanceOf(rig, account)).toBe(1_000_000);
  });

  test('what is wrong is told in an order: an unknown service, the challenge, the credential, the request', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/deals?q=1`;
    const challenge = creditChallenge(await fetch(url, { headers: bearer(account) })) ?? {};
    rig.arrived.length = 0;
    const nowhere = `${rig.pay}/nothing-here/v1/deals`;
    const codeOf = async (at: string, headers: Record<string, string>) =>
      ((await (await fetch(at, { headers })).json()) as { code: string }).code;
    const stranger = { credential: `tpk_${'A'.repeat(43)}` };
    const altered = { ...challenge, realm: 'elsewhere' };
    expect(await codeOf(nowhere, bearer(stranger))).toBe('not_found');
    expect(await codeOf(nowhere, creditPayment(altered, stranger))).toBe('not_found');
    expect(await codeOf(url, creditPayment(altered, stranger))).toBe('payment_invalid');
    expect(await codeOf(`${url}1`, creditPayment(challenge, stranger))).toBe('unauthorized');
    expect(await codeOf(`${url}1`, creditPayment(challenge, account))).toBe('payment_invalid');
    await rig.sql('UPDATE credentials SET revoked_at = 1 WHERE account_id = ?', account.id);
    expect(await codeOf(nowhere, bearer(account))).toBe('not_found');
    expect(await codeOf(url, bearer(account))).toBe('unauthorized');
    expect(await codeOf(url, creditPayment(challenge, account))).toBe('unauthorized');
    expect(rig.arrived).toHaveLength(0);
    expect(await rig.sql('SELECT 1 FROM calls WHERE key LIKE ?', `%:${account.id}`)).toEqual([]);
  });

  test('a refusal for too little credit leaves nothing behind: the same payment is taken once there is enough', async () => {
    const account = await funded('0.20');
    const url = `${rig.pay}/deals/v1/watches`;
    const init = { method: 'POST', body: '{}', headers: { 'idempotency-key': randomUUID() } };
    const unpaid = await fetch(url, { ...init, headers: { ...init.headers, ...bearer(account) } });
    const headers = { ...init.headers, ...creditPayment(creditChallenge(unpaid), account) };
    const refused = await fetch(url, { ...init, headers });
    expect([refused.status, await refused.json()]).toMatchObject([
      402,
      { code: 'insufficient_credit', serviceSlug: 'deals-watches', balanceMicroUsd: '200000' },
    ]);
    await give(rig, account, '0.10');
    expect((await fetch(url, { ...init, headers })).status).toBe(200);
    expect(await balanceOf(rig, account)).toBe(50_000);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('one Idempotency-Key under many payments at once is one call', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/watches`;
    const init = { method: 'POST', body: '{}', headers: { 'idempotency-key': randomUUID() } };
    const payments = await Promise.all(
      Array.from({ length: 10 }, async () => {
        const unpaid = await fetch(url, { ...init, headers: { ...init.headers, ...bearer(account) } });
        return { ...init.headers, ...creditPayment(creditChallenge(unpaid), account) };
      }),
    );
    const statuses = await Promise.all(
      payments.map(async (headers) => (await fetch(url, { ...init, headers })).status),
    );
    expect(statuses).toContain(200);
    expect(statuses.every((status) => status === 200 || status === 409)).toBe(true);
    const later = await Promise.all(payments.map((headers) => fetch(url, { ...init, headers })));
    expect(later.map((answer) => answer.headers.get('idempotent-replay'))).toEqual(payments.map(() => 'true'));
    expect(forwards().filter(({ headers }) => headers['x-pay-usage'] !== 'none')).toHaveLength(1);
    expect(await balanceOf(rig, account)).toBe(750_000);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('a platform that is killed while the origin works has taken nothing, and the repetition is charged once', async () => {
    const account = await funded('0.25');
    const url = `${rig.pay}/deals/v1/watches`;
    const init = { method: 'POST', body: '{}' };
    const unpaid = await fetch(url, { ...init, headers: bearer(account) });
    const headers = creditPayment(creditChallenge(unpaid), account);
    answerPaid = () => 'hang';
    const lost = fetch(url, { ...init, headers }).catch(() => undefined);
    await expect.poll(() => forwards().length).toBe(2);
    expect(await balanceOf(rig, account)).toBe(0);
    await rig.restart();
    await lost;
    expect((await fetch(url, { ...init, headers })).status).toBe(409);
    await rig.sql('UPDATE calls SET started_at = started_at - 600000');
    answerPaid = () => json(201, { id: 'wat_1' });
    const again = await fetch(url, { ...init, headers });
    expect(again.status).toBe(201);
    expect(forwards().at(-1)?.headers['x-pay-request-id']).toBe(forwards()[1]?.headers['x-pay-request-id']);
    expect(await balanceOf(rig, account)).toBe(0);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('an origin that breaks off is asked once more under the same id; then it costs nothing, and the Idempotency-Key keeps the id', async () => {
    const account = await funded('0.50');
    const url = `${rig.pay}/deals/v1/watches`;
    const ids = () =>
      forwards()
        .filter(({ headers }) => headers['x-pay-usage'] !== 'none')
        .map(({ headers }) => headers['x-pay-request-id']);
    let broken = 1;
    answerPaid = () => (broken-- > 0 ? 'drop' : json(201, { id: 'wat_1' }));
    expect((await payFromCredit(url, account, { method: 'POST', body: '{}' })).status).toBe(201);
    expect(ids()).toEqual([ids()[0], ids()[0]]);
    expect(await balanceOf(rig, account)).toBe(250_000);

    rig.arrived.length = 0;
    broken = 2;
    const init = { method: 'POST', body: '{"again":1}', headers: { 'idempotency-key': randomUUID() } };
    expect((await payFromCredit(url, account, init)).status).toBe(502);
    expect(await balanceOf(rig, account)).toBe(250_000);
    expect((await payFromCredit(url, account, init)).status).toBe(201);
    expect(ids()).toEqual([ids()[0], ids()[0], ids()[0]]);
    expect(await balanceOf(rig, account)).toBe(0);
  });

  test('an Idempotency-Key stands for the call after a kill too: the origin sees the id that it saw before', async () => {
    const account = await funded('0.25');
    const url = `${rig.pay}/deals/v1/watches`;
    const init = { method: 'POST', body: '{}', headers: { 'idempotency-key': randomUUID() } };
    answerPaid = () => 'hang';
    const lost = payFromCredit(url, account, init).catch(() => undefined);
    await expect.poll(() => forwards().length).toBe(2);
    await rig.restart();
    await lost;
    await rig.sql("UPDATE calls SET started_at = started_at - 600000 WHERE state = 'working'");
    answerPaid = () => json(201, { id: 'wat_1' });
    // With a challenge of its own.
    expect((await payFromCredit(url, account, init)).status).toBe(201);
    expect(forwards().at(-1)?.headers['x-pay-request-id']).toBe(forwards()[1]?.headers['x-pay-request-id']);
    expect(await balanceOf(rig, account)).toBe(0);
    expect((await payFromCredit(url, account, init)).headers.get('idempotent-replay')).toBe('true');
  });

  test('a caller that hangs up while the origin works has ordered it: it is charged, and the answer is there later', async () => {
    const account = await funded('0.25');
    const url = `${rig.pay}/deals/v1/watches`;
    const init = { method: 'POST', body: '{}' };
    const unpaid = await fetch(url, { ...init, headers: bearer(account) });
    const headers = creditPayment(creditChallenge(unpaid), account);
    const gone = Promise.withResolvers<void>();
    const { origin } = rig;
    rig.origin = async (arrived, reply) => {
      if (arrived.headers['x-pay-usage'] !== 'none') await gone.promise;
      await origin(arrived, reply);
    };
    answerPaid = () => json(201, { id: 'wat_1' });
    const caller = new AbortController();
    const lost = fetch(url, { ...init, headers, signal: caller.signal }).catch((error: Error) => error.name);
    await expect.poll(() => forwards().length).toBe(2);
    caller.abort();
    expect(await lost).toBe('AbortError');
    // The platform may hear of it before the origin answers.
    await expect.poll(() => rig.waiting()).toBe(0);
    gone.resolve();
    await expect
      .poll(
        async () =>
          (await rig.sql("SELECT 1 FROM ledger_transactions WHERE kind = 'capture' AND account = ?", account.id))
            .length,
      )
      .toBe(1);
    const again = await fetch(url, { ...init, headers });
    expect([again.status, await again.json()]).toEqual([201, { id: 'wat_1' }]);
    expect(forwards()).toHaveLength(2);
    expect(await balanceOf(rig, account)).toBe(0);
  });

  test('a hold that nobody comes back for is given back by the sweep', async () => {
    const account = await funded('0.25');
    const url = `${rig.pay}/deals/v1/watches`;
    answerPaid = () => 'hang';
    const lost = payFromCredit(url, account, { method: 'POST', body: '{}' }).catch(() => undefined);
    await expect.poll(() => forwards().length).toBe(2);
    await rig.restart();
    await lost;
    await rig.sweep();
    expect(await balanceOf(rig, account)).toBe(0);
    await rig.sql('UPDATE holds SET created_at = created_at - 3600000 WHERE settled_at IS NULL');
    await rig.sweep();
    expect(await balanceOf(rig, account)).toBe(250_000);
  });
});

test('a credential with a cap spends no more in a day, and cannot get around it', async () => {
  const account = await funded('5.00');
  const call = (path: string, method: string, body: object | undefined, who = account) =>
    fetch(`${rig.pay}/me${path}`, {
      method,
      headers: bearer(who),
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  const made = await call('/credentials', 'POST', { label: 'agent', dailyCapUsd: '0.30' });
  const { id, credential } = (await made.json()) as { id: string; credential: string };
  const capped = { id: account.id, credential };
  const pay = () => payFromCredit(`${rig.pay}/deals/v1/deals`, capped);
  expect([(await pay()).status, (await pay()).status]).toEqual([200, 200]);
  const refused = await pay();
  expect(refused.status).toBe(429);
  expect(await refused.json()).toMatchObject({ code: 'spend_cap_reached', priceMicroUsd: '150000' });
  const { credentials } = (await (await call('/credentials', 'GET', undefined)).json()) as {
    credentials: { id: string }[];
  };
  const own = credentials[0]?.id;
  expect({ credentials }).toMatchObject({
    credentials: [{ dailyCapUsd: null }, { id, label: 'agent', dailyCapUsd: '0.30', spentTodayUsd: '0.30' }],
  });
  for (const [path, method, body] of [
    ['/credentials', 'POST', { label: 'another' }],
    [`/credentials/${id}`, 'PUT', { dailyCapUsd: null }],
    [`/credentials/${own}`, 'DELETE', undefined],
    ['/claim', 'POST', undefined],
  ] as const)
    expect([path, (await call(path, method, body, capped)).status]).toEqual([path, 403]);
  for (const dailyCapUsd of ['0', '-1', 'much', 3, {}])
    expect((await call(`/credentials/${id}`, 'PUT', { dailyCapUsd })).status).toBe(400);
  expect((await call(`/credentials/${id}`, 'PUT', {})).status).toBe(400);
  expect((await call(`/credentials/${id}`, 'PUT', { dailyCapUsd: '0.60' })).status).toBe(204);
  expect((await pay()).status).toBe(200);
  expect((await call(`/credentials/${id}`, 'DELETE', undefined, capped)).status).toBe(204);
});

test('a charge is disputed, and given back once, out of what the service has earned', async () => {
  const account = await funded('1.00');
  const paid = await payFromCredit(`${rig.pay}/deals/v1/deals`, account);
  const requestId = paid.headers.get('x-request-id') ?? '';
  const dispute = (body: object, who = account) =>
    fetch(`${rig.pay}/me/disputes`, { method: 'POST', headers: bearer(who), body: JSON.stringify(body) });
  const listed = async () =>
    (await (await fetch(`${rig.pay}/me/disputes`, { headers: bearer(account) })).json()) as { disputes: object[] };
  const reason = 'it was empty <script>';
  expect((await dispute({ requestId, reason })).status).toBe(204);
  expect((await dispute({ requestId, reason: 'again' })).status).toBe(204);
  expect((await dispute({ requestId, reason }, await funded('1.00'))).status).toBe(404);
  for (const bad of [{ requestId }, { reason }, { requestId: 'req_none', reason }, { requestId, reason: ' ' }])
    expect([400, 404]).toContain((await dispute(bad)).status);
  const about = { accountId: account.id, requestId, serviceSlug: 'deals', amountUsd: '0.15', reason, state: 'open' };
  expect(await listed()).toMatchObject({ disputes: [about] });
  expect(await (await operator(rig, 'GET', '/disputes')).json()).toMatchObject({ disputes: [about] });
  const before = await balanceOf(rig, account);
  const refund = () => operator(rig, 'POST', '/refunds', { accountId: account.id, requestId, note: 'sorry' });
  const answers = await Promise.all([refund(), refund(), refund()]);
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 201]);
  expect((await balanceOf(rig, account)) - before).toBe(150_000);
  expect(await listed()).toMatchObject({ disputes: [{ state: 'refunded', note: 'sorry' }] });
  const late = await operator(rig, 'POST', '/disputes/refuse', { accountId: account.id, requestId, note: 'no' });
  expect(late.status).toBe(404);
  expect(await ledgerIsSound(rig)).toBe(true);
});

test('a dispute of what was given back, before it or in the same moment, is none that is open', async () => {
  const account = await funded('1.00');
  for (const atOnce of [false, true, true, true]) {
    const paid = await payFromCredit(`${rig.pay}/deals/v1/deals`, account);
    const requestId = paid.headers.get('x-request-id') ?? '';
    const refund = operator(rig, 'POST', '/refunds', { accountId: account.id, requestId, note: 'sorry' });
    if (!atOnce) await refund;
    const body = JSON.stringify({ requestId, reason: 'it was empty' });
    const dispute = fetch(`${rig.pay}/me/disputes`, { method: 'POST', headers: bearer(account), body });
    expect([(await refund).status, (await dispute).status]).toEqual([201, 204]);
  }
  const listed = await (await fetch(`${rig.pay}/me/disputes`, { headers: bearer(account) })).json();
  expect((listed as { disputes: { state: string }[] }).disputes.map(({ state }) => state)).toEqual(
    Array(4).fill('refunded'),
  );
  expect(await balanceOf(rig, account)).toBe(1_000_000);
});

describe('paid from credit at once', () => {
  const upTo = (account: TestAccount, key: string, most = '1.00', more: object = {}) => ({
    ...more,
    headers: { ...bearer(account), 'x-pay-up-to': most, 'idempotency-key': key },
  });

  test('one request pays what the origin asks; the very same call is priced once, and a repetition costs nothing', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/deals?q=at-once`;
    for (const key of ['a', 'b']) expect((await fetch(url, upTo(account, key))).status).toBe(200);
    const paid = '[{"meterSlug":"deal_query","quantity":1}]';
    expect(usages()).toEqual(['none', paid, paid]);
    const again = await fetch(url, upTo(account, 'a'));
    expect(again.headers.get('idempotent-replay')).toBe('true');
    expect((await fetch(`${url}2`, upTo(account, 'a'))).status).toBe(409);
    expect((await fetch(`${url}2`, upTo(account, 'c'))).status).toBe(200);
    expect(usages().slice(3)).toEqual(['none', paid]);
    const other = await funded('1.00');
    expect((await fetch(url, upTo(other, 'a'))).status).toBe(200);
    expect(usages().slice(5)).toEqual(['none', paid]);
    expect([await balanceOf(rig, account), await balanceOf(rig, other)]).toEqual([550_000, 850_000]);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('what costs more is the usual 402; a key, an amount and a credential are asked for; free answers are free', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/deals?q=dear`;
    for (const key of ['a', 'b']) {
      const dear = await fetch(url, upTo(account, key, '0.10'));
      expect(dear.status).toBe(402);
      const headers = creditPayment(creditChallenge(dear), account);
      expect((await fetch(url, { headers })).status).toBe(200);
    }
    const refused = async (headers: Record<string, string>) => (await fetch(url, { headers })).status;
    expect(await refused({ ...bearer(account), 'x-pay-up-to': '1.00' })).toBe(400);
    expect(await refused({ ...bearer(account), 'x-pay-up-to': '1e3', 'idempotency-key': 'c' })).toBe(400);
    expect(await refused({ 'x-pay-up-to': '1.00', 'idempotency-key': 'c' })).toBe(401);
    await rig.sql('UPDATE credentials SET revoked_at = 1 WHERE account_id = ?', account.id);
    expect((await fetch(url, upTo(account, 'd'))).status).toBe(401);
    const fresh = await anonymous(rig);
    expect(await (await fetch(`${rig.pay}/deals/v1/free`, upTo(fresh, 'e'))).json()).toEqual({ free: fresh.id });
    expect((await fetch(url, upTo(fresh, 'f'))).status).toBe(402);
    expect(await balanceOf(rig, account)).toBe(700_000);
  });

  test('an origin that asks again for what was paid by a remembered price is asked for its price anew', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/deals?q=changed`;
    expect((await fetch(url, upTo(account, 'a'))).status).toBe(200);
    let asked = 0;
    answerPaid = () => (asked++ === 0 ? json(402, { usage: [] }) : json(200, {}));
    expect((await fetch(url, upTo(account, 'b'))).status).toBe(200);
    expect(usages().map((usage) => usage === 'none')).toEqual([true, false, false, true, false]);
    expect(await balanceOf(rig, account)).toBe(700_000);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('many at once on credit for three: three are paid; of one key, one', async () => {
    const account = await funded('0.45');
    const url = `${rig.pay}/deals/v1/deals?q=many`;
    const answers = await Promise.all(Array.from({ length: 20 }, (_, n) => fetch(url, upTo(account, `k${n}`))));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(3);
    expect(answers.filter(({ status }) => status === 402)).toHaveLength(17);
    expect(await balanceOf(rig, account)).toBe(0);
    await give(rig, account, '0.30');
    const same = await Promise.all(Array.from({ length: 10 }, () => fetch(url, upTo(account, 'same'))));
    expect(same.filter(({ status }) => status !== 200 && status !== 409)).toEqual([]);
    expect(await balanceOf(rig, account)).toBe(150_000);
    expect(await ledgerIsSound(rig)).toBe(true);
  });

  test('a platform that is killed while the origin works has taken nothing, and the repetition is charged once', async () => {
    const account = await funded('0.30');
    const url = `${rig.pay}/deals/v1/deals?q=killed`;
    expect((await fetch(url, upTo(account, 'a'))).status).toBe(200);
    answerPaid = () => 'hang';
    const lost = fetch(url, upTo(account, 'b')).catch(() => undefined);
    await expect.poll(() => forwards().length).toBe(3);
    await rig.restart();
    await lost;
    expect((await fetch(url, upTo(account, 'b'))).status).toBe(409);
    await rig.sql('UPDATE calls SET started_at = started_at - 600000');
    answerPaid = () => json(200, {});
    expect((await fetch(url, upTo(account, 'b'))).status).toBe(200);
    expect(forwards().at(-1)?.headers['x-pay-request-id']).toBe(forwards()[2]?.headers['x-pay-request-id']);
    expect(await balanceOf(rig, account)).toBe(0);
    expect(await ledgerIsSound(rig)).toBe(true);
  });
});

describe('answers', () => {
  test('are streamed: the first part arrives while the origin still writes', async () => {
    const account = await funded('1.00');
    let finish = () => {};
    rig.origin = (arrived, reply) => {
      if (arrived.headers['x-pay-usage'] === 'none') {
        const price = JSON.stringify({ serviceSlug: 'deals', usage: [{ meterSlug: 'deal_query', quantity: 1 }] });
        reply.writeHead(402, { 'content-type': 'application/json' }).end(price);
        return;
      }
      reply.writeHead(200, { 'content-type': 'text/event-stream' });
      reply.write('data: 1\n\n');
      finish = () => reply.end('data: 2\n\n');
    };
    const answer = await payFromCredit(`${rig.pay}/deals/v1/stream`, account);
    const reader = answer.body?.getReader();
    const first = await reader?.read();
    expect(new TextDecoder().decode(first?.value)).toBe('data: 1\n\n');
    finish();
    expect(new TextDecoder().decode((await reader?.read())?.value)).toBe('data: 2\n\n');
    expect(await balanceOf(rig, account)).toBe(850_000);
  });

  test('are kept as long as there is room: the newest stay, and an older call is still not paid twice', async () => {
    const account = await funded('1.00');
    const url = `${rig.pay}/deals/v1/deals?q=kept`;
    const headers = creditPayment(creditChallenge(await fetch(url, { headers: bearer(account) })), account);
    expect((await fetch(url, { headers })).status).toBe(200);
    await rig.sweep();
    expect((await fetch(url, { headers })).status).toBe(200);
    const far = Date.now() + 86_400_000;
    await rig.sql(
      `INSERT INTO calls (key, request_hash, request_id, state, status, body, started_at, keep_until)
       VALUES ('large', '', '', 'done', 200, zeroblob(67108864), ?, ?)`,
      far,
      far,
    );
    await rig.sweep();
    const again = await fetch(url, { headers });
    expect(again.status).toBe(409);
    expect(await again.text()).toContain('not kept any more');
    expect(await balanceOf(rig, account)).toBe(850_000);
    await rig.sql("DELETE FROM calls WHERE key = 'large'");
  });

  test('set no cookies, and bodies above the limit are refused before anything is forwarded', async () => {
    answerPaid = () => json(200, {}, { 'set-cookie': 'evil=1; Path=/' });
    const account = await funded('1.00');
    const answer = await payFromCredit(`${rig.pay}/deals/v1/deals`, account);
    expect(answer.status).toBe(200);
    expect(answer.headers.get('set-cookie')).toBeNull();
    rig.arrived.length = 0;
    const large = await fetch(`${rig.pay}/deals/v1/watches`, { method: 'POST', body: 'x'.repeat(1_100_000) });
    expect([large.status, await large.text()]).toEqual([413, expect.stringContaining('too_large')]);
    expect(rig.arrived).toHaveLength(0);
  });
});
