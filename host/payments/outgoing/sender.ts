/**
 * Sends payouts, the operator's share and refunds. A transaction is signed and stored before it is sent, so that a
 * crash in between sends the same one again and never a second one.
 */

import { randomBytes } from 'node:crypto';
import type { Logger } from 'pino';
import type { Leases } from '../../registry/leases.ts';
import * as book from '../../registry/payments/book.ts';
import type { Statement } from '../../registry/payments/books.ts';
import type { Debts } from '../../registry/payments/debts.ts';
import { OutgoingStore } from '../../registry/payments/outgoing.ts';
import type { OutgoingRow } from '../../registry/payments/schema.ts';
import { add, type Money, ZERO } from '../../shared/money.ts';
import { Mutex } from '../../shared/mutex.ts';
import { Problem } from '../../shared/problem.ts';
import type { Restored } from '../ledger/restored.ts';
import type { PaymentStore } from '../settlement/payment-store.ts';
import type { SettleResult } from '../terms.ts';
import type { Wallet } from './wallets.ts';

/** Of several nodes one sends, keeps the channels, checks the books, and ends what holds and nodes left. */
export const MONEY = 'money';

/** After that many refusals a person has to look at it. */
const MAX_ATTEMPTS = 5;
/** A payout below the least one waits so long at most, ms. */
const LONGEST_WAIT_MS = 24 * 3_600_000;

export interface SenderOptions {
  store: PaymentStore;
  wallets: readonly Wallet[];
  log: Logger;
  /** Whether the books are as they must be; what is due stays due otherwise. */
  maySend: () => boolean;
  debts: Debts;
  /** None: the books never came back from a backup. */
  restored?: Restored;
  /** What one recipient is owed is sent when it is so much, or a day old; refunds always. */
  minPayout: Money;
}

export class Sender {
  readonly #store: PaymentStore;
  readonly #outgoing: OutgoingStore;
  readonly #wallets: readonly Wallet[];
  readonly #log: Logger;
  readonly #maySend: () => boolean;
  readonly #debts: Debts;
  readonly #restored: Restored | undefined;
  readonly #minPayout: Money;
  readonly #turns = new Mutex();

  constructor({ store, wallets, log, maySend, debts, restored, minPayout }: SenderOptions) {
    this.#store = store;
    this.#outgoing = new OutgoingStore(store.books);
    this.#wallets = wallets;
    this.#log = log;
    this.#maySend = maySend;
    this.#debts = debts;
    this.#restored = restored;
    this.#minPayout = minPayout;
  }

