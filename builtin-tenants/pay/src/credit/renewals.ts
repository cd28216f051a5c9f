/**
 * Renewals from credit: the holder lets the host take the price of one more term of a deployment, and gets a token that
 * the deployment's owner gives to the host. The host charges by it, once for each term, and gives back what it took for a
 * term that was renewed otherwise.
 */
import { formatUsd, parseUsd } from '../../../kit/usd.ts';
import { newId, newSecret, sha256Hex } from '../accounts/tokens.ts';
import { CREDIT, MOST } from '../catalog.ts';
import type { Database } from '../environment.ts';
import { invalidField, Problem } from '../problem.ts';
import type { Disputes } from './disputes.ts';
import type { Ledger } from './ledger.ts';
import type { OriginEvents } from './origin-events.ts';

/** Whose revenue renewals are. */
const SERVICE = 'renewals';
const SLUG = /^[a-z0-9][a-z0-9-]{1,38}[a-z0-9]$/;
const KEY = /^[\x21-\x7e]{1,150}$/;

interface RenewalRow {
  id: string;
  account: string;
  slug: string;
  /** micro-USD. */
  most: number;
  createdAt: number;
  lastFailure: string | null;
}

export interface RenewalView {
  slug: string;
  mostUsd: string;
  createdAt: string;
  /** `funds`: the credit did not cover it. `limit`: a term costs more than was agreed to. */
  lastFailure: string | null;
}

/** What became of a charge: `given_back` is one that the operator or the host has returned. */
export type RenewalOutcome = 'charged' | 'funds' | 'limit' | 'given_back' | 'unused';

export interface RenewalParts {
  db: Database;
  ledger: Ledger;
  disputes: Disputes;
  events: OriginEvents;
  /** Business time, ms. */
  now(): number;
  /** Sends what is due, and tops up who is low, after the answer. */
  short(account: string): void;
}

const COLUMNS = 'id, account, slug, most, created_at AS createdAt, last_failure AS lastFailure';

export class Renewals {
  readonly #parts: RenewalParts;

  constructor(parts: RenewalParts) {
    this.#parts = parts;
  }

  /** In place of the one before for that slug, whose token ends. @throws Problem invalid_field */
  async add(account: string, input: Record<string, unknown>): Promise<RenewalView & { token: string }> {
    const { slug, mostUsd } = input;
    if (typeof slug !== 'string' || !SLUG.test(slug))
      throw invalidField('/slug', 'the name of a deployment is expected');
    const most = parseUsd(mostUsd);
    if (!most || most > MOST)
      throw invalidField('/mostUsd', 'the most that a term may cost, such as "2.50", is expected');
    const { db, now } = this.#parts;
    const [token, createdAt] = [newSecret('rnw'), now()];
    await db.batch([
      this.#ended(account, slug),
      db
        .prepare('INSERT INTO renewals (id, hash, account, slug, most, created_at) VALUES (?, ?, ?, ?, ?, ?)')
        .bind(newId('ren'), await sha256Hex(token), account, slug, most, createdAt),
    ]);
    return { ...viewOf({ slug, most, createdAt, lastFailure: null }), token };
  }

  async list(account: string): Promise<RenewalView[]> {
    const { results } = await this.#parts.db
      .prepare(`SELECT ${COLUMNS} FROM renewals WHERE account = ? AND ended_at IS NULL ORDER BY slug`)
      .bind(account)
      .all<RenewalRow>();
    return results.map(viewOf);
  }

