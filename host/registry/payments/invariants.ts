/**
 * What must hold in the books at every moment. The ledger only grows, so each look reads the lines since the last one,
 * a piece at a time; of the rest it reads what is open. The first look after a start goes through everything.
 */
import type { Registry } from '../index.ts';

/** Lines of the ledger that are read in one piece; the registry answers nobody else meanwhile. */
const PIECE = 4_000;
/** Findings that are named, of one kind. */
const NAMED = 5;

export const INVARIANTS = {
  unbalanced: 'the lines of the ledger do not sum to zero',
  'negative-claim': 'somebody was sent more than was theirs',
  'over-sent': 'more is sent or due than was received',
  'paid-and-refunded': 'a payment is both paid out and refunded',
  'over-paid': 'more goes out for a payment than it brought',
  uncovered: 'something is due before its payment is answered and its money is here',
  channel: 'the amounts of a channel contradict each other',
} as const;

export type Invariant = keyof typeof INVARIANTS;

export interface Violation {
  invariant: Invariant;
  /** What is concerned: accounts, payments, channels; the first few. */
  about: string[];
}

/** Outgoing rows that money is sent for, or may be any moment; the first term is the index's. */
const DUE = `o.state NOT IN ('sent', 'waived') AND o.state IN ('owed', 'sending')`;

const DELTA = `SELECT account, asset, sum(amount) AS amount,
    sum(CASE WHEN reference IS NULL THEN 0 ELSE amount END) AS backed
  FROM ledger WHERE id > ? AND id <= ? GROUP BY account, asset`;

const DUE_BY_ASSET = `SELECT o.asset, sum(o.amount) AS amount FROM payment_outgoing o
  WHERE ${DUE} AND (o.kind IN ('payout', 'fee') OR o.channel IS NOT NULL
    OR o.covered = 1 OR (SELECT custody FROM payments WHERE id = o.payment) <> 'direct') GROUP BY o.asset`;

/** 1 where the condition holds for any row of a group, else 0. */
const some = (condition: string) => `max(CASE WHEN ${condition} THEN 1 ELSE 0 END)`;

/** Of these payments, each by what is wrong with it. */
const payments = (of: string) => `SELECT payment, paid_and_refunded, over_paid, uncovered FROM (
  SELECT p.id AS payment,
    ${some("o.kind IN ('payout', 'fee') AND o.state IN ('owed', 'sending', 'sent')")}
      * ${some("o.kind = 'refund' AND o.id LIKE '%-lost' AND o.state <> 'waived'")} AS paid_and_refunded,
    CASE WHEN sum(CASE WHEN o.state = 'waived' THEN 0 ELSE o.amount END) >
      CASE p.custody WHEN 'channel' THEN coalesce(p.charged, 0) ELSE p.authorized END THEN 1 ELSE 0 END AS over_paid,
    ${some(`o.state IN ('owed', 'sending', 'sent') AND (
      o.covered = 0 AND (o.kind IN ('payout', 'fee') OR o.channel IS NOT NULL)
      OR o.kind IN ('payout', 'fee') AND p.state <> 'answered')`)} AS uncovered
  FROM payments p JOIN payment_outgoing o ON o.payment = p.id WHERE p.id IN (${of}) GROUP BY p.id) AS checked
  WHERE paid_and_refunded + over_paid + uncovered > 0 LIMIT ${NAMED}`;

const SENT_PAYMENTS = payments(
  `SELECT payment FROM ledger WHERE id > ? AND id <= ? AND kind IN ('payout', 'fee', 'refund')`,
);
const DUE_PAYMENTS = payments(`SELECT o.payment FROM payment_outgoing o WHERE ${DUE} ORDER BY o.created_at LIMIT ?`);

const CHANNELS = `SELECT c.id FROM payment_channels c
  LEFT JOIN (SELECT channel, sum(authorized) AS reserved FROM payments
    WHERE state IN ('verified', 'working', 'settling', 'settled', 'refund_owed') AND state IN ('verified', 'working')
      AND channel IS NOT NULL GROUP BY channel) r ON r.channel = c.id
  WHERE (c.state IN ('opening', 'open', 'closing')
      OR c.id IN (SELECT o.channel FROM payment_outgoing o WHERE ${DUE} AND o.channel IS NOT NULL))
    AND (c.captured > c.voucher OR c.settled > c.captured OR c.committed > c.settled
      OR c.state IN ('open', 'closing') AND c.voucher > c.deposit
      OR c.reserved <> coalesce(r.reserved, 0)) LIMIT ${NAMED}`;

