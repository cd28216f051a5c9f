/**
 * Every state that two payments, their channel and what is sent because of them can come to, by depth-first search over
 * the real stores, sender and recovery. The chain and the wallet are a few numbers; the registry is a real one, and each
 * step back is a rollback to a savepoint. A crash is possible between any two writes: steps of the chain and the notes
 * about them are separate events.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { InStatement, Transaction } from '@libsql/client';
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Reports } from '../../host/payments/ledger/reports.ts';
import type { Operations } from '../../host/payments/operations.ts';
import { Sender } from '../../host/payments/outgoing/sender.ts';
import type { Wallet } from '../../host/payments/outgoing/wallets.ts';
import { Answers } from '../../host/payments/settlement/answers.ts';
import { LiveCalls } from '../../host/payments/settlement/live-calls.ts';
import { SettlementMachine } from '../../host/payments/settlement/machine.ts';
import { PaymentStore } from '../../host/payments/settlement/payment-store.ts';
import { recoverAll } from '../../host/payments/settlement/recovery.ts';
import type { SettleResult } from '../../host/payments/terms.ts';
import type { Registry } from '../../host/registry/index.ts';
import { OwnLeases } from '../../host/registry/leases.ts';
import { ChannelStore } from '../../host/registry/payments/channels.ts';
import { Debts } from '../../host/registry/payments/debts.ts';
import { Invariants } from '../../host/registry/payments/invariants.ts';
import type { PaymentRow } from '../../host/registry/payments/schema.ts';
import { type Money, micro, ZERO } from '../../host/shared/money.ts';
import { Problem } from '../../host/shared/problem.ts';
import { isPostgres, openTestRegistry } from '../registry/support/open.ts';

const log = pino({ level: 'silent' });
const AUTHORIZED = 2;
const DEPOSIT = 4;

/** What is outside of the registry. */
interface World {
  /** Channels on the chain. */
  chain: Record<string, { settled: number; isGone: boolean }>;
  received: number;
  /** Transfers that the chain took, by their hash. */
  landed: string[];
  /** Amounts by hash, of what was signed. */
  signed: Record<string, number>;
}

let folder: string;
let registry: Registry;
/** Everything is in it. */
let transaction: Transaction;
let store: PaymentStore;
let channels: ChannelStore;
let machine: SettlementMachine;
let sender: Sender;
let debts: Debts;
let world: World;
let reports: Reports;
/** `unseen`: the chain took it, and the process died before it heard of that. */
let outcome: SettleResult['status'] | 'unseen';
/** Where the money of each payment is: a channel by its name, or how it is charged. */
let custodies: string[];

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'tp-model-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  const { client } = registry;
  transaction = await client.transaction();
  // The same writes, all or nothing, yet within what a rollback takes back.
  const batch = async (statements: InStatement[]) => {
    await transaction.execute('SAVEPOINT write');
    try {
      return await transaction.batch(statements);
    } catch (error) {
      await transaction.execute('ROLLBACK TO write');
      throw error;
    } finally {
      await transaction.execute('RELEASE write');
    }
  };
  Object.assign(client, { batch, execute: (statement: InStatement) => transaction.execute(statement) });
  const answers = new Answers(path.join(folder, 'answers'), { tenantBytes: 0, totalBytes: 0, reserveBytes: 0 }, log);
  // Leases are written by themselves, not within what is rolled back.
  const leases = new OwnLeases();
  store = new PaymentStore({ ...registry, leases }, { now: () => 1 } as never, answers);
  channels = new ChannelStore(store.books);
  machine = new SettlementMachine({ store, rails: [], channels: undefined, log });
  const sent = (hash: string): SettleResult => {
    // A wallet looks for the receipt first.
    if (outcome === 'failed' && !world.landed.includes(hash)) return { status: 'failed', reason: 'refused' };
    if (outcome === 'unknown') return { status: 'unknown', reason: 'silent' };
    if (!world.landed.includes(hash)) world.landed.push(hash);
    if (outcome === 'unseen') return { status: 'unknown', reason: 'silent' };
    return { status: 'settled', reference: hash };
  };
  const wallet: Wallet = {
    asset: 'a',
    batch: 1,
    operator: 'operator',
    canSign: (source) => source === 'host',
    send: async ({ hash }) => sent(hash),
    async pay(_source, transfers, note) {
      const hash = `0x${Object.keys(world.signed).length}` as const;
      await note({ raw: hash, hash, validUntil: null });
      world.signed[hash] = transfers.reduce((sum, { amount }) => sum + Number(amount), 0);
      return sent(hash);
    },
  };
  debts = new Debts(store.books, () => {});
  sender = new Sender({ store, wallets: [wallet], log, maySend: () => true, debts, minPayout: ZERO });
  reports = new Reports({ store, machine, sender, continue: async () => {} });
});
afterEach(async () => {
  await transaction.rollback();
  registry.close();
  await rm(folder, { recursive: true, force: true });
});

const all = async (text: string) => (await registry.client.execute(text)).rows as unknown as Record<string, never>[];

