/**
 * Automatic top-ups: credit that is below what its holder has named is bought by the holder's mandate. A draw is an
 * ordinary purchase with a payment that the host signs by the mandate. It is noted before it is signed, and what was
 * signed before it is presented: whoever goes on with it after a crash presents the same payment, which pays once.
 */
import { formatUsd } from '../../../kit/usd.ts';
import type { Account, OpenedAccount } from '../accounts/accounts.ts';
import type { Catalog, Plan } from '../catalog.ts';
import type { Ledger } from '../credit/ledger.ts';
import { AVAILABLE } from '../credit/postings.ts';
import type { Purchases } from '../credit/purchases.ts';
import type { Database } from '../environment.ts';
import type { Payments } from '../gateway/payments.ts';
import { Problem } from '../problem.ts';
import { limit } from '../rate-limit.ts';
import {
  DRAW_COLUMNS,
  type DrawRow,
  MANDATE_BIND,
  MANDATE_COLUMNS,
  type MandateRow,
  MandateStore,
  newDrawId,
  readTerms,
  type TopUpTerms,
  type TopUpView,
  wantedOf,
} from './mandates.ts';

/** A draw that is older than this belongs to a process that died, or to a chain that is slow. */
const ABANDONED_MS = 60_000;
/** Pauses after draws that failed, one after the other, ms. */
const PAUSES_MS = [60_000, 300_000, 1_800_000, 7_200_000, 21_600_000, 86_400_000];
const ASKED_A_DAY = 50;
const DAY_MS = 86_400_000;
const MOST_AT_ONCE = 50;

export interface AutoTopUpParts {
  db: Database;
  accounts: { find(id: string): Promise<Account | undefined> };
  catalog: Catalog;
  ledger: Ledger;
  payments: Payments;
  purchases: Purchases;
  /** What is bought. */
  plan: { service: string; id: string };
  /** Where it is bought, as callers see it. */
  resource: string;
  /** Business time, ms. */
  now(): number;
}

export class AutoTopUp {
  readonly #parts: AutoTopUpParts;
  readonly #store: MandateStore;

  constructor(parts: AutoTopUpParts) {
    this.#parts = parts;
    this.#store = new MandateStore(parts.db);
  }

  view(account: string): Promise<TopUpView> {
    return this.#store.view(account);
  }

