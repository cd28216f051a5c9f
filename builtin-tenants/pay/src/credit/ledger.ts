/**
 * The double-entry ledger of credit. Every movement is one database transaction that decides and books at once: which
 * grants pay is worked out by the statement that debits them, so no number of callers at the same time can overspend.
 */

import { newId } from '../accounts/tokens.ts';
import { MOST } from '../catalog.ts';
import { ask, firstRow, type Question } from '../database/questions.ts';
import { dayOf } from '../day.ts';
import type { Database, Statement } from '../environment.ts';
import { BURN_ORDER, Postings } from './postings.ts';

export interface Movement {
  /** Unique for ever: the same movement again is the same key. */
  key: string;
  account: string;
  service: string;
  /** micro-USD. */
  amount: number;
  /** JSON of what it is for. */
  usage: string;
  requestId?: string | undefined;
  memo?: string | undefined;
}

/** What a hold was made for. */
export type Held = Pick<StoredTransaction, 'account' | 'amount' | 'service' | 'usage'>;

export type ChargeOutcome =
  | { status: 'charged' | 'duplicate'; id: string; balance: number }
  | { status: 'insufficient_credit'; balance: number }
  | { status: 'no_account' | 'conflict' };

export type HoldOutcome = { status: 'held' | 'capped' } | Exclude<ChargeOutcome, { id: string }>;

export interface NewGrant {
  key: string;
  account: string;
  amount: number;
  source: 'welcome' | 'purchase' | 'operator';
  /** Burned before paid credit of the same priority and expiry. */
  promotional: boolean;
  /** Lower is burned first. */
  priority?: number;
  expiresAt?: number | null;
  /** A service whose revenue it is taken from, and which has to cover it; default: it comes from outside. */
  revenue?: string;
  requestId?: string;
  memo?: string;
}

export interface GrantBalance {
  id: string;
  source: string;
  promotional: boolean;
  amount: number;
  balance: number;
  expiresAt: number | null;
  createdAt: number;
}

interface StoredTransaction {
  id: string;
  kind: string;
  account: string;
  amount: number;
  service: string | null;
  usage: string | null;
}

/** Charges that are tried as one transaction. */
const MOST_TOGETHER = 50;

export class Ledger {
  readonly #db: Database;
  readonly #now: () => number;
  readonly #postings: Postings;

  /** @param now business time, ms */
  constructor(db: Database, now: () => number) {
    this.#db = db;
    this.#now = now;
    this.#postings = new Postings(db, now);
  }