function payment(at: number, custody: string): Parameters<PaymentStore['begin']>[0] {
  const isChannel = custody.startsWith('ch');
  return {
    id: `pay_${at}`,
    credentialId: `c${at}`,
    credentialHash: 'h',
    credential: null,
    rail: isChannel ? 'tempo/session' : 'tempo/charge',
    kind: 'route',
    name: 'GET /',
    scope: 's',
    slug: 'shop',
    tenant: 't',
    asset: 'a',
    payer: 'payer',
    payerDid: 'did',
    recipient: custody === 'direct' ? 'tenant' : 'host',
    payTo: 'tenant',
    custody: isChannel ? 'channel' : (custody as 'direct'),
    channel: isChannel ? custody : null,
    authorized: micro(AUTHORIZED),
    feeBps: 5_000,
    terms: '{}',
    settleBefore: null,
    place: 'place',
  };
}

type Event = [name: string, run: () => Promise<unknown>];

/** What may happen next. */
async function events(): Promise<Event[]> {
  const rows = new Map((await Promise.all([0, 1].map((at) => store.byId(`pay_${at}`)))).map((row, at) => [at, row]));
  const found: Event[] = [];
  const answer = { status: 200, headers: [], body: undefined };
  for (const [at, row] of rows) {
    if (!row) {
      if (at > 0 && !rows.get(0)) continue;
      await debts.load();
      const wish = custodies[at] ?? '';
      const custody = wish === 'direct' && debts.owes('t') ? 'collected' : wish;
      const channel = await channels.byId(custody);
      const cumulative = micro(AUTHORIZED * (custodies.slice(0, at).filter((one) => one === custody).length + 1));
      if (!channel) found.push([`begin ${at}`, () => store.begin(payment(at, custody), 'working', undefined)]);
      else if (channel.state === 'open')
        found.push([
          `begin ${at}`,
          () => store.begin(payment(at, custody), 'working', undefined, { cumulative, signature: 's' }),
        ]);
    } else if (row.custody !== 'channel' && row.state === 'working') {
      const settle = (charged: Money | undefined) => async () => {
        if (row.custody === 'collected') world.received += AUTHORIZED;
        await store.settled(row, `0xs${at}`, charged, '{}');
      };
      found.push([`settle ${at}`, settle(micro(2))], [`release ${at}`, () => store.released(row, 'no')]);
      if (row.custody === 'collected') found.push([`settle early ${at}`, settle(undefined)]);
    } else if (row.state === 'settled' && row.charged === null) {
      found.push(
        [`capture ${at}`, () => store.captured(row, micro(1), undefined)],
        [`break ${at}`, () => store.refunds.owe(row, 'broke')],
      );
    } else if (row.state === 'working') {
      found.push([`capture stream ${at}`, () => take(row, 2, 'settled')]);
      if (!isTwo())
        found.push(
          [`capture whole ${at}`, () => take(row, 1, 'answered')],
          [`release ${at}`, () => store.released(row, 'no')],
        );
    } else if (row.state === 'settled') {
      found.push(
        [`end ${at}`, () => store.answered(row, answer, false)],
        [`break ${at}`, () => store.refunds.owe(row, 'broke')],
      );
    } else if (row.state === 'answered' && row.answerStatus === null) {
      found.push([`break late ${at}`, () => store.refunds.owe({ ...row, state: 'settled' }, 'broke')]);
    }
  }
  for (const id of Object.keys(world.chain)) found.push(...(await channelEvents(id)));
  const waiting = await all(
    "SELECT id FROM payment_outgoing WHERE state = 'stuck' OR state = 'waiting' AND debtor IS NOT NULL",
  );
  for (const { id } of waiting as unknown as { id: string }[]) {
    const resolve = (action: 'retry' | 'paid' | 'waive') => async () => {
      outcome = 'settled';
      await reports.resolve(id, { action, reference: `0x${'ab'.repeat(32)}` }).catch((error) => {
        if (!(error instanceof Problem)) throw error;
      });
    };
    for (const action of ['retry', 'paid', 'waive'] as const) found.push([`${action} ${id}`, resolve(action)]);
  }
  const due = await all("SELECT id, attempts FROM payment_outgoing WHERE state IN ('owed', 'sending')");
  if (due.length > 0) {
    const run = (as: typeof outcome) => async () => {
      outcome = as;
      await sender.run();
    };
    found.push(['sent', run('settled')]);
    if (due.every(({ attempts }) => attempts === 0) && !isTwo())
      found.push(['not sent', run('failed')], ['silent', run('unknown')], ['unseen', run('unseen')]);
  }
  found.push([
    'crash',
    async () => {
      await recoverAll({ machine, operations: {} as Operations, live: new LiveCalls(machine.store.meters), log });
      await channels.recountReserved();
    },
  ]);
  return found;
}

