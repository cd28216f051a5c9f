/** When a payout is large enough to be sent, and how much of it is held back for what its tenant owes. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Reports } from '../../host/payments/ledger/reports.ts';
import { Restored } from '../../host/payments/ledger/restored.ts';
import { Sender } from '../../host/payments/outgoing/sender.ts';
import type { Transfer, Wallet } from '../../host/payments/outgoing/wallets.ts';
import { Answers } from '../../host/payments/settlement/answers.ts';
import { PaymentStore } from '../../host/payments/settlement/payment-store.ts';
import type { Registry } from '../../host/registry/index.ts';
import { Debts } from '../../host/registry/payments/debts.ts';
import { savedRestored } from '../../host/registry/payments/restored.ts';
import { micro } from '../../host/shared/money.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const DAY_MS = 86_400_000;
const LEAST = 100_000;
const log = pino({ level: 'silent' });

let folder: string;
let registry: Registry;
let store: PaymentStore;
let debts: Debts;
let restored: Restored;
let sender: Sender;
let now: number;
/** micro-USD by recipient. */
let sent: Record<string, number>;
let count: number;
/** How the answer to what is noted of a transfer is lost: it was written, or it is written later. */
let lost: 'written' | 'late' | undefined;
/** The network refuses what is sent. */
let isRefused: boolean;
/** What is written later. */
let late: () => Promise<void>;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tp-payouts-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  const answers = new Answers(path.join(folder, 'answers'), { tenantBytes: 0, totalBytes: 0, reserveBytes: 0 }, log);
  now = 1_000;
  sent = {};
  count = 0;
  lost = undefined;
  isRefused = false;
  store = new PaymentStore(registry, { now: () => now } as never, answers);
  debts = new Debts(store.books, () => {});
  /** By hash, until it has happened. */
  const signed = new Map<string, Transfer[]>();
  const wallets = ['a', 'b'].map(
    (asset): Wallet => ({
      asset,
      batch: 10,
      operator: 'operator',
      canSign: (source) => source === 'host',
      async send({ hash }) {
        for (const { recipient, amount } of signed.get(hash) ?? [])
          sent[recipient] = (sent[recipient] ?? 0) + Number(amount);
        signed.delete(hash);
        return { status: 'settled', reference: hash };
      },
      async pay(_source, transfers, note) {
        const hash = `0x${asset}${++count}` as const;
        const transfer = { raw: hash, hash, validUntil: null };
        signed.set(hash, transfers);
        late = () => note(transfer);
        if (lost !== 'late') await late();
        if (lost) throw new Error('the connection was lost');
        if (isRefused) return { status: 'failed', reason: 'refused' };
        return this.send(transfer);
      },
    }),
  );
  restored = new Restored({ store, log, network: {} as never });
  sender = new Sender({ store, wallets, log, maySend: () => true, debts, restored, minPayout: micro(LEAST) });
});
afterEach(async () => {
  registry.close();
  await rm(folder, { recursive: true, force: true });
});

interface Sale {
  tenant?: string;
  asset?: string;
  custody?: 'collected' | 'direct';
}

/** A payment that is settled. */
async function sell(amount: number, { tenant = 'shop', asset = 'a', custody = 'collected' }: Sale = {}) {
  const id = `pay_${++count}`;
  const row = await store.begin(
    {
      id,
      credentialId: id,
      credentialHash: id,
      credential: null,
      rail: 'tempo/charge',
      kind: 'route',
      name: 'GET /',
      scope: 's',
      slug: tenant,
      tenant,
      asset,
      payer: 'payer',
      payerDid: 'did',
      recipient: custody === 'direct' ? tenant : 'host',
      payTo: tenant,
      custody,
      channel: null,
      authorized: micro(amount),
      feeBps: 0,
      terms: '{}',
      settleBefore: null,
      place: id,
    },
    'working',
    undefined,
  );
  return store.settled(row, `0x${id}`, micro(amount), '{}');
}
/** Delivered, so that its seller is owed. */
const deliver = async (amount: number, sale?: Sale) =>
  store.answered(await sell(amount, sale), { status: 200, headers: [], body: undefined }, false);
