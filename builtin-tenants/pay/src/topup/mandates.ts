/** The mandates of accounts: what a holder asks for, what a wallet has signed, and its end. */
import { formatUsd, parseUsd } from '../../../kit/usd.ts';
import { newId, sha256Hex } from '../accounts/tokens.ts';
import { MOST } from '../catalog.ts';
import { parseAmount } from '../credit/purchases.ts';
import type { Database } from '../environment.ts';
import type { AcceptedMandate, WantedMandate } from '../gateway/payments.ts';
import { invalidField, Problem } from '../problem.ts';

const DAY_MS = 86_400_000;
const LONGEST_DAYS = 366;
const MOST_DRAWS_LISTED = 50;

/** Amounts in micro-USD, times in ms. */
export interface TopUpTerms {
  /** Of one top-up. */
  amount: number;
  /** It is made when the credit is below this. */
  below: number;
  /** The most in each period. */
  most: number;
  days: number;
  until: number;
}

export interface MandateRow extends Omit<TopUpTerms, 'until'> {
  id: string;
  account: string;
  sealed: string | null;
  payer: string;
  key: string;
  until: number;
  createdAt: number;
  failures: number;
  nextAt: number;
}

export interface DrawRow {
  id: string;
  mandate: string;
  account: string;
  amount: number;
  state: 'begun' | 'paid' | 'failed';
  payment: string | null;
  why: string | null;
  at: number;
}

/** `account`: its holder ended it. `wallet`: the wallet revoked the key on its chain. */
export type MandateEnd = 'account' | 'replaced' | 'wallet' | 'expired';

export const MANDATE_COLUMNS = `id, account, sealed, payer, key_address AS key, most, period_days AS days, amount, below,
  expires_at AS until, created_at AS createdAt, failures, next_at AS nextAt`;
export const DRAW_COLUMNS = 'id, mandate, account, amount, state, payment, why, at';

export class MandateStore {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  async live(account: string): Promise<MandateRow | undefined> {
    const row = await this.#db
      .prepare(`SELECT ${MANDATE_COLUMNS} FROM mandates WHERE account = ? AND ended_at IS NULL`)
      .bind(account)
      .first<MandateRow>();
    return row ?? undefined;
  }

  /**
   * Notes what a wallet has signed, and ends the one before. The same signature again changes nothing.
   * @throws Problem conflict for one that was ended
   */
  async add(terms: TopUpTerms, account: string, signed: AcceptedMandate): Promise<MandateRow> {
    const id = `mnd_${(await sha256Hex(`mandate ${signed.key}`)).slice(0, 20)}`;
    const now = Date.now();
    const { amount, below, most, days, until } = terms;
    await this.#db.batch([
      this.#db
        .prepare(
          `UPDATE mandates SET ended_at = ?2, ended_why = 'replaced', sealed = NULL
           WHERE account = ?1 AND ended_at IS NULL AND id <> ?3 AND NOT EXISTS (SELECT 1 FROM mandates WHERE id = ?3)`,
        )
        .bind(account, now, id),
      this.#db
        .prepare(
          `INSERT INTO mandates (id, account, sealed, payer, key_address, most, period_days, amount, below, expires_at, created_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`,
        )
        .bind(id, account, signed.sealed, signed.payer, signed.key, most, days, amount, below, until, now),
    ]);
    const live = await this.live(account);
    if (live?.id !== id) throw new Problem('conflict', 'This mandate was ended; ask for a new one and sign that.');
    return live;
  }

  /** From now on nothing is drawn: a payment that is not signed yet never will be. @returns false where there is none */
  async end(account: string, why: MandateEnd, id?: string): Promise<boolean> {
    const { meta } = await this.#db
      .prepare(
        `UPDATE mandates SET ended_at = ?2, ended_why = ?3, sealed = NULL
         WHERE account = ?1 AND ended_at IS NULL AND id = coalesce(?4, id)`,
      )
      .bind(account, Date.now(), why, id ?? null)
      .run();
    return meta.changes > 0;
  }

  /** For the account's page and API. */
  async view(account: string) {
    const mandate = await this.live(account);
    const { results } = await this.#db
      .prepare(`SELECT ${DRAW_COLUMNS} FROM draws WHERE account = ? ORDER BY at DESC, id LIMIT ${MOST_DRAWS_LISTED}`)
      .bind(account)
      .all<DrawRow>();
    return {
      mandate: mandate ? mandateView(mandate, await this.#drawn(mandate)) : null,
      draws: results.map(({ id, mandate, amount, state, why, at }) => ({
        id,
        mandateId: mandate,
        amountUsd: formatUsd(amount),
        state,
        why,
        at: new Date(at).toISOString(),
      })),
    };
  }

  /** micro-USD of the present period. */
  async #drawn({ id, days }: MandateRow): Promise<number> {
    const row = await this.#db
      .prepare("SELECT coalesce(sum(amount), 0) AS drawn FROM draws WHERE mandate = ? AND state <> 'failed' AND at > ?")
      .bind(id, Date.now() - days * DAY_MS)
      .first<{ drawn: number }>();
    return row?.drawn ?? 0;
  }
}

export type TopUpView = Awaited<ReturnType<MandateStore['view']>>;

function mandateView({ id, payer, key, most, days, amount, below, until, createdAt }: MandateRow, drawn: number) {
  return {
    id,
    wallet: payer,
    key,
    amountUsd: formatUsd(amount),
    belowUsd: formatUsd(below),
    limitUsd: formatUsd(most),
    everyDays: days,
    drawnUsd: formatUsd(drawn),
    until: new Date(until).toISOString(),
    createdAt: new Date(createdAt).toISOString(),
  };
}

/** @param minimum least that can be bought, micro-USD. @throws Problem invalid_field */
export function readTerms(input: Record<string, unknown>, minimum: number): TopUpTerms {
  const amount = parseAmount(input.amountUsd, minimum);
  const below = usd(input.belowUsd, '/belowUsd');
  const most = usd(input.limitUsd, '/limitUsd');
  if (most < amount) throw invalidField('/limitUsd', 'at least one top-up is expected');
  const days = input.everyDays ?? 30;
  if (!Number.isSafeInteger(days) || Number(days) < 1 || Number(days) > LONGEST_DAYS)
    throw invalidField('/everyDays', `a whole number of days up to ${LONGEST_DAYS} is expected`);
  const until = typeof input.until === 'string' ? Date.parse(input.until) : Number.NaN;
  const now = Date.now();
  if (!(until > now + DAY_MS && until < now + LONGEST_DAYS * DAY_MS))
    throw invalidField(
      '/until',
      `a time from tomorrow to ${LONGEST_DAYS} days from now, such as 2027-01-31T00:00:00Z, is expected`,
    );
  return { amount, below, most, days: Number(days), until: Math.floor(until / 1_000) * 1_000 };
}

/** What the wallet signs, and what of it comes back with the signature. */
export function wantedOf(terms: TopUpTerms, account: string): WantedMandate {
  const { most, days, until, amount, below } = terms;
  return {
    most,
    days,
    until,
    description: `Top up credit by ${formatUsd(amount)} USD below ${formatUsd(below)} USD; at most ${formatUsd(most)} USD in ${days} days`,
    bind: MANDATE_BIND,
    metadata: { accountId: account, terms: JSON.stringify(terms) },
  };
}

export const MANDATE_BIND = 'auto-topup';

export function newDrawId(): string {
  return newId('drw');
}

function usd(value: unknown, pointer: string): number {
  const amount = parseUsd(value);
  if (!amount || amount > MOST) throw invalidField(pointer, 'an amount in USD such as "20.00" is expected');
  return amount;
}
