/** Every place where a payment was used, and every place where it is shown once more: only the same one is answered again. */

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { PaymentRequest } from 'mppx';
import pino from 'pino';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { prepareOffers } from '../../host/payments/challenge.ts';
import type { Presented, Rail } from '../../host/payments/methods/method.ts';
import { challengeMeta, type MppOffer } from '../../host/payments/methods/tempo/offer.ts';
import type { X402Offer } from '../../host/payments/methods/x402/offer.ts';
import { type Place, placeOf } from '../../host/payments/settlement/again.ts';
import { Answers } from '../../host/payments/settlement/answers.ts';
import { SettlementMachine } from '../../host/payments/settlement/machine.ts';
import { PaymentStore } from '../../host/payments/settlement/payment-store.ts';
import type { Terms } from '../../host/payments/terms.ts';
import type { RailName } from '../../host/payments/types.ts';
import type { Registry } from '../../host/registry/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { micro } from '../../host/shared/money.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const PAYEE = '0x00000000000000000000000000000000000000aa';
const RAILS: RailName[] = ['tempo/charge', 'tempo/session', 'x402/exact', 'x402/upto'];
const quiet = pino({ level: 'silent' });

const ASSET = 'eip155:1/0x1';

let folder: string;
let registry: Registry;
let machine: SettlementMachine;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tp-pairs-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  const budget = { tenantBytes: 1e8, totalBytes: 1e8, reserveBytes: 0 };
  const answers = new Answers(path.join(folder, 'answers'), budget, quiet);
  const store = new PaymentStore(registry, new AdjustableClock(), answers);
  machine = new SettlementMachine({ store, rails: RAILS.map(rail), channels: undefined, log: quiet });
});
afterAll(async () => {
  registry.close();
  await rm(folder, { recursive: true, force: true });
});

/** A chain that takes everything; whom it pays and what for is not its business. */
function rail(name: RailName): Rail {
  return {
    name,
    asset: ASSET,
    offer: () => undefined,
    verify: async () => ({
      payer: { address: PAYEE, did: `did:pkh:eip155:1:${PAYEE}` },
      settleBefore: Number.POSITIVE_INFINITY,
    }),
    settle: async () => ({ status: 'settled', reference: '0x1' }),
    reconcile: async () => ({ status: 'settled', reference: '0x1' }),
  };
}

function offerOf(name: RailName, terms: Terms): MppOffer | X402Offer {
  const base = { rail: name, asset: ASSET, custody: 'direct', recipient: PAYEE, payTo: PAYEE } as const;
  const amount = terms.amount.toString();
  if (name === 'tempo/charge' || name === 'tempo/session')
    return {
      ...base,
      via: 'mpp',
      method: 'tempo',
      intent: name === 'tempo/charge' ? 'charge' : 'session',
      request: { amount, currency: '0x1', recipient: PAYEE },
    };
  const scheme = name === 'x402/exact' ? 'exact' : 'upto';
  return {
    ...base,
    via: 'x402',
    requirements: { scheme, network: 'eip155:1', asset: '0x1', amount, payTo: PAYEE, maxTimeoutSeconds: 60, extra: {} },
  };
}

interface Shop {
  name: string;
  terms: Terms;
  place: Place;
}

function shop(name: string, terms: Partial<Terms>, where: string[], body = ''): Shop {
  const full: Terms = {
    kind: 'route',
    name: 'GET /a',
    scope: 'route:ta:GET /a',
    slug: 'a',
    tenant: 'ta',
    amount: micro(10_000n),
    mode: 'fixed',
    slow: false,
    payTo: PAYEE,
    feeBps: 0,
    description: name,
    sku: undefined,
    pricingVersion: undefined,
    ...terms,
  };
  return { name, terms: full, place: placeOf(where, Buffer.from(body)) };
}