  /**
   * Sends what is due, unless another node does. Calls queue, so that no two rounds pick the same rows.
   * @param minPayout default: that of the options
   */
  run(kinds: readonly OutgoingRow['kind'][] = ['payout', 'fee', 'refund'], minPayout = this.#minPayout): Promise<void> {
    return this.#turns
      .run(() => this.#store.leases.run(MONEY, () => this.#round(kinds, minPayout)))
      .catch((error) => this.#log.error({ err: error }, 'sending payouts failed'));
  }

  /** While nothing is being signed or sent. @throws Problem `conflict` where another node may be at it */
  exclusively<T>(work: () => Promise<T>): Promise<T> {
    return this.#turns.run(() => withMoney(this.#store.leases, work));
  }

  async #round(kinds: readonly OutgoingRow['kind'][], minPayout: Money): Promise<void> {
    if (!this.#maySend()) return;
    await this.#resume();
    await this.#sentBefore();
    await this.#debts.withhold();
    const due = await this.#outgoing.due(kinds, MAX_ATTEMPTS, minPayout, LONGEST_WAIT_MS);
    for (const rows of groups(due)) await this.#pay(rows);
  }

  /** Transactions that were signed before a crash, or whose outcome was not known. */
  async #resume(): Promise<void> {
    for (const transfer of await this.#outgoing.sending()) {
      const rows = await this.#outgoing.ofTransfer(transfer.id);
      const wallet = this.#wallet(transfer.asset);
      if (!wallet) continue;
      const signed = {
        raw: transfer.transactionRaw as `0x${string}`,
        hash: transfer.hash as `0x${string}`,
        validUntil: transfer.validUntil,
      };
      await this.#finish(transfer.id, rows, await wallet.send(signed));
    }
  }

  /** What is owed by books that came back from a backup, and was or may have been sent since. */
  async #sentBefore(): Promise<void> {
    const restored = this.#restored;
    if (!restored || restored.unknown.length === 0) return;
    const owed = (await this.#outgoing.owed()).flatMap(({ row, payment }) => {
      const wallet = this.#wallet(row.asset);
      return wallet ? [{ row, payment, to: recipientOf(row, wallet) }] : [];
    });
    const { sent, doubtful, statements } = restored.judge(owed);
    for (const [row, hash] of sent) {
      this.#log.warn({ outgoing: row.id, hash }, 'what is owed by the restored books was sent by this transaction');
      statements.push(this.#outgoing.changed([row], { state: 'sent', error: null }));
      statements.push(...(await this.sentStatements(row, hash)));
    }
    for (const [row, hashes] of doubtful) {
      const error = `the books came back from a backup, and this may have been sent since, by ${hashes.join(', ')}`;
      statements.push(this.#outgoing.changed([row], { state: 'stuck', error }));
    }
    if (statements.length === 0) return;
    await this.#store.books.write(statements);
    await restored.load();
  }

  async #pay(rows: OutgoingRow[]): Promise<void> {
    const [first] = rows;
    const wallet = first && this.#wallet(first.asset);
    if (!first || !wallet || !this.#maySend()) return;
    if (!wallet.canSign(first.source)) {
      if (first.source !== wallet.operator) return this.#debts.note(rows);
      const error = `the host does not hold the key of your wallet ${first.source}; send it from there`;
      return this.#mark(rows, { state: 'stuck', error });
    }
    const totals = new Map<string, Money>();
    for (const row of rows) {
      const to = recipientOf(row, wallet);
      totals.set(to, add(totals.get(to) ?? ZERO, row.amount));
    }
    const recipients = [...totals].slice(0, wallet.batch);
    const chosen = rows.filter((row) => recipients.some(([to]) => to === recipientOf(row, wallet)));
    const transfers = recipients.map(([recipient, amount]) => ({ recipient, amount }));
    const id = `tx_${randomBytes(12).toString('base64url')}`;
    let result: SettleResult;
    try {
      result = await wallet.pay(first.source, transfers, async (signed) => {
        const { raw: transactionRaw, hash, validUntil } = signed;
        await this.#store.books.write([
          this.#outgoing.signed({ id, asset: first.asset, source: first.source, transactionRaw, hash, validUntil }),
          this.#outgoing.given(chosen, id),
        ]);
      });
    } catch (error) {
      this.#log.warn({ err: error, asset: first.asset }, 'a transfer could not be signed');
      // Where the answer to the note was lost, it may have been noted all the same, or be so later: then it is sent by the
      // next round, or what is noted here breaks it.
      await this.#store.books.write(
        this.#failed(chosen, 'owed', 'it could not be signed: does the wallet have the money?'),
      );
      return;
    }
    await this.#finish(id, chosen, result);
    const rest = rows.filter((row) => !chosen.includes(row));
    if (rest.length > 0) await this.#pay(rest);
  }

  async #finish(id: string, rows: OutgoingRow[], result: SettleResult): Promise<void> {
    if (result.status === 'unknown') return;
    if (result.status === 'failed') {
      await this.#store.books.write([
        this.#outgoing.ended(id, 'failed'),
        ...this.#failed(rows, 'sending', result.reason),
      ]);
      return;
    }
    const statements: Statement[] = [
      this.#outgoing.ended(id, 'sent'),
      this.#outgoing.changed(rows, { state: 'sent', error: null }),
    ];
    for (const row of rows) statements.push(...(await this.sentStatements(row, result.reference)));
    await this.#store.books.write(statements);
  }

  /** What the books and the payment say once money for a row has arrived. */
  async sentStatements(row: OutgoingRow, reference: string): Promise<Statement[]> {
    const payment = await this.#store.byId(row.payment);
    const wallet = this.#wallet(row.asset);
    if (!payment || !wallet) return [];
    const entry = {
      id: row.id,
      kind: row.kind,
      payment: row.payment,
      asset: row.asset,
      source: row.source,
      recipient: recipientOf(row, wallet),
      amount: row.amount,
      // What the host covers is with the host, as a debt that was held back is.
      held: payment.custody !== 'direct' || row.covered,
      reference,
    };
    const statements = this.#store.books.lines(book.sent(entry));
    if (row.kind === 'refund') statements.push(this.#outgoing.refunded(row, payment));
    return statements;
  }

  #failed(rows: OutgoingRow[], from: OutgoingRow['state'], error: string): Statement[] {
    return rows.map((row) => {
      const state = row.attempts + 1 >= MAX_ATTEMPTS ? 'stuck' : 'owed';
      return this.#outgoing.failed(row, from, { state, error });
    });
  }

  async #mark(rows: OutgoingRow[], change: Partial<OutgoingRow>): Promise<void> {
    await this.#store.books.write([this.#outgoing.changed(rows, change)]);
  }

  #wallet(asset: string): Wallet | undefined {
    return this.#wallets.find((wallet) => wallet.asset === asset);
  }
}

/** @throws Problem `conflict` where another node does such work */
export async function withMoney<T>(leases: Leases, work: () => Promise<T>): Promise<T> {
  const done = await leases.run(MONEY, async () => ({ value: await work() }));
  if (!done) throw new Problem('conflict', 'Another node of this host sends payouts now: ask that one.');
  return done.value;
}

function recipientOf(row: OutgoingRow, wallet: Wallet): string {
  return row.kind === 'fee' ? wallet.operator : row.recipient;
}

/**
 * One group per asset and paying wallet. What failed before goes alone: a transaction happens as a whole, and one
 * recipient whom the token refuses would keep all others from their money.
 */
function groups(rows: OutgoingRow[]): OutgoingRow[][] {
  const byWallet = new Map<string, OutgoingRow[]>();
  for (const row of rows) {
    const key = `${row.asset} ${row.source} ${row.attempts === 0 ? '' : row.id}`;
    byWallet.set(key, [...(byWallet.get(key) ?? []), row]);
  }
  return [...byWallet.values()];
}