  /**
   * Books credit. The same key again changes nothing and answers false.
   * @param together statements of the same transaction
   */
  async grant(grant: NewGrant, together: Statement[] = []): Promise<boolean> {
    try {
      await this.#db.batch([...together, ...this.grantStatements(grant)]);
      return true;
    } catch (error) {
      if (await this.#transaction(grant.key)) return false;
      throw error;
    }
  }

  /** The statements of a grant, to be one transaction with others. They fail as a whole if the key is used. */
  grantStatements(grant: NewGrant): Statement[] {
    const { revenue } = grant;
    const id = newId('grt');
    const source = revenue === undefined ? `source:${grant.source}` : `revenue:${revenue}`;
    const ledgerAccount = `grant:${id}`;
    return [
      this.#db
        .prepare(
          `INSERT INTO grants (id, account, source, promotional, priority, amount, expires_at, created_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
        )
        .bind(
          id,
          grant.account,
          grant.source,
          grant.promotional ? 1 : 0,
          grant.priority ?? 100,
          grant.amount,
          grant.expiresAt ?? null,
          this.#now(),
        ),
      this.#postings.open(ledgerAccount, grant.account),
      this.#postings.open(source, null, revenue === undefined),
      ...this.#postings.transaction(
        { kind: 'grant', ...grant, service: revenue ?? null, usage: null },
        (transaction) => [
          this.#postings.entry(transaction, source, -grant.amount),
          this.#postings.entry(transaction, ledgerAccount, grant.amount),
        ],
      ),
    ];
  }

  /**
   * Takes credit at once. A refusal leaves the key unused.
   * @param together statements of the same transaction
   */
  async charge(movement: Movement, together: Statement[] = []): Promise<ChargeOutcome> {
    const { id, statements } = this.#charge(movement);
    return this.#run(movement, 'charge', id, [...together, ...statements]);
  }

  /**
   * Many charges, each for itself, earlier ones first. All of them are tried as one transaction, which costs one
   * write to the disk; where one is refused, the halves are tried, so that the others are still booked together.
   */
  async chargeAll(movements: readonly Movement[]): Promise<ChargeOutcome[]> {
    const [first] = movements;
    if (!first) return [];
    if (movements.length === 1) return [await this.charge(first)];
    if (movements.length <= MOST_TOGETHER) {
      const parts = movements.map((movement) => ({ movement, ...this.#charge(movement) }));
      const all = parts.map(({ movement, statements }) => [...statements, this.#postings.available(movement.account)]);
      const results = await this.#db.batch<{ balance: number }>(all.flat()).catch(() => undefined);
      if (results) {
        let at = -1;
        return parts.map(({ id }, index) => {
          at += all[index]?.length ?? 0;
          return { status: 'charged', id, balance: results[at]?.results[0]?.balance ?? 0 };
        });
      }
    }
    const middle = Math.ceil(movements.length / 2);
    return [...(await this.chargeAll(movements.slice(0, middle))), ...(await this.chargeAll(movements.slice(middle)))];
  }

  /**
   * Sets credit aside for work that is about to be done; see `capture` and `release`. `more`: in the same transaction.
   * @param movement `credential`: with which it is spent, where it was one
   * @returns `capped` where the credential's cap of the day does not cover it
   */
  async hold(
    hold: string,
    { credential, ...movement }: Omit<Movement, 'key'> & { credential?: string | undefined },
    more: Statement[] = [],
  ): Promise<HoldOutcome> {
    const held = `hold:${hold}`;
    const full = { ...movement, key: held };
    const { statements } = this.#debit('hold', full, held, [
      this.#db
        .prepare(
          // Without a cap it counts for no day, and gives none anything back.
          `INSERT INTO holds (id, account, service, created_at, credential, amount, day) VALUES (?1, ?2, ?3, ?4, ?5, ?6,
             (SELECT ?7 FROM credentials WHERE id = ?5 AND daily_cap IS NOT NULL))`,
        )
        .bind(
          hold,
          movement.account,
          movement.service,
          Date.now(),
          credential ?? null,
          movement.amount,
          dayOf(this.#now()),
        ),
      this.#postings.open(held, movement.account),
    ]);
    try {
      await this.#db.batch([...more, ...statements]);
      return { status: 'held' };
    } catch (error) {
      if (String(error).includes('spend cap: reached')) return { status: 'capped' };
      const why = await this.#explain(full, 'hold', error);
      // It was made, with what was to be in its transaction; the answer alone was lost.
      return 'id' in why ? { status: 'held' } : why;
    }
  }

  /**
   * Takes what is held. `more` is done in the same transaction. `made`: what the hold was made for, where that is known.
   * Answers false if it was settled before, or never made.
   */
  capture(hold: string, more: Statement[] = [], made?: Held): Promise<boolean> {
    return this.#settle(hold, 'capture', more, made, (transaction, service) => [
      this.#postings.open(`revenue:${service}`, null),
      this.#postings.move(transaction, hold, `revenue:${service}`),
    ]);
  }

  /** Gives back what is held, to the very grants it came from. Answers false if it was settled before, or never made. */
  release(hold: string, more: Statement[] = []): Promise<boolean> {
    return this.#settle(hold, 'release', more, undefined, (transaction) => [this.#postings.undo(transaction, hold)]);
  }

  /** What happened to a hold, if anything. */
  async settlement(hold: string): Promise<'capture' | 'release' | undefined> {
    return (await this.#transaction(`settle:${hold}`))?.kind as 'capture' | 'release' | undefined;
  }

  /** Gives back holds that nobody settled for `ageMs`: whoever made them has died. Answers how many. */
  async releaseAbandoned(ageMs: number): Promise<number> {
    const { results } = await this.#db
      .prepare('SELECT id FROM holds WHERE settled_at IS NULL AND created_at < ? LIMIT 200')
      .bind(Date.now() - ageMs)
      .all<{ id: string }>();
    let released = 0;
    for (const { id } of results) if (await this.release(id)) released++;
    return released;
  }

  /** Moves what is left of expired grants out of their accounts. Answers how many grants. */
  async expireGrants(): Promise<number> {
    const now = this.#now();
    const { results } = await this.#db
      .prepare(
        `SELECT g.id, g.account, a.balance FROM grants g JOIN ledger_accounts a ON a.id = 'grant:' || g.id
         WHERE g.expires_at IS NOT NULL AND g.expires_at <= ? AND a.balance > 0 LIMIT 200`,
      )
      .bind(now)
      .all<{ id: string; account: string; balance: number }>();
    for (const { id, account, balance } of results) {
      const expired = { key: `expire:${id}:${now}`, account, amount: balance, service: null, usage: null };
      const booked = this.#postings.transaction({ kind: 'expire', ...expired }, (transaction) => [
        this.#postings.entry(transaction, `grant:${id}`, -balance),
        this.#postings.entry(transaction, 'expired', balance),
      ]);
      await this.#db.batch([this.#postings.open('expired', null), ...booked]);
    }
    return results.length;
  }

  /** Credit that can be spent now, micro-USD. */
  async available(account: string): Promise<number> {
    return ask(this.#db, this.availableTo(account));
  }

  /** The same as a question, to be asked with others. */
  availableTo(account: string): Question<number> {
    const { statements, read } = firstRow<{ balance: number }>(this.#postings.available(account));
    return { statements, read: (results) => read(results)?.balance ?? 0 };
  }

  /** Credit set aside for work that is going on, micro-USD. */
  async held(account: string): Promise<number> {
    const row = await this.#db
      .prepare("SELECT coalesce(sum(balance), 0) AS held FROM ledger_accounts WHERE owner = ? AND id LIKE 'hold:%'")
      .bind(account)
      .first<{ held: number }>();
    return row?.held ?? 0;
  }

  /** Grants with credit left, in the order in which they are burned. */
  async grants(account: string): Promise<GrantBalance[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT g.id, g.source, g.promotional, g.amount, a.balance, g.expires_at AS expiresAt, g.created_at AS createdAt
         FROM grants g JOIN ledger_accounts a ON a.id = 'grant:' || g.id
         WHERE g.account = ? AND a.balance > 0 AND (g.expires_at IS NULL OR g.expires_at > ?) ORDER BY ${BURN_ORDER}`,
      )
      .bind(account, this.#now())
      .all<Omit<GrantBalance, 'promotional'> & { promotional: number }>();
    return results.map((row) => ({ ...row, promotional: row.promotional === 1 }));
  }

  #charge(movement: Movement): { id: string; statements: Statement[] } {
    const revenue = `revenue:${movement.service}`;
    return this.#debit('charge', movement, revenue, [this.#postings.open(revenue, null)]);
  }

  async #run(movement: Movement, kind: string, id: string, statements: Statement[]): Promise<ChargeOutcome> {
    try {
      const results = await this.#db.batch<{ balance: number }>([
        ...statements,
        this.#postings.available(movement.account),
      ]);
      return { status: 'charged', id, balance: results.at(-1)?.results[0]?.balance ?? 0 };
    } catch (error) {
      return this.#explain(movement, kind, error);
    }
  }

  /** Why a debit was refused, from what is booked. Anything that the ledger did not refuse is thrown on. */
  async #explain(movement: Movement, kind: string, error: unknown): Promise<ChargeOutcome> {
    const booked = await this.#transaction(movement.key);
    if (booked) {
      const same =
        booked.kind === kind &&
        booked.account === movement.account &&
        booked.service === movement.service &&
        booked.usage === movement.usage;
      if (!same) return { status: 'conflict' };
      return { status: 'duplicate', id: booked.id, balance: await this.available(movement.account) };
    }
    const account = await this.#db.prepare('SELECT 1 FROM accounts WHERE id = ?').bind(movement.account).first();
    if (!account) return { status: 'no_account' };
    if (!String(error).includes('does not balance')) throw error;
    return { status: 'insufficient_credit', balance: await this.available(movement.account) };
  }

  async #settle(
    hold: string,
    kind: 'capture' | 'release',
    more: Statement[],
    known: Held | undefined,
    entries: (transaction: string, service: string) => Statement[],
  ): Promise<boolean> {
    const made = known ?? (await this.#transaction(`hold:${hold}`));
    if (!made) return false;
    const settled = { key: `settle:${hold}`, account: made.account, amount: made.amount, usage: made.usage };
    const service = made.service ?? '';
    try {
      await this.#db.batch([
        ...this.#postings.transaction({ kind, ...settled, service }, (transaction) => entries(transaction, service)),
        this.#db.prepare('UPDATE holds SET settled_at = ? WHERE id = ?').bind(Date.now(), hold),
        ...more,
      ]);
      return true;
    } catch (error) {
      if (await this.settlement(hold)) return false;
      throw error;
    }
  }

  #debit(kind: string, movement: Movement, into: string, before: Statement[]): { id: string; statements: Statement[] } {
    if (!Number.isSafeInteger(movement.amount) || movement.amount <= 0 || movement.amount > MOST) {
      throw new RangeError(`not an amount: ${movement.amount}`);
    }
    let id = '';
    const booked = this.#postings.transaction({ kind, ...movement }, (transaction) => {
      id = transaction;
      return [
        this.#postings.debit(transaction, movement.account, movement.amount),
        this.#postings.entry(transaction, into, movement.amount),
      ];
    });
    return { id, statements: [...before, ...booked] };
  }

  #transaction(key: string): Promise<StoredTransaction | null> {
    return this.#db
      .prepare('SELECT id, kind, account, amount, service, usage FROM ledger_transactions WHERE key = ?')
      .bind(key)
      .first<StoredTransaction>();
  }
}