const operation = (scope: string): Partial<Terms> => ({
  kind: 'operation',
  name: scope.split(':')[0] ?? '',
  scope: `operation:${scope}`,
  slug: undefined,
  tenant: undefined,
});
const binding = (meta: Record<string, string>, amount = 10_000n): Partial<Terms> => ({
  kind: 'binding',
  name: 'env.PAYMENTS',
  scope: 'binding:ta',
  mode: 'metered',
  amount: micro(amount),
  meta,
});

const SHOPS: Shop[] = [
  shop('deploy', operation('deploy'), ['operation', 'control', '', 'POST', '/_admin/deploy'], 'a'),
  shop('deploy of something else', operation('deploy'), ['operation', 'control', '', 'POST', '/_admin/deploy'], 'b'),
  shop('renew A', operation('renew:a'), ['operation', 'control', '', 'POST', '/_admin/renew/a']),
  shop('renew B', operation('renew:b'), ['operation', 'control', '', 'POST', '/_admin/renew/b']),
  shop('renew A at its own address', operation('renew:a'), ['operation', 'path', 'a', 'GET', '/a']),
  shop('route', {}, ['call', 'path', 'a', 'GET', '/a']),
  shop('route of a subdomain', {}, ['call', 'subdomain', 'a', 'GET', '/a']),
  shop('route with another query', {}, ['call', 'path', 'a', 'GET', '/a?x=1']),
  shop('route with another body', {}, ['call', 'path', 'a', 'GET', '/a'], 'more'),
  shop('WebSocket of the route', {}, ['socket', 'path', 'a', 'GET', '/a']),
  shop('other route', { name: 'GET /b', scope: 'route:ta:GET /b' }, ['call', 'path', 'a', 'GET', '/b']),
  shop('route of B', { scope: 'route:tb:GET /a', slug: 'b', tenant: 'tb' }, ['call', 'path', 'b', 'GET', '/a']),
  shop('metered route', { name: 'GET /m', scope: 'route:ta:GET /m', mode: 'metered' }, [
    'call',
    'path',
    'a',
    'GET',
    '/m',
  ]),
  shop('bind X (a call of pay)', binding({ bind: 'x' }), ['binding', 'a', 'https://h/a'], 'x'),
  shop('bind Y (credit of pay)', binding({ bind: 'y' }), ['binding', 'a', 'https://h/a'], 'y'),
  shop('bind X at another resource', binding({ bind: 'x' }), ['binding', 'a', 'https://h/other'], 'x'),
  shop('other metadata', binding({ bind: 'x', 'm.order': '2' }), ['binding', 'a', 'https://h/a'], 'x'),
  shop('other amount', binding({ bind: 'x' }, 20_000n), ['binding', 'a', 'https://h/a'], 'x'),
];

/** What a seller may change while a payment for it is under way. */
const CHANGES: [string, Partial<Terms>][] = [
  ['a higher price', { amount: micro(5_000_000n) }],
  ['a lower price', { amount: micro(1n) }],
  ['another version of its price', { pricingVersion: 2 }],
  ['another payee', { payTo: '0x00000000000000000000000000000000000000bb' }],
  ['a metered price', { mode: 'metered' }],
];

/** The credential of one payment, as a caller shapes it for a place: all that its signature does not cover is the caller's. */
function credential(name: RailName, at: Shop, id: string, hash = id): Presented {
  const offer = offerOf(name, at.terms);
  if (offer.via === 'x402') {
    const payload = { x402Version: 2, accepted: offer.requirements, payload: {} };
    return { via: 'x402', rail: name, id, hash, text: id, payload } as unknown as Presented;
  }
  const challenge = { realm: 'h', request: offer.request, expires: '2999-01-01T00:00:00Z' };
  const meta = challengeMeta(at.terms, 'n');
  const request = PaymentRequest.serialize(challenge.request as never);
  return {
    via: 'mpp',
    rail: name,
    id,
    hash,
    text: id,
    credential: { challenge },
    request,
    meta,
  } as unknown as Presented;
}