interface Total {
  /** Of all lines. */
  amount: number;
  /** Of claims, as far as the money moved on a chain. */
  backed: number;
}

/** A row as each of the statements above names its columns. */
interface Row {
  id: string;
  account: string;
  asset: string;
  amount: number;
  backed: number;
  payment: string;
  paid_and_refunded: number;
  over_paid: number;
  uncovered: number;
}

type Rows = Row[];

export class Invariants {
  readonly #client: Registry['client'];
  /** Claims that are not zero, by `<account> <asset>`. */
  readonly #claims = new Map<string, number>();
  readonly #totals = new Map<string, Total>();
  /** Damage that was seen among what was sent: it stays. */
  readonly #sent = new Map<Invariant, Set<string>>();
  #read = 0;

  constructor({ client }: Pick<Registry, 'client'>) {
    this.#client = client;
  }

  /**
   * One at a time.
   * @throws the reason of `signal`, between two pieces
   */
  async check(signal?: AbortSignal): Promise<Violation[]> {
    const found = new Map<Invariant, Set<string>>();
    const due = await this.#readOn(signal);
    for (const [invariant, about] of this.#sent) note(found, invariant, ...about);
    for (const [key, amount] of this.#claims)
      if (amount < 0 && !key.startsWith('claim:channel:')) note(found, 'negative-claim', key);
    for (const asset of new Set([...this.#totals.keys(), ...due.keys()])) {
      const { amount, backed } = this.#totals.get(asset) ?? { amount: 0, backed: 0 };
      if (amount !== 0) note(found, 'unbalanced', asset);
      if (backed < (due.get(asset) ?? 0)) note(found, 'over-sent', asset);
    }
    notePayments(found, await this.#rows(DUE_PAYMENTS, [PIECE]));
    for (const { id } of await this.#rows(CHANNELS)) note(found, 'channel', id);
    return [...found].map(([invariant, about]) => ({ invariant, about: [...about].slice(0, NAMED) }));
  }

  /** @returns what was due, by asset, at the moment of the last line that was read */
  async #readOn(signal: AbortSignal | undefined): Promise<Map<string, number>> {
    for (;;) {
      signal?.throwIfAborted();
      // All in one turn of the registry: nothing is written between the lines and what is due.
      const to = this.#read + PIECE;
      const [last, delta, sent, due] = (
        await this.#client.batch(
          [
            'SELECT max(id) AS id FROM ledger',
            { sql: DELTA, args: [this.#read, to] },
            { sql: SENT_PAYMENTS, args: [this.#read, to] },
            DUE_BY_ASSET,
          ],
          'read',
        )
      ).map(({ rows }) => rows as unknown as Rows);
      for (const { account, asset, amount, backed } of delta ?? []) {
        const isClaim = account.startsWith('claim:');
        const total = this.#totals.get(asset) ?? { amount: 0, backed: 0 };
        this.#totals.set(asset, { amount: total.amount + amount, backed: total.backed + (isClaim ? backed : 0) });
        if (!isClaim) continue;
        const claim = `${account} ${asset}`;
        const left = (this.#claims.get(claim) ?? 0) + amount;
        if (left === 0) this.#claims.delete(claim);
        else this.#claims.set(claim, left);
      }
      notePayments(this.#sent, sent ?? []);
      const end = Number(last?.[0]?.id ?? 0);
      if (end <= to) {
        this.#read = end;
        return new Map((due ?? []).map(({ asset, amount }) => [asset, amount]));
      }
      this.#read = to;
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async #rows(sql: string, args: number[] = []): Promise<Rows> {
    return (await this.#client.execute({ sql, args })).rows as unknown as Rows;
  }
}

function note(found: Map<Invariant, Set<string>>, invariant: Invariant, ...about: string[]): void {
  const known = found.get(invariant) ?? new Set();
  for (const one of about) if (known.size < NAMED) known.add(one);
  found.set(invariant, known);
}

function notePayments(found: Map<Invariant, Set<string>>, rows: Rows): void {
  for (const { payment, paid_and_refunded, over_paid, uncovered } of rows) {
    if (paid_and_refunded) note(found, 'paid-and-refunded', payment);
    if (over_paid) note(found, 'over-paid', payment);
    if (uncovered) note(found, 'uncovered', payment);
  }
}