  /** From now on nothing is taken. @returns false where there is none */
  async end(account: string, slug: string): Promise<boolean> {
    return (await this.#ended(account, slug).run()).meta.changes > 0;
  }

  /** For the host. @returns undefined for a token that is unknown, ended, or of another slug */
  async find(token: unknown, slug: unknown): Promise<RenewalRow | undefined> {
    const row = await this.#parts.db
      .prepare(`SELECT ${COLUMNS} FROM renewals WHERE hash = ? AND slug = ? AND ended_at IS NULL`)
      .bind(await sha256Hex(String(token)), String(slug))
      .first<RenewalRow>();
    return row ?? undefined;
  }

  /**
   * Takes the price of one term; the same key again changes nothing.
   * @throws Problem invalid_field; not_found where it has ended
   */
  async charge(input: Record<string, unknown>): Promise<RenewalOutcome> {
    const { token, slug, key, amountUsd } = input;
    const amount = parseUsd(amountUsd);
    if (!amount || amount > MOST) throw invalidField('/amountUsd', 'an amount in USD such as "2.50" is expected');
    if (typeof key !== 'string' || !KEY.test(key)) throw invalidField('/key', 'visible ASCII characters are expected');
    const known = await this.outcome(key);
    if (known !== 'unused') return known;
    const row = await this.find(token, slug);
    if (!row) throw ended();
    if (amount > row.most) return this.#failed(row, key, amount, 'limit');
    const { db, ledger } = this.#parts;
    const movement = {
      key: ledgerKey(key),
      account: row.account,
      service: SERVICE,
      amount,
      usage: JSON.stringify([{ meterSlug: 'renewal', quantity: 1 }]),
      requestId: key,
      memo: `Renewal of ${row.slug}`,
    };
    const noted = db.prepare('INSERT INTO renewal_charges (key, renewal) VALUES (?, ?)').bind(key, row.id);
    const outcome = await ledger.charge(movement, [noted]).catch((error) => {
      throw String(error).includes('renewal: ended') ? ended() : error;
    });
    if (outcome.status === 'insufficient_credit') return this.#failed(row, key, amount, 'funds');
    // A duplicate: the host has asked twice at once.
    if (outcome.status === 'duplicate') return this.outcome(key);
    if (outcome.status !== 'charged') throw new Error(`a renewal was not charged: ${outcome.status}`);
    await db.prepare('UPDATE renewals SET failed_key = NULL, last_failure = NULL WHERE id = ?').bind(row.id).run();
    return 'charged';
  }

  /** What became of a charge of the host. */
  async outcome(key: string): Promise<RenewalOutcome> {
    const row = await this.#parts.db
      .prepare(
        `SELECT EXISTS (SELECT 1 FROM ledger_transactions r WHERE r.key = 'refund:' || t.id) AS back
         FROM ledger_transactions t WHERE t.key = ?`,
      )
      .bind(ledgerKey(key))
      .first<{ back: number }>();
    if (!row) return 'unused';
    return row.back === 1 ? 'given_back' : 'charged';
  }

  /** Gives a charge back, once. @returns false where nothing was taken under that key */
  async giveBack(key: string): Promise<boolean> {
    const { db, disputes, events, now } = this.#parts;
    const row = await db
      .prepare('SELECT account FROM ledger_transactions WHERE key = ?')
      .bind(ledgerKey(key))
      .first<{ account: string }>();
    if (!row) return false;
    const told = events.creditGranted(CREDIT.service, row.account, now());
    await disputes.refund(row.account, key, 'the term was renewed otherwise', told);
    return true;
  }

  /** Told once for each term, by the database. */
  async #failed({ id, account }: RenewalRow, key: string, amount: number, why: 'funds' | 'limit') {
    const { db, now, short } = this.#parts;
    await db
      .prepare(
        'UPDATE renewals SET failed_key = ?2, failed_amount = ?3, failed_at = ?4, last_failure = ?5 WHERE id = ?1 AND ended_at IS NULL',
      )
      .bind(id, key, amount, now(), why)
      .run();
    short(account);
    return why;
  }

  #ended(account: string, slug: string) {
    return this.#parts.db
      .prepare('UPDATE renewals SET ended_at = ?3 WHERE account = ?1 AND slug = ?2 AND ended_at IS NULL')
      .bind(account, slug, this.#parts.now());
  }
}

function ledgerKey(key: string): string {
  return `charge:${SERVICE}:${key}`;
}

function ended(): Problem {
  return new Problem('not_found', 'The account lets nothing be taken for this deployment, or not any more.');
}

export function viewOf({ slug, most, createdAt, lastFailure }: Omit<RenewalRow, 'id' | 'account'>): RenewalView {
  return { slug, mostUsd: formatUsd(most), createdAt: new Date(createdAt).toISOString(), lastFailure };
}
