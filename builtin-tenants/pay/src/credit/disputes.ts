/** What accounts say of their charges, and what the operator decides. A charge is disputed once, and given back once. */
import { formatUsd } from '../../../kit/usd.ts';
import type { Database, Statement } from '../environment.ts';
import { invalidField, Problem } from '../problem.ts';
import type { Ledger } from './ledger.ts';

const MOST_REASON = 1_000;
const MOST_LISTED = 200;

/** What was taken for a request. */
interface Charge {
  id: string;
  service: string;
  /** micro-USD. */
  amount: number;
}

interface Row {
  account: string;
  requestId: string;
  reason: string;
  state: 'open' | 'refunded' | 'refused';
  note: string | null;
  createdAt: number;
  decidedAt: number | null;
  service: string;
  amount: number;
}

export class Disputes {
  readonly #db: Database;
  readonly #ledger: Ledger;
  readonly #now: () => number;

  /** @param now business time, ms */
  constructor(db: Database, ledger: Ledger, now: () => number) {
    this.#db = db;
    this.#ledger = ledger;
    this.#now = now;
  }

  /**
   * The same charge again changes nothing; one that was given back, also in the same moment, is decided already.
   * @throws Problem invalid_field, not_found
   */
  async open(account: string, input: { requestId?: unknown; reason?: unknown }): Promise<void> {
    const { requestId, reason } = input;
    if (typeof requestId !== 'string') throw invalidField('/requestId', 'the id of a request is expected');
    if (typeof reason !== 'string' || reason.trim() === '' || reason.length > MOST_REASON)
      throw invalidField('/reason', `a text of at most ${MOST_REASON} characters is expected`);
    const charge = await this.#charge(account, requestId);
    await this.#db
      .prepare(
        `INSERT INTO disputes (charge, account, request_id, reason, created_at, state, note, decided_at)
         SELECT ?1, ?2, ?3, ?4, ?5, iif(r.id IS NULL, 'open', 'refunded'), r.memo, r.at
         FROM (SELECT 1) LEFT JOIN ledger_transactions r ON r.key = 'refund:' || ?1 WHERE true
         ON CONFLICT DO NOTHING`,
      )
      .bind(charge.id, account, requestId, reason.trim(), this.#now())
      .run();
  }

  /** The newest first. @param account undefined: those of all that are open */
  async list(account?: string): Promise<object[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT d.account, d.request_id AS requestId, d.reason, d.state, d.note, d.created_at AS createdAt,
           d.decided_at AS decidedAt, t.service, t.amount
         FROM disputes d JOIN ledger_transactions t ON t.id = d.charge
         WHERE ${account === undefined ? "d.state = 'open'" : 'd.account = ?'} ORDER BY d.created_at DESC LIMIT ${MOST_LISTED}`,
      )
      .bind(...(account === undefined ? [] : [account]))
      .all<Row>();
    return results.map(({ account, requestId, reason, state, note, createdAt, decidedAt, service, amount }) => ({
      accountId: account,
      requestId,
      serviceSlug: service,
      amountUsd: formatUsd(amount),
      reason,
      state,
      note,
      createdAt: new Date(createdAt).toISOString(),
      decidedAt: decidedAt === null ? null : new Date(decidedAt).toISOString(),
    }));
  }

  /**
   * Gives a charge back out of the service's revenue, as credit that does not end, whether it is disputed or not.
   * @param told to be part of the transaction
   * @returns whether it was given back now, and how much it is
   */
  async refund(
    account: string,
    requestId: string,
    note: string,
    told: Statement,
  ): Promise<{ refunded: boolean; amount: number }> {
    const charge = await this.#charge(account, requestId);
    const decided = this.#decide(charge, 'refunded', note);
    const { id, amount, service } = charge;
    const refunded = await this.#ledger.grant(
      {
        key: `refund:${id}`,
        account,
        amount,
        source: 'operator',
        promotional: false,
        revenue: service,
        memo: `Given back: ${note}`,
      },
      [decided, told],
    );
    return { refunded, amount };
  }

  /** @throws Problem not_found where none is open */
  async refuse(account: string, requestId: string, note: string): Promise<void> {
    const charge = await this.#charge(account, requestId);
    const { meta } = await this.#decide(charge, 'refused', note).run();
    if (meta.changes === 0) throw new Problem('not_found', 'No dispute of that request is open.');
  }

  #decide(charge: Charge, state: Row['state'], note: string): Statement {
    return this.#db
      .prepare("UPDATE disputes SET state = ?, note = ?, decided_at = ? WHERE charge = ? AND state <> 'refunded'")
      .bind(state, note, this.#now(), charge.id);
  }

  async #charge(account: string, requestId: string): Promise<Charge> {
    const charge = await this.#db
      .prepare(
        `SELECT c.id, c.service, c.amount FROM ledger_transactions h JOIN ledger_transactions c
           ON c.account = h.account AND c.kind IN ('charge', 'capture')
             AND c.key = CASE h.kind WHEN 'charge' THEN h.key ELSE 'settle:' || substr(h.key, ${'hold:'.length + 1}) END
         WHERE h.account = ? AND h.request_id = ? AND h.kind IN ('charge', 'hold')`,
      )
      .bind(account, requestId)
      .first<Charge>();
    if (!charge) throw new Problem('not_found', 'The account was charged nothing for a request with that id.');
    return charge;
  }
}