/** Lost after it was paid, so that its payer is owed. */
const lose = async (amount: number, sale?: Sale) => store.refunds.owe(await sell(amount, sale), 'it broke off');
const outgoing = async () =>
  (await registry.client.execute('SELECT kind, state, amount, withheld FROM payment_outgoing ORDER BY created_at, id'))
    .rows;

describe('a transfer whose note is not answered', () => {
  test('is sent once where it was noted all the same', async () => {
    await deliver(200_000);
    lost = 'written';
    await sender.run();
    lost = undefined;
    await sender.run();
    expect(sent).toEqual({ shop: 200_000 });
    expect(await outgoing()).toMatchObject([{ state: 'sent' }]);
  });

  test('is not noted later, when another may have been signed', async () => {
    await deliver(200_000);
    lost = 'late';
    await sender.run();
    await expect(late()).rejects.toThrow();
    lost = undefined;
    await sender.run();
    expect(sent).toEqual({ shop: 200_000 });
    await expect(late()).rejects.toThrow();
  });

  test('is not noted later, when less is owed by then', async () => {
    await deliver(200_000);
    lost = 'late';
    await sender.run();
    await registry.client.execute('UPDATE payment_outgoing SET attempts = 0, amount = amount - 1');
    await expect(late()).rejects.toThrow();
  });
});

test('what a transfer that failed was to pay is owed again in the same write', async () => {
  await deliver(200_000);
  const { client } = registry;
  const batch = client.batch.bind(client);
  const left: unknown[] = [];
  client.batch = async (...given) => {
    const results = await batch(...given);
    // Nobody would ever look at these again.
    const { rows } = await client.execute(
      `SELECT o.id FROM payment_outgoing o JOIN payment_transfers t ON t.id = o.transfer
        WHERE o.state = 'sending' AND t.state <> 'sending'`,
    );
    left.push(...rows);
    return results;
  };
  isRefused = true;
  await sender.run();
  expect(left).toEqual([]);
  expect(await outgoing()).toMatchObject([{ state: 'owed' }]);
  isRefused = false;
  await sender.run();
  expect(sent).toEqual({ shop: 200_000 });
});

describe('the least payout', () => {
  test('is reached by what is owed to one recipient together', async () => {
    await deliver(60_000);
    await deliver(99_999, { tenant: 'other' });
    await sender.run();
    expect(sent).toEqual({});
    await deliver(40_000);
    await sender.run();
    expect(sent).toEqual({ shop: 100_000 });
  });

  test('is counted for each asset by itself', async () => {
    await deliver(60_000);
    await deliver(60_000, { asset: 'b' });
    await sender.run();
    expect(sent).toEqual({});
  });

  test('is not asked for after a day, nor of refunds, nor where another one is named', async () => {
    await deliver(1);
    await lose(2);
    await sender.run();
    expect(sent).toEqual({ payer: 2 });
    now += DAY_MS - 1;
    await sender.run();
    expect(sent).toEqual({ payer: 2 });
    now += 1;
    await sender.run();
    expect(sent).toEqual({ payer: 2, shop: 1 });
    await deliver(3);
    await sender.run(['payout'], micro(0));
    expect(sent).toEqual({ payer: 2, shop: 4 });
  });
});

