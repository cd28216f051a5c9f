/** Payments that were begun before places were noted: whoever shows one again is not asked to pay again. */
import { createHash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import pino from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { prepareOffers } from '../../host/payments/challenge.ts';
import type { Presented } from '../../host/payments/methods/method.ts';
import { PaymentService } from '../../host/payments/payment-service.ts';
import { placeOf } from '../../host/payments/settlement/again.ts';
import { Answers } from '../../host/payments/settlement/answers.ts';
import { SettlementMachine } from '../../host/payments/settlement/machine.ts';
import { PaymentStore } from '../../host/payments/settlement/payment-store.ts';
import { replay } from '../../host/payments/settlement/replay.ts';
import { type SettleResult, type Terms, termsFromText } from '../../host/payments/terms.ts';
import { openClient } from '../../host/registry/client.ts';
import { migrate, openRegistry, type Registry, readMigrations } from '../../host/registry/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { micro } from '../../host/shared/money.ts';

const PAYEE = '0x00000000000000000000000000000000000000aa';
const MIGRATIONS = fileURLToPath(new URL('../../host/registry/migrations/', import.meta.url));
const SIGNED = { signature: '0x1', authorization: { nonce: '0x2' } };
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

/** `terms` as they were written. */
const TERMS = {
  operation:
    '{"kind":"operation","name":"deploy","scope":"operation:deploy","amount":"5000000","mode":"fixed","slow":false,"feeBps":0,"description":"Deploy"}',
  route:
    '{"kind":"route","name":"GET /a","scope":"route:ta:GET /a","slug":"a","tenant":"ta","amount":"10000","mode":"fixed","slow":false,"payTo":"0x00000000000000000000000000000000000000aa","feeBps":0,"description":"a"}',
  binding:
    '{"kind":"binding","name":"env.PAYMENTS","scope":"binding:ta","slug":"a","tenant":"ta","amount":"10000","mode":"metered","slow":true,"payTo":"0x00000000000000000000000000000000000000aa","feeBps":0,"description":"x","meta":{"bind":"b","token":"t.m"}}',
};
type Kind = keyof typeof TERMS;
const KINDS = Object.keys(TERMS) as Kind[];
const RAILS = ['tempo/charge', 'x402/exact'] as const;
type RailName = (typeof RAILS)[number];
const STATES = ['working', 'settling', 'settled', 'answered'];

let folder: string;
let registry: Registry;
let machine: SettlementMachine;
let chain: SettleResult;
let settled = 0;

const idOf = (rail: RailName, kind: Kind, state: string) => `${rail}-${kind}-${state}`;

beforeAll(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tp-rows-'));
  const file = path.join(folder, 'registry.db');
  const before = await openClient(file);
  await migrate(
    before,
    (await readMigrations(MIGRATIONS)).filter(({ name }) => name < '0201'),
  );
  for (const rail of RAILS)
    for (const kind of KINDS)
      for (const state of STATES) {
        const id = idOf(rail, kind, state);
        const { name, scope, slug, tenant, amount } = termsFromText(TERMS[kind]);
        const charged = state === 'settling' || state === 'settled' || state === 'answered' ? Number(amount) : null;
        const answer = state === 'answered' ? [200, '[["x-first","1"]]', Buffer.from(id), 1] : [null, null, null, 0];
        await before.execute({
          sql: `INSERT INTO payments (id, credential_id, credential_hash, credential, rail, kind, name, scope, slug, tenant,
            asset, payer, payer_did, recipient, pay_to, custody, authorized, charged, state, terms,
            answer_status, answer_headers, answer_body, answer_complete, created_at, updated_at)
            VALUES (?, ?, ?, 'text', ?, ?, ?, ?, ?, ?, 'eip155:1/0x1', ?, 'd', ?, ?, 'direct', ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)`,
          args: [
            `pay_${id}`,
            id,
            rail === 'x402/exact' ? sha256(JSON.stringify(SIGNED)) : `hash of ${id}`,
            ...[rail, kind, name, scope, slug ?? null, tenant ?? null, PAYEE, PAYEE, PAYEE],
            ...[Number(amount), charged, state, TERMS[kind]],
            ...answer,
          ] as never,
        });
      }
  before.close();
  registry = await openRegistry(file);
  const log = pino({ level: 'silent' });
  const budget = { tenantBytes: 1e8, totalBytes: 1e8, reserveBytes: 0 };
  const store = new PaymentStore(
    registry,
    new AdjustableClock(),
    new Answers(path.join(folder, 'answers'), budget, log),
  );
  const rails = RAILS.map((name) => ({
    name,
    asset: 'eip155:1/0x1',
    offer: () => undefined,
    verify: async () => {
      throw new Error('it was not known');
    },
    settle: async (): Promise<SettleResult> => {
      settled += 1;
      return { status: 'settled', reference: '0x1' };
    },
    reconcile: async () => chain,
  }));
  machine = new SettlementMachine({ store, rails, channels: undefined, log });
});
afterAll(async () => {
  registry.close();
  await rm(folder, { recursive: true, force: true });
});