async function channelEvents(id: string): Promise<Event[]> {
  const channel = await channels.byId(id);
  const chain = world.chain[id];
  if (!channel || !chain) throw new Error('no channel');
  const found: Event[] = [];
  const pay = (total: number, isGone: boolean) => {
    world.received += total - chain.settled;
    world.chain = { ...world.chain, [id]: { settled: total, isGone } };
  };
  if (!chain.isGone) {
    const voucher = channel.state === 'open' ? await channels.settleable(channel) : undefined;
    if (voucher && Number(voucher.cumulative) > chain.settled)
      found.push(['chain settles', async () => pay(Number(voucher.cumulative), false)]);
    if (channel.state === 'open' && channel.reserved === 0n) found.push(['closing', () => channels.closing(id)]);
    if (channel.state === 'closing') found.push(['chain closes', async () => pay(Number(channel.captured), true)]);
    found.push(['payer withdraws', async () => pay(chain.settled, true)]);
  }
  if (chain.settled > Number(channel.settled) && !chain.isGone)
    found.push(['settlement noted', () => channels.settled(channel, micro(chain.settled), '0xs', false)]);
  if (chain.isGone && channel.state !== 'closed' && channel.state !== 'failed')
    found.push(
      chain.settled >= Number(channel.captured)
        ? ['closing noted', () => channels.settled(channel, micro(chain.settled), '0xc', true)]
        : ['withdrawal noted', () => channels.withdrawn(channel)],
    );
  return found;
}

/** Two channels have the states of one twice over: what is their own is looked at with one. */
function isTwo(): boolean {
  return custodies.includes('ch2');
}

function take(row: PaymentRow, charged: number, state: 'settled' | 'answered') {
  return store.channel.captured(row, micro(charged), () => '{}', undefined, state);
}

async function state(): Promise<string> {
  return JSON.stringify([
    world,
    await all('SELECT id, state, charged, refunded FROM payments ORDER BY id'),
    await all(
      'SELECT state, deposit, voucher, reserved, captured, settled, committed FROM payment_channels ORDER BY id',
    ),
    await all('SELECT id, state, amount, attempts, covered, withheld, debtor FROM payment_outgoing ORDER BY id'),
  ]);
}

/** What must hold in every state. @returns what does not */
async function violations(): Promise<string[]> {
  const wrong: string[] = [];
  const sent = world.landed.reduce((sum, hash) => sum + (world.signed[hash] ?? 0), 0);
  if (sent > world.received) wrong.push(`sent ${sent} of ${world.received} received`);
  // The very check that runs in production.
  for (const { invariant } of await new Invariants(registry).check()) wrong.push(`the check ${invariant}`);
  return wrong;
}

/** Nothing more happens by itself: is anything left half done? */
async function leftOver(): Promise<string[]> {
  const open = await all("SELECT id FROM payments WHERE state IN ('verified', 'working', 'settling', 'settled')");
  const out = await all(
    "SELECT id FROM payment_outgoing WHERE state IN ('waiting', 'owed', 'sending') AND debtor IS NULL",
  );
  return [...open, ...out].map(({ id }) => `${id} never ends`);
}

/** A server takes ten times as long for each of the steps, of which there are thousands. */
const SMALL: [string, string[], number][] = [['direct, then direct or collected', ['direct', 'direct'], 50]];
const LARGE: [string, string[], number][] = [
  ['channel twice', ['ch', 'ch'], 1_000],
  ['two channels', ['ch', 'ch2'], 1_000],
  ['direct, then a channel', ['direct', 'ch'], 100],
];

test.each(isPostgres ? SMALL : [...LARGE, ...SMALL])(
  '%s: never is more sent than was received for what was delivered',
  { timeout: 120_000 },
  async (_, of, least) => {
    custodies = of;
    world = { chain: {}, received: 0, landed: [], signed: {} };
    for (const id of new Set(of)) if (id.startsWith('ch')) await openChannel(id);
    const seen = new Set<string>();
    let steps = 0;

    async function search(trace: string[]): Promise<void> {
      const here = await state();
      const mark = `m${trace.length}`;
      let isQuiet = true;
      for (const [name, run] of await events()) {
        const before = structuredClone(world);
        await registry.client.execute(`SAVEPOINT ${mark}`);
        await run();
        steps += 1;
        const next = await state();
        if (next !== here && name !== 'begin 0' && name !== 'begin 1') isQuiet = false;
        if (!seen.has(next)) {
          seen.add(next);
          const path_ = [...trace, name];
          expect(await violations(), path_.join(' → ')).toEqual([]);
          await search(path_);
        }
        await registry.client.execute(`ROLLBACK TO ${mark}`);
        await registry.client.execute(`RELEASE ${mark}`);
        world = before;
      }
      if (isQuiet && trace.length > 0) expect(await leftOver(), trace.join(' → ')).toEqual([]);
    }
    await registry.client.execute('SAVEPOINT root');
    await search([]);
    console.log(`${seen.size} states, ${steps} steps`);
    expect(seen.size).toBeGreaterThan(least);
  },
);

async function openChannel(id: string): Promise<void> {
  world.chain[id] = { settled: 0, isGone: false };
  await channels.opening(
    {
      id,
      asset: 'a',
      payer: 'payer',
      payee: 'host',
      signer: 'payer',
      descriptor: '{}',
      escrow: 'e',
      chainId: 1,
      openTransaction: null,
    },
    { cumulative: micro(0), signature: 's' },
  );
  await channels.opened(id, micro(DEPOSIT), null);
}