describe('what is held back', () => {
  /** The tenant's own wallet has the money, so the tenant owes it. */
  async function owe(amount: number, sale: Sale = {}) {
    await lose(amount, { ...sale, custody: 'direct' });
    await sender.run();
    expect(debts.owes(sale.tenant ?? 'shop')).toBe(true);
    now += 1;
  }

  test.each([
    ['a part of a payout', 300_000, [500_000], { payer: 300_000, shop: 200_000 }],
    ['exactly a payout', 500_000, [500_000], { payer: 500_000 }],
    ['a payout and a part of the next', 300_000, [200_000, 400_000], { payer: 300_000, shop: 300_000 }],
    ['payouts that are too small to be sent', 100_000, [60_000, 60_000], { payer: 100_000 }],
  ])('is %s', async (_, owed, payouts, expected) => {
    await owe(owed);
    for (const amount of payouts) {
      await deliver(amount);
      now += 1;
    }
    await sender.run();
    expect(sent).toEqual(expected);
    expect(debts.owes('shop')).toBe(false);
  });

  test('adds up until the debt is covered, and is paid to the payer as a whole', async () => {
    await owe(300_000);
    await deliver(200_000);
    await sender.run();
    expect(sent).toEqual({});
    expect(await outgoing()).toMatchObject([
      { kind: 'refund', state: 'waiting', amount: 300_000, withheld: 200_000 },
      { kind: 'payout', state: 'waived', amount: 200_000 },
    ]);
    now += 1;
    await deliver(250_000);
    await sender.run();
    expect(sent).toEqual({ payer: 300_000, shop: 150_000 });
    expect(debts.owes('shop')).toBe(false);
  });

  test('is of that tenant and that asset alone', async () => {
    await owe(300_000);
    await deliver(400_000, { tenant: 'other' });
    await deliver(500_000, { asset: 'b' });
    await sender.run();
    expect(sent).toEqual({ other: 400_000, shop: 500_000 });
    expect(debts.owes('shop')).toBe(true);
  });

  test('pays older debts before later ones', async () => {
    await owe(300_000);
    await owe(200_000);
    await deliver(350_000);
    await sender.run();
    expect(sent).toEqual({ payer: 300_000 });
    expect(await outgoing()).toMatchObject([
      { state: 'sent' },
      { state: 'waiting', withheld: 50_000 },
      { state: 'waived' },
    ]);
  });
});

describe('books that came back from a backup', () => {
  /** What the chain knows of it, and the books do not. */
  async function unknown(...transfers: [hash: string, to: string, amount: number][]): Promise<void> {
    const transactions = transfers.map(([hash, to, amount]) => ({
      ...{ asset: 'a', hash, net: String(-amount) },
      sent: [{ from: 'host', to, left: String(amount) }],
    }));
    const asked = { at: now, unknown: transactions, resolved: [] };
    await store.books.write([savedRestored(registry.db, { since: 0, line: 0, asked })]);
    await restored.load();
  }
  const references = async () =>
    (
      await registry.client.execute(
        "SELECT reference, amount FROM ledger WHERE account = 'wallet:shop' AND kind = 'payout'",
      )
    ).rows;

  test('pay nothing again that a transaction since has paid, and all else', async () => {
    await deliver(200_000);
    await deliver(300_000);
    await deliver(150_000, { tenant: 'other' });
    // With what was sold since, of which the books know nothing.
    await unknown(['0xone', 'shop', 510_000]);
    await sender.run();
    await sender.run();
    expect(sent).toEqual({ other: 150_000 });
    expect(await references()).toEqual([
      { reference: '0xone', amount: 200_000 },
      { reference: '0xone', amount: 300_000 },
    ]);
    now += 1;
    await deliver(120_000);
    await sender.run();
    expect(sent).toEqual({ other: 150_000, shop: 120_000 });
  });

  test('leave to the operator what may have been paid, and send it on his word', async () => {
    await deliver(200_000);
    await deliver(100_000);
    await unknown(['0xone', 'shop', 250_000]);
    await sender.run();
    expect(sent).toEqual({});
    const { rows } = await registry.client.execute("SELECT id, error FROM payment_outgoing WHERE state = 'stuck'");
    expect(rows).toMatchObject([{ error: expect.stringContaining('0xone') }]);
    const [stuck] = rows;
    const reports = new Reports({ store, sender, restored, machine: {} as never, continue: async () => {} });
    expect(await reports.resolve(String(stuck?.id), { action: 'retry' })).toBeUndefined();
    await sender.run();
    expect(sent).toEqual({ shop: 100_000 });
  });

  test('a refund that comes of a payment of before is looked for, too', async () => {
    const row = await sell(50_000);
    await unknown(['0xone', 'payer', 50_000]);
    now += 1;
    await store.refunds.owe(row, 'it was given up before the answer was out');
    await sender.run();
    expect(sent).toEqual({});
    expect(await store.byId(row.id)).toMatchObject({ state: 'refunded' });
    // One whose seller may have been paid for it waits.
    const other = await sell(70_000);
    await unknown(['0xtwo', 'shop', 70_000]);
    now += 1;
    await store.refunds.owe(other, 'it was given up before the answer was out');
    await sender.run();
    expect(sent).toEqual({});
    expect((await outgoing()).at(-1)).toMatchObject({ kind: 'refund', state: 'stuck' });
  });
});