function show(rail: RailName, kind: Kind, state: string, change: Partial<Terms> = {}, signed: object = SIGNED) {
  const id = idOf(rail, kind, state);
  const presented = {
    ...{ rail, id, text: 'text' },
    ...(rail === 'x402/exact'
      ? { via: 'x402', hash: 'of all of it', payload: { x402Version: 2, accepted: {}, payload: signed } }
      : { via: 'mpp', hash: signed === SIGNED ? `hash of ${id}` : 'another' }),
  } as unknown as Presented;
  return machine
    .admit({
      caller: 'test',
      presented,
      prepared: prepareOffers({ ...termsFromText(TERMS[kind]), ...change }, []),
      asked: { realm: 'h', resource: 'https://h/', digest: undefined, now: Date.now() },
      place: placeOf(['anywhere'], Buffer.alloc(0)),
      idempotencyKey: undefined,
      state: 'working',
    })
    .catch((error) => ({ kind: (error as { code?: string }).code ?? String(error) }));
}

test.each(RAILS)('%s: shown for something else, or by another, it pays nothing', async (rail) => {
  chain = { status: 'unknown', reason: 'the chain is slow' };
  for (const kind of KINDS)
    for (const state of STATES) {
      const others: Partial<Terms>[] = [{ scope: 'operation:renew:a' }, { amount: micro(1n) }, { meta: { bind: 'c' } }];
      for (const other of others) expect((await show(rail, kind, state, other)).kind).toBe('payment_invalid');
      expect((await show(rail, kind, state, {}, { signature: '0x9' })).kind).toBe('payment_invalid');
    }
});

test.each(RAILS)('%s: shown again it is pending, then done, and never to be paid again', async (rail) => {
  for (const kind of KINDS) {
    chain = { status: 'unknown', reason: 'the chain is slow' };
    expect((await show(rail, kind, 'settling')).kind).toBe('payment_pending');
    chain = { status: 'settled', reference: '0x1' };
    for (const state of STATES) {
      const shown = await show(rail, kind, state);
      expect(shown.kind, `${kind} ${state}`).toBe('replay');
      if (!('again' in shown) || state !== 'answered') continue;
      const answer = await replay(shown.again, machine.store, 'r', (headers) => headers);
      // Where a handler answered is not known, so that its answer is given nowhere.
      if (kind === 'operation') expect(await answer.text()).toBe(idOf(rail, kind, state));
      else expect([answer.status, ((await answer.json()) as { code: string }).code]).toEqual([409, 'conflict']);
    }
  }
  expect(settled).toBe(0);
});

test('a hold that was captured is captured for no other handle', async () => {
  const service = new PaymentService({ machine, log: pino({ level: 'silent' }) } as never);
  const app = service.app({ tenant: 'ta', slug: 'a', payTo: PAYEE });
  const hold = `pay_${idOf('x402/exact', 'binding', 'answered')}`;
  const capture = (handle: string) =>
    app.request('/capture', { method: 'POST', body: JSON.stringify({ hold: handle, amount: '0.01' }) });
  expect((await capture(`${hold}.other`)).status).toBe(409);
  expect((await capture(hold)).status).toBe(200);
});
