/**
 * Each place of a real host where something is sold, paid by stock clients, and the payment shown at each other place:
 * as it is, and with its signed part under that place’s own offer. Only where it was made is it answered once more.
 */
import { Challenge, Credential } from 'mppx';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type RunningEngine, startEngine } from '../speech/harness/programs.ts';
import {
  account,
  balances,
  batchFetch,
  type Fetch,
  jsonPost,
  mppFetch,
  mppSessionFetch,
  x402Fetch,
} from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { bearer, creditChallenge, creditPayment, type TestAccount } from './support/pay-callers.ts';
import { until } from './support/until.ts';

/** `all`: every place is paid at, those too that differ from another by a query or their owner alone. */
const { PAIRS } = process.env;
const PRICE = '0.05';
/** Sells at a price of its own, and behind the pay platform. `/quote` is a shop whose prices are made at run time. */
const SHOP = `
const post = (env, path, body, headers) => env.PAYMENTS.fetch('http://payments' + path, { method: 'POST', headers, body: JSON.stringify(body) });
let count = 0;
export default {
  async fetch(request, env) {
    const { pathname, search } = new URL(request.url);
    if (pathname === '/internal/pay-events') return new Response(null, { status: 204 });
    const usage = request.headers.get('x-pay-usage');
    if (usage === 'none') return Response.json({ serviceSlug: 'shop', usage: [{ meterSlug: 'look', quantity: 1 }] }, { status: 402 });
    if (pathname !== '/quote') return Response.json({ work: ++count }, { headers: { 'set-cookie': 'a=b', 'clear-site-data': '"*"' } });
    const bind = search, amount = '${PRICE}';
    const verified = await post(env, '/verify', { bind, amount, resource: request.url }, request.headers);
    if (!verified.ok) return post(env, '/challenge', { bind, amount, resource: request.url });
    const { hold } = await verified.json();
    const captured = await post(env, '/capture', { hold, amount });
    if (!captured.ok) return captured;
    const { headers } = await captured.json();
    return Response.json({ work: ++count }, { headers });
  },
};`;

interface Place {
  name: string;
  path: string;
  init: RequestInit;
}

let host: TestHost;
let engine: RunningEngine;
let customer: TestAccount;

beforeAll(async () => {
  engine = await startEngine();
  host = await startHost({
    builtins: ['pay', 'speech'],
    flags: {
      'prices-deploy': PRICE,
      'prices-renew': PRICE,
      'runtime-egress-allow': JSON.stringify({ speech: [`unix:${engine.socket}`] }),
      'builtin-tenants-secrets': JSON.stringify({ speech: { PAY_NETWORK: 'local' } }),
    },
  });
  for (const slug of ['pay', 'speech'])
    await until(async () => ((await fetch(`${host.url}/${slug}/healthz`)).ok ? true : undefined), host.output);
  for (const slug of ['shop', 'other'])
    await mppFetch(host.network, 1)(
      `${host.url}/_admin/deploy`,
      jsonPost({
        slug,
        code: SHOP,
        bindings: { payments: true },
        paidRoutes: [
          { method: 'GET', path: '/fixed', price: PRICE },
          { method: 'POST', path: '/post', price: PRICE },
          { method: 'GET', path: '/metered', price: PRICE, mode: 'metered' },
        ],
      }),
    );
  const set = async (path: string, body: object) => {
    const { status, text } = await host.operator('PUT', `/pay/services/shop${path}`, body);
    expect(status, text).toBeLessThan(300);
  };
  await set('', { origin: '{app_url}/shop', name: 'The shop' });
  await set('/meters/look', { priceUsd: PRICE, description: 'One look' });
  await set('/plans/default', { minimumUsd: PRICE });
  const registered = (await (await fetch(`${host.url}/pay/accounts/anonymous`, { method: 'POST' })).json()) as {
    accountId: string;
    credential: string;
  };
  customer = { id: registered.accountId, credential: registered.credential };
  await host.operator('POST', '/pay/grants', { accountId: customer.id, amountUsd: '1.00' });
});
afterAll(async () => {
  await host?.stop();
  await engine?.stop();
});

/** A test that is tried again deploys another slug. */
let tries = 0;

function placesFor(kind: string): Place[] {
  const get = {};
  return [
    { name: 'deploy', path: '/_admin/deploy', init: jsonPost({ slug: `by-${kind}-${++tries}`, code: SHOP }) },
    { name: 'renew', path: '/_admin/renew/shop', init: { method: 'POST' } },
    { name: 'renew of another', path: '/_admin/renew/other', init: { method: 'POST' } },
    { name: 'route', path: '/shop/fixed', init: get },
    { name: 'route with a query', path: '/shop/fixed?x=1', init: get },
    { name: 'route with a body', path: '/shop/post', init: jsonPost({ a: 1 }) },
    { name: 'route with another body', path: '/shop/post', init: jsonPost({ a: 2 }) },
    { name: 'metered route', path: '/shop/metered', init: get },
    { name: 'metered route with a query', path: '/shop/metered?x=1', init: get },
    { name: 'metered route of another tenant', path: '/other/metered', init: get },
    { name: 'route of another tenant', path: '/other/fixed', init: get },
    { name: 'own challenge', path: '/shop/quote?a', init: get },
    { name: 'own challenge for more', path: '/shop/quote?b', init: get },
    { name: 'own challenge of another tenant', path: '/other/quote?a', init: get },
    { name: 'call of the gateway', path: '/pay/shop/a', init: get },
    { name: 'another call of the gateway', path: '/pay/shop/b', init: get },
    {
      name: 'credit',
      path: '/pay/shop/plans/default/purchase',
      init: jsonPost({ amountUsd: PRICE }, bearer(customer)),
    },
    { name: 'speech', path: '/speech/v1/speak', init: jsonPost({ text: 'One plain sentence.' }) },
  ];
}