function show(presented: Presented, at: Shop, idempotencyKey?: string) {
  const prepared = prepareOffers(at.terms, [offerOf(presented.rail, at.terms)]);
  return machine.admit({
    caller: 'test',
    presented,
    prepared,
    asked: { realm: 'h', resource: 'https://h/', digest: undefined, now: Date.now() },
    place: at.place,
    idempotencyKey,
    state: at.terms.kind === 'operation' ? 'verified' : 'working',
  });
}

/** Pays, and leaves the payment in a state. */
async function pay(name: RailName, at: Shop, id: string, key: string | undefined, state: string): Promise<void> {
  const admitted = await show(credential(name, at, id), at, key);
  if (admitted.kind !== 'work') throw new Error('the payment was known');
  const { store } = machine;
  if (state === 'answered') {
    const answer = { status: 200, headers: [], body: Buffer.from(at.name) };
    await store.answered(await machine.take(admitted.row, at.terms.amount, { answer }), answer, false);
  } else if (state === 'settling') {
    // As a kill leaves it.
    await store.settling(admitted.row, { charged: at.terms.amount });
  }
  admitted.done();
}

const code = (error: unknown) => (error as { code?: string }).code;
let count = 0;

describe.each(RAILS)('%s', (name) => {
  test.each(['answered', 'settling', 'working'])('the same credential of a payment that is %s', async (state) => {
    for (const paid of SHOPS) {
      const id = `c${++count}`;
      await pay(name, paid, id, undefined, state);
      for (const shown of SHOPS) {
        if (shown === paid) continue;
        const outcome = await show(credential(name, shown, id), shown).then(({ kind }) => kind, code);
        expect(outcome, `${paid.name} at ${shown.name}`).toBe('payment_invalid');
        const changed = await show(credential(name, shown, id, 'changed'), shown).then(({ kind }) => kind, code);
        expect(changed, `${paid.name} at ${shown.name}, changed`).toBe('payment_invalid');
      }
      const again = await show(credential(name, paid, id), paid);
      expect(again.kind, paid.name).toBe('replay');
      if (again.kind === 'replay' && state === 'answered')
        expect((await machine.store.kept.find(again.again))?.body.toString(), paid.name).toBe(paid.name);
    }
  });

  test.each(CHANGES)('%s does not ask who paid before to pay again', async (_change, terms) => {
    for (const paid of SHOPS.filter(({ terms: { kind } }) => kind !== 'binding'))
      for (const state of ['answered', 'settling']) {
        const id = `c${++count}`;
        const presented = credential(name, paid, id);
        const key = `k${id}`;
        await pay(name, paid, id, key, state);
        const now = { ...paid, terms: { ...paid.terms, ...terms } };
        expect((await show(presented, now)).kind, `${paid.name}, ${state}`).toBe('replay');
        expect((await show(credential(name, now, `${id}+`), now, key)).kind, `${paid.name}, ${state}, key`).toBe(
          'replay',
        );
        for (const shown of SHOPS) {
          if (shown === paid) continue;
          const elsewhere = { ...shown, terms: { ...shown.terms, ...terms } };
          const outcome = await show(presented, elsewhere).then(({ kind }) => kind, code);
          expect(outcome, `${paid.name} at ${shown.name}`).toBe('payment_invalid');
        }
      }
  });

  test('the same Idempotency-Key with another credential', async () => {
    for (const paid of SHOPS) {
      const key = `k${++count}`;
      await pay(name, paid, `c${count}`, key, 'answered');
      for (const shown of SHOPS) {
        const id = `c${++count}`;
        const admitted = await show(credential(name, shown, id), shown, key).catch((error) => ({ kind: code(error) }));
        const elsewhere = shown.terms.scope === paid.terms.scope ? 'idempotency_conflict' : 'work';
        expect(admitted.kind, `${paid.name} at ${shown.name}`).toBe(shown === paid ? 'replay' : elsewhere);
        if (!('row' in admitted)) continue;
        await machine.release(admitted.row, 'the next place is tried');
        admitted.done();
      }
    }
  });
});
