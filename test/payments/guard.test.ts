import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Guard } from '../../host/payments/ledger/guard.ts';
import { Sender } from '../../host/payments/outgoing/sender.ts';
import type { Wallet } from '../../host/payments/outgoing/wallets.ts';
import { Answers } from '../../host/payments/settlement/answers.ts';
import { type NewPayment, PaymentStore } from '../../host/payments/settlement/payment-store.ts';
import type { Registry } from '../../host/registry/index.ts';
import { Debts } from '../../host/registry/payments/debts.ts';
import { Invariants } from '../../host/registry/payments/invariants.ts';
import { micro, ZERO } from '../../host/shared/money.ts';
import { openTestRegistry } from '../registry/support/open.ts';

let folder: string;
let registry: Registry;
let store: PaymentStore;
let guard: Guard;
let sender: Sender;
let sent: bigint[];
let lines: Record<string, unknown>[];

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tp-guard-'));
  sent = [];
  lines = [];
  await start();
});
afterEach(async () => {
  registry.close();
  await rm(folder, { recursive: true, force: true });
});

/** As a start of the host does. */
async function start() {
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  const log = pino({ level: 'error' }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const answers = new Answers(path.join(folder, 'answers'), { tenantBytes: 0, totalBytes: 0, reserveBytes: 0 }, log);
  store = new PaymentStore(registry, { now: () => 1 } as never, answers);
  const invariants = new Invariants(registry);
  guard = new Guard(registry, (signal) => invariants.check(signal), log);
  const wallet: Wallet = {
    asset: 'a',
    batch: 10,
    operator: 'operator',
    canSign: () => true,
    send: async ({ hash }) => ({ status: 'settled', reference: hash }),
    async pay(_source, transfers, note) {
      const hash = `0x${sent.length}` as const;
      await note({ raw: hash, hash, validUntil: null });
      sent.push(transfers.reduce((sum, { amount }) => sum + amount, 0n));
      return { status: 'settled', reference: hash };
    },
  };
  sender = new Sender({
    store,
    wallets: [wallet],
    log,
    maySend: () => guard.maySend,
    debts: new Debts(store.books, () => {}),
    minPayout: ZERO,
  });
  await guard.load();
}

function payment(id: string, more: Partial<NewPayment> = {}): NewPayment {
  return {
    id: `pay_${id}`,
    credentialId: id,
    credentialHash: 'h',
    credential: null,
    rail: 'tempo/charge',
    kind: 'route',
    name: 'GET /',
    scope: 's',
    slug: 'shop',
    tenant: 't',
    asset: 'a',
    payer: 'payer',
    payerDid: 'did',
    recipient: 'host',
    payTo: 'tenant',
    custody: 'collected',
    channel: null,
    authorized: micro(100),
    feeBps: 1_000,
    terms: '{}',
    settleBefore: null,
    place: 'place',
    ...more,
  };
}

/** A collected payment that was answered: 90 and 10 are due. */
async function answered(id: string) {
  const row = await store.begin(payment(id), 'working', undefined);
  const settled = await store.settled(row, `0xs${id}`, micro(100), '{}');
  return store.answered(settled, { status: 200, headers: [], body: undefined }, false);
}

const run = (text: string) => registry.client.execute(text);
const about = () => guard.stopped()?.violations.map(({ invariant }) => invariant);

describe('books that are as they must be', () => {
  test('nothing is sent before they were looked at, and all of it afterwards', async () => {
    await answered('1');
    await sender.run();
    expect(sent).toEqual([]);
    await guard.run();
    await sender.run();
    expect(sent).toEqual([100n]);
    await guard.run();
    expect(guard.stopped()).toBeUndefined();
  });

  test('refunds of lost work and parts that are not used pass', async () => {
    const row = await store.begin(payment('1'), 'working', undefined);
    await store.refunds.owe(await store.settled(row, '0xs', undefined, '{}'), 'lost');
    const part = await store.begin(payment('2'), 'working', undefined);
    const settled = await store.settled(part, '0xt', undefined, '{}');
    await store.answered(await store.captured(settled, micro(40), undefined), undefined, false);
    const direct = await store.begin(payment('3', { custody: 'direct', recipient: 'tenant' }), 'working', undefined);
    await store.refunds.owe(await store.settled(direct, '0xu', micro(100), '{}'), 'lost');
    await guard.run();
    await sender.run();
    await guard.run();
    expect(guard.stopped()).toBeUndefined();
    expect(sent).toEqual([200n, 100n]);
  });
});

const DAMAGE: [invariant: string, how: string[]][] = [
  [
    'negative-claim',
    [
      `INSERT INTO ledger (txn, account, asset, amount, kind, at) VALUES
        ('x', 'claim:payout:mallory', 'a', -5, 'capture', 1), ('x', 'claim:payout:tenant', 'a', 5, 'capture', 1)`,
    ],
  ],
  [
    'unbalanced',
    [`INSERT INTO ledger (txn, account, asset, amount, kind, at) VALUES ('x', 'claim:fee', 'a', 5, 'c', 1)`],
  ],
  ['over-paid', [`UPDATE payment_outgoing SET amount = 95 WHERE kind = 'payout'`]],
  [
    'over-sent',
    [`UPDATE payment_outgoing SET amount = 1000 WHERE kind = 'payout'`, `UPDATE payments SET authorized = 2000`],
  ],
  [
    'paid-and-refunded',
    [
      `INSERT INTO payment_outgoing SELECT 'out_1-refund-lost', payment, 'refund', asset, source, 'payer', 1, 'owed', NULL,
        NULL, 0, NULL, 1, 1, 0, NULL, 0 FROM payment_outgoing LIMIT 1`,
    ],
  ],
  ['uncovered', [`UPDATE payment_outgoing SET covered = 0`]],
  [
    'channel',
    [
      `INSERT INTO payment_channels (id, asset, payer, payee, signer, descriptor, escrow, chain_id, state, deposit,
        voucher, voucher_signature, reserved, created_at, used_at)
        VALUES ('ch', 'a', 'p', 'h', 'p', '{}', 'e', 1, 'open', 10, 10, 's', 7, 1, 1)`,
    ],
  ],
];

describe('damaged books', () => {
  test.each(DAMAGE)('%s stops what is sent until the operator has looked', async (invariant, how) => {
    await guard.run();
    await answered('1');
    for (const text of how) await run(text);
    await guard.run();
    expect(about()).toContain(invariant);
    expect(lines).toHaveLength(1);
    await sender.run();
    await guard.run();
    expect(sent).toEqual([]);
    expect(lines).toHaveLength(1);

    registry.close();
    await start();
    expect(about()).toContain(invariant);
    await guard.run();
    await sender.run();
    expect(sent).toEqual([]);

    await guard.resume();
    await guard.run();
    expect(guard.stopped()).toBeUndefined();
    await sender.run();
    // The database itself lets nothing go out that is not covered.
    expect(sent).toHaveLength(invariant === 'uncovered' ? 0 : 1);
  });

  test('what was looked at does not let other damage pass, nor the same once it was mended', async () => {
    await guard.run();
    await answered('1');
    await run(`UPDATE payment_outgoing SET amount = 95 WHERE kind = 'payout'`);
    await guard.run();
    expect(about()?.toSorted()).toEqual(['over-paid', 'over-sent']);
    await guard.resume();
    await run(`UPDATE payment_outgoing SET covered = 0`);
    await guard.run();
    expect(about()).toEqual(['uncovered']);
    await guard.resume();
    await run(`UPDATE payment_outgoing SET covered = 1, amount = 90 WHERE kind = 'payout'`);
    await run(`UPDATE payment_outgoing SET covered = 1`);
    await guard.run();
    expect(guard.stopped()).toBeUndefined();
    await run(`UPDATE payment_outgoing SET covered = 0`);
    await guard.run();
    expect(about()).toEqual(['uncovered']);
  });

  test('what was sent against the rules is found at the next look', async () => {
    await guard.run();
    await answered('1');
    await run(`UPDATE payment_outgoing SET amount = 95 WHERE kind = 'payout'`);
    await sender.run();
    await guard.run();
    expect(about()?.toSorted()).toEqual(['negative-claim', 'over-paid', 'over-sent']);
  });
});