/** What a client sends and what it is answered, but for what it pays with. */
function recorder() {
  const sent: Record<string, string> = {};
  const sender = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    for (const name of ['authorization', 'payment-signature']) {
      const value = request.headers.get(name);
      if (value !== null && !value.startsWith('Bearer')) sent[name] = value;
    }
    return fetch(request);
  };
  return { sent, sender: sender as typeof fetch };
}

const PAYERS = {
  mpp: (sender: typeof fetch): Fetch => mppFetch(host.network, 1, sender),
  x402: (sender: typeof fetch): Fetch => x402Fetch(host.network, 1, sender),
  batch: (sender: typeof fetch): Fetch => batchFetch(host.network, 5, sender),
  session:
    (sender: typeof fetch): Fetch =>
    async (input, init) =>
      (await mppSessionFetch(host.network, 3, sender))(input, init),
  credit:
    (sender: typeof fetch): Fetch =>
    async (input, init) => {
      const unpaid = await fetch(input, { ...init, headers: { ...(init?.headers as object), ...bearer(customer) } });
      const challenge = creditChallenge(unpaid);
      if (!challenge) return unpaid;
      return sender(input, {
        ...init,
        headers: { ...(init?.headers as object), ...creditPayment(challenge, customer) },
      });
    },
} satisfies Record<string, (sender: typeof fetch) => Fetch>;
const WALLETS = { mpp: 1, x402: 1, batch: 5, session: 3, credit: 0 };

async function wealth(kind: keyof typeof PAYERS): Promise<bigint> {
  const { mpp, x402 } = await balances(host.network, account(host.network, WALLETS[kind]).address);
  return mpp + x402;
}

async function show({ path, init }: Place, headers: Record<string, string>): Promise<Response> {
  return fetch(`${host.url}${path}`, { ...init, headers: { ...(init.headers as object), ...headers } });
}

/** The signed part of a payment under the offer of another place. */
async function grafted(place: Place, sent: Record<string, string>): Promise<Record<string, string> | undefined> {
  const unpaid = await show(place, {});
  await unpaid.body?.cancel();
  if (sent['payment-signature']) {
    const offered = unpaid.headers.get('payment-required');
    if (!offered) return undefined;
    const decoded = JSON.parse(Buffer.from(offered, 'base64').toString());
    const payment = JSON.parse(Buffer.from(sent['payment-signature'], 'base64').toString());
    const accepted =
      decoded.accepts.find(({ scheme }: { scheme: string }) => scheme === payment.accepted.scheme) ??
      decoded.accepts[0];
    const changed = { ...payment, accepted, resource: decoded.resource };
    return { 'payment-signature': Buffer.from(JSON.stringify(changed)).toString('base64') };
  }
  if (!/(?:^|, )Payment /.test(unpaid.headers.get('www-authenticate') ?? '')) return undefined;
  const credential = Credential.deserialize(sent.authorization ?? '');
  const challenge = Challenge.fromHeadersList(unpaid.headers).find(
    ({ method, intent }) => method === credential.challenge.method && intent === credential.challenge.intent,
  );
  return challenge && { authorization: Credential.serialize({ ...credential, challenge } as never) };
}

/** Twins of other places: a payment is shown there, and paid there where PAIRS asks for all. */
const TWINS = /another|more|with a query/;

/** Where a payment of this kind is taken. */
const SOLD: Record<keyof typeof PAYERS, (place: Place) => boolean> = {
  mpp: () => true,
  x402: () => true,
  batch: ({ name }) => /route|speech/.test(name),
  session: ({ name }) => /metered|speech/.test(name),
  credit: ({ name }) => name.includes('gateway'),
};

test.each(Object.keys(PAYERS) as (keyof typeof PAYERS)[])('what was paid by %s', async (kind) => {
  const places = placesFor(kind);
  const paidAt = places.filter((place) => SOLD[kind](place) && (PAIRS === 'all' || !TWINS.test(place.name)));
  for (const paid of paidAt) {
    const { sent, sender } = recorder();
    const first = await PAYERS[kind](sender)(`${host.url}${paid.path}`, paid.init);
    const body = await first.text();
    expect(first.status, `${paid.name}: ${body}`).toBeLessThan(300);
    const before = await wealth(kind);
    for (const shown of places) {
      if (shown === paid) continue;
      for (const headers of [sent, await grafted(shown, sent)]) {
        if (!headers) continue;
        const answer = await show(shown, headers);
        const what = `${paid.name} at ${shown.name}${headers === sent ? '' : ', grafted'}: ${await answer.text()}`;
        // 409: the pay platform knows the credential as that of another call.
        expect([402, 409], what).toContain(answer.status);
        expect(answer.headers.has('x-payment-replayed'), what).toBe(false);
        expect(answer.headers.has('set-cookie'), what).toBe(false);
      }
    }
    const again = await show(paid, sent);
    // A shop with prices of its own keeps no answers: the payment cannot be captured for another call.
    if (paid.path.includes('/quote')) expect(again.status, paid.name).toBe(409);
    else expect([again.status, await again.text()], paid.name).toEqual([first.status, body]);
    // What was held and not used may come back meanwhile.
    expect(await wealth(kind)).toBeGreaterThanOrEqual(before);
  }
});