  /** @returns the 402 by which a wallet signs. @throws Problem invalid_field, not_found, rate_limited */
  async ask(account: Account, input: Record<string, unknown>): Promise<Response> {
    const plan = await this.#plan();
    const terms = readTerms(input, plan.minimum);
    await limit(this.#parts.db, `mandates:${account.id}`, ASKED_A_DAY, DAY_MS);
    return this.#parts.payments.askMandate(wantedOf(terms, account.id));
  }

  /**
   * Takes what a wallet has signed; the challenge says whose account it is for.
   * @param opened the account of the caller's credential, where there is one
   * @returns the account, or the answer to a signature that is not good. @throws Problem payment_invalid, conflict
   */
  async accept(
    headers: Headers,
    opened: OpenedAccount | undefined,
  ): Promise<{ account: string } | { answer: Response }> {
    const got = await this.#parts.payments.acceptMandate(headers, MANDATE_BIND);
    if ('answer' in got) return got;
    const { metadata } = got.accepted;
    const account = metadata.accountId ?? '';
    if (opened && opened.id !== account)
      throw new Problem('payment_invalid', 'The mandate was asked for by another account. Nothing was noted.');
    if (!(await this.#parts.accounts.find(account))) throw new Problem('not_found', 'There is no such account.');
    await this.#store.add(JSON.parse(metadata.terms ?? '') as TopUpTerms, account, got.accepted);
    return { account };
  }

  /** @returns false where the account has no mandate */
  end(account: string): Promise<boolean> {
    return this.#store.end(account, 'account');
  }

  /** Goes on with draws that were cut off. @returns how many */
  async recover(): Promise<number> {
    const { results } = await this.#parts.db
      .prepare(`SELECT ${DRAW_COLUMNS} FROM draws WHERE state = 'begun' AND at < ? ORDER BY at LIMIT ${MOST_AT_ONCE}`)
      .bind(Date.now() - ABANDONED_MS)
      .all<DrawRow>();
    await each(results, (draw) => this.#drive(draw));
    return results.length;
  }

  /** Draws for who is low: one account, or all. @returns how many draws were begun, or could not be */
  async run(account?: string): Promise<number> {
    const now = Date.now();
    const { results } = await this.#parts.db
      .prepare(
        `SELECT ${MANDATE_COLUMNS} FROM mandates m WHERE ended_at IS NULL AND next_at <= ?1 AND account = coalesce(?2, account)
         AND NOT EXISTS (SELECT 1 FROM draws d WHERE d.account = m.account AND d.state = 'begun')
         ORDER BY next_at`,
      )
      .bind(now, account ?? null)
      .all<MandateRow>();
    const draws: DrawRow[] = [];
    let failed = 0;
    for (const mandate of results) {
      const begun = draws.length < MOST_AT_ONCE ? await this.#begin(mandate) : undefined;
      if (begun === 'failed') failed += 1;
      else if (begun) draws.push(begun);
    }
    await each(draws, (draw) => this.#drive(draw));
    return draws.length + failed;
  }

  /** Notes a draw, where the credit is low in the same moment and nobody else has. */
  async #begin(mandate: MandateRow): Promise<DrawRow | 'failed' | undefined> {
    const { id, account, amount, below, until } = mandate;
    const { db, ledger, now } = this.#parts;
    if ((await ledger.available(account)) >= below) return undefined;
    if (until <= Date.now()) {
      await this.#failed(mandate, undefined, 'expired');
      return 'failed';
    }
    const draw: DrawRow = {
      id: newDrawId(),
      mandate: id,
      account,
      amount,
      state: 'begun',
      payment: null,
      why: null,
      at: Date.now(),
    };
    try {
      const { meta } = await db
        .prepare(
          `INSERT INTO draws (id, mandate, account, amount, state, at)
           SELECT ?3, ?4, ?1, ?5, 'begun', ?6 WHERE (${AVAILABLE}) < ?7`,
        )
        .bind(account, now(), draw.id, id, amount, draw.at, below)
        .run();
      return meta.changes === 1 ? draw : undefined;
    } catch (error) {
      const text = String(error);
      if (text.includes('mandate: its limit is reached')) {
        await this.#failed(mandate, undefined, 'limit');
        return 'failed';
      }
      // Another call has begun one, or the holder has ended it.
      if (text.includes('UNIQUE') || text.includes('mandate: ended')) return undefined;
      throw error;
    }
  }

  /** Takes a draw as far as it goes. Again without harm, by several at once too. */
  async #drive(draw: DrawRow): Promise<void> {
    const { accounts, purchases, resource } = this.#parts;
    const account = await accounts.find(draw.account);
    if (!account) throw new Error('a draw of no account');
    const plan = await this.#plan();
    const payment = await this.#signed(draw, plan);
    if (payment === undefined) return;
    const request = new Request(resource, { method: 'POST', headers: { authorization: payment } });
    let refused: string | undefined;
    try {
      const answer = await purchases.purchase(plan, account, formatUsd(draw.amount), resource, request, draw.id);
      await answer.body?.cancel();
      if (answer.status === 402) refused = 'refused';
    } catch (error) {
      if (!(error instanceof Problem) || error.code !== 'payment_invalid') throw error;
      refused = 'refused';
    }
    const state = await purchases.stateOf(draw.id);
    if (state === 'granted') await this.#paid(draw);
    else if (state === 'failed' || (state === undefined && refused !== undefined))
      await this.#failedDraw(draw, refused ?? 'refused');
    // Otherwise the chain has not spoken: the next run asks again.
  }

  /** The payment of a draw, signed once. @returns undefined where there is none to present */
  async #signed(draw: DrawRow, plan: Plan): Promise<string | undefined> {
    if (draw.payment !== null) return draw.payment;
    const { db, payments, purchases, resource } = this.#parts;
    const sealed = (
      await db.prepare('SELECT sealed FROM mandates WHERE id = ?').bind(draw.mandate).first<{ sealed: string | null }>()
    )?.sealed;
    if (!sealed) {
      await this.#failedDraw(draw, 'ended');
      return undefined;
    }
    const wanted = await purchases.wanted(plan, draw.amount, resource);
    const signed = await payments.payByMandate(sealed, { ...wanted, metadata: { accountId: draw.account } });
    if ('refused' in signed) {
      await this.#failedDraw(draw, signed.refused);
      return undefined;
    }
    // Only the first that is noted is ever presented, and none of a mandate that was ended meanwhile.
    await db
      .prepare(
        `UPDATE draws SET payment = ?2 WHERE id = ?1 AND payment IS NULL AND state = 'begun'
         AND EXISTS (SELECT 1 FROM mandates WHERE id = draws.mandate AND ended_at IS NULL)`,
      )
      .bind(draw.id, signed.authorization)
      .run();
    const noted = await db.prepare(`SELECT ${DRAW_COLUMNS} FROM draws WHERE id = ?`).bind(draw.id).first<DrawRow>();
    if (noted?.state !== 'begun') return undefined;
    if (noted.payment === null) await this.#failedDraw(draw, 'ended');
    return noted.payment ?? undefined;
  }

  async #paid({ id, mandate }: DrawRow): Promise<void> {
    const { db } = this.#parts;
    const now = Date.now();
    await db.batch([
      db.prepare("UPDATE draws SET state = 'paid', ended_at = ?2 WHERE id = ?1 AND state = 'begun'").bind(id, now),
      db.prepare('UPDATE mandates SET failures = 0, next_at = 0 WHERE id = ?').bind(mandate),
    ]);
  }

  async #failedDraw(draw: DrawRow, why: string): Promise<void> {
    const mandate = await this.#parts.db
      .prepare(`SELECT ${MANDATE_COLUMNS} FROM mandates WHERE id = ?`)
      .bind(draw.mandate)
      .first<MandateRow>();
    if (mandate) await this.#failed(mandate, draw, why);
  }

  /**
   * Told once for each draw, and for each time that none could be begun; not where the holder has ended the mandate.
   * Nothing else comes of it: the credit stays what it is.
   */
  async #failed(mandate: MandateRow, draw: DrawRow | undefined, why: string): Promise<void> {
    const { db, now } = this.#parts;
    const { id, account, failures } = mandate;
    const at = Date.now();
    const pause = why === 'limit' ? DAY_MS : (PAUSES_MS[Math.min(failures, PAUSES_MS.length - 1)] ?? DAY_MS);
    const told = db
      .prepare(
        `UPDATE mandates SET failures = failures + 1, next_at = ?2, last_failure = ?3, failed_at = ?4
         WHERE id = ?1 AND ${draw ? "EXISTS (SELECT 1 FROM draws WHERE id = ?5 AND state = 'begun')" : 'next_at <= ?5'}`,
      )
      .bind(id, at + pause, why, now(), draw?.id ?? at);
    const over = db
      .prepare("UPDATE draws SET state = 'failed', why = ?2, ended_at = ?3 WHERE id = ?1 AND state = 'begun'")
      .bind(draw?.id ?? '', why, at);
    await db.batch(why === 'ended' ? [over] : [told, over]);
    if (why === 'revoked') await this.#store.end(account, 'wallet', id);
    if (why === 'expired') await this.#store.end(account, 'expired', id);
  }

  async #plan(): Promise<Plan> {
    const { catalog, plan } = this.#parts;
    const found = await catalog.plan(plan.service, plan.id);
    if (!found) throw new Problem('not_found', 'No credit is for sale here now.');
    return found;
  }
}

/** All at once; one that fails keeps none of the others from its end. @throws the first error, after all */
async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const failed = (await Promise.allSettled(items.map(work))).find(({ status }) => status === 'rejected');
  if (failed?.status === 'rejected') throw failed.reason;
}
