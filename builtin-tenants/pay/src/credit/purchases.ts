/**
 * Buying credit: a 402 for the amount, a settled payment, one grant. The grant's key is the payment's, so whatever is
 * repeated, and wherever this process dies, one payment makes one grant.
 */

import { formatUsd } from '../../../kit/usd.ts';
import type { Account } from '../accounts/accounts.ts';
import { newId, sha256Hex } from '../accounts/tokens.ts';
import type { Catalog, Plan } from '../catalog.ts';
import type { Database } from '../environment.ts';
import { CaptureFailed, type Payments, paysByWallet, refusalOf, type WantedPayment } from '../gateway/payments.ts';
import { invalidField, Problem } from '../problem.ts';
import type { Ledger } from './ledger.ts';
import type { OriginEvents } from './origin-events.ts';

const DAY_MS = 86_400_000;
/** A purchase that is older than this and not granted belongs to a process that died. */
const ABANDONED_MS = 60_000;

export interface PurchaseParts {
  db: Database;
  catalog: Catalog;
  ledger: Ledger;
  payments: Payments;
  events: OriginEvents;
  /** Business time, ms. */
  now(): number;
}

interface PurchaseRow {
  hold: string;
  account: string;
  service: string;
  plan: string;
  amount: number;
  requestId: string;
  state: 'capturing' | 'granted' | 'failed';
}

export class Purchases {
  readonly #parts: PurchaseParts;

  constructor(parts: PurchaseParts) {
    this.#parts = parts;
  }

  /**
   * @param account whose credit is topped up; undefined: the one that asked for the challenge
   * @param resource address of the purchase as callers see it
   * @param request a GET is of a person's browser, and is answered a page where it is not paid
   * @param requestId by which it stands on the statement
   * @throws Problem
   */
  async purchase(
    plan: Plan,
    account: Account | undefined,
    amountUsd: unknown,
    resource: string,
    request: Request,
    requestId = newId('req'),
  ): Promise<Response> {
    const { payments, db } = this.#parts;
    const amount = parseAmount(amountUsd, plan.minimum);
    const wanted = await this.wanted(plan, amount, resource);
    const onPage =
      request.method === 'GET' ? { accept: request.headers.get('accept') ?? '', programs: false } : undefined;
    const challenge = ({ id }: Account, refused?: string) =>
      payments.challenge({
        ...wanted,
        ...onPage,
        ...(refused === undefined ? {} : { refused }),
        metadata: { accountId: id },
      });
    if (!paysByWallet(request.headers)) {
      if (!account) throw noAccount();
      return challenge(account);
    }
    const verified = await payments.verify(request.headers, wanted);
    if ('answer' in verified)
      return onPage && account ? challenge(account, await refusalOf(verified.answer)) : verified.answer;
    const { hold, metadata, taken } = verified.held;
    const accountId = metadata.accountId ?? '';
    if (account && account.id !== accountId) {
      await payments.release(hold);
      throw new Problem('payment_invalid', 'The challenge was for another account. Nothing was charged.');
    }
    if (taken && !(await this.#find(hold))) throw usedOtherwise();
    await db
      .prepare(
        `INSERT INTO purchases (hold, account, service, plan, amount, request_id, state, created_at)
         VALUES (?, ?, ?, ?, ?, ?, 'capturing', ?) ON CONFLICT DO NOTHING`,
      )
      .bind(hold, accountId, plan.service, plan.id, amount, requestId, Date.now())
      .run();
    const row = await this.#find(hold);
    const same = row?.account === accountId && row.amount === amount && row.service === plan.service;
    if (!row || !same || row.plan !== plan.id) throw usedOtherwise();
    const receipt = await this.#finish(row);
    const body = {
      grantId: `purchase:${hold}`,
      accountId,
      amountUsd: formatUsd(amount),
      balanceUsd: formatUsd(await this.#parts.ledger.available(accountId)),
      requestId: row.requestId,
    };
    const headers = new Headers(receipt);
    headers.set('content-type', 'application/json');
    headers.set('cache-control', 'no-store');
    headers.set('x-request-id', row.requestId);
    return new Response(JSON.stringify(body), { status: 201, headers });
  }

  /** The payment that a purchase asks for. @param amount micro-USD */
  async wanted(plan: Plan, amount: number, resource: string): Promise<WantedPayment> {
    return {
      amount,
      description: `${formatUsd(amount)} USD of credit`,
      bind: await sha256Hex(`purchase ${plan.service} ${plan.id} ${amount}`),
      resource,
    };
  }

  /** How far the purchase of a request has come; undefined: no payment was held for it. */
  async stateOf(requestId: string): Promise<PurchaseRow['state'] | undefined> {
    const row = await this.#parts.db.prepare(`${SELECT} WHERE request_id = ?`).bind(requestId).first<PurchaseRow>();
    return row?.state;
  }

  /** Goes on with purchases whose process died between the payment and the grant. Answers how many. */
  async recover(): Promise<number> {
    const { results } = await this.#parts.db
      .prepare(`${SELECT} WHERE state = 'capturing' AND created_at < ? LIMIT 50`)
      .bind(Date.now() - ABANDONED_MS)
      .all<PurchaseRow>();
    let finished = 0;
    for (const row of results) {
      try {
        await this.#finish(row);
        finished++;
      } catch (error) {
        console.error('a purchase could not be finished yet', row.hold, String(error));
      }
    }
    return finished;
  }

  async #finish(row: PurchaseRow): Promise<Headers> {
    const { payments, ledger, db, catalog, events, now } = this.#parts;
    const { hold, account, amount, service } = row;
    let receipt: Headers;
    try {
      receipt = await payments.capture(hold, amount);
    } catch (error) {
      if (!(error instanceof CaptureFailed)) throw error;
      if (error.final) {
        await db
          .prepare("UPDATE purchases SET state = 'failed' WHERE hold = ? AND state = 'capturing'")
          .bind(hold)
          .run();
      }
      throw new Problem('payment_invalid', 'The payment could not be taken; nothing was bought.');
    }
    const plan = await catalog.plan(service, row.plan);
    const days = plan?.expiresAfterDays ?? null;
    const grant = ledger.grantStatements({
      key: `purchase:${hold}`,
      account,
      amount,
      source: 'purchase',
      promotional: false,
      expiresAt: days === null ? null : now() + days * DAY_MS,
      requestId: row.requestId,
      memo: `${row.requestId.startsWith('drw_') ? 'Automatic top-up' : 'Purchase'} of ${formatUsd(amount)} USD`,
    });
    try {
      await db.batch([
        ...grant,
        db.prepare("UPDATE purchases SET state = 'granted' WHERE hold = ?").bind(hold),
        events.creditGranted(service, account, now()),
      ]);
    } catch (error) {
      if ((await this.#find(hold))?.state !== 'granted') throw error;
    }
    return receipt;
  }

  async #find(hold: string): Promise<PurchaseRow | undefined> {
    return (await this.#parts.db.prepare(`${SELECT} WHERE hold = ?`).bind(hold).first<PurchaseRow>()) ?? undefined;
  }
}

function usedOtherwise(): Problem {
  return new Problem('payment_invalid', 'This payment was used for something else. Nothing was charged.');
}

export function noAccount(): Problem {
  return new Problem(
    'unauthorized',
    'An account is needed: POST /pay/accounts/anonymous makes one; send its credential as Authorization: Bearer tpk_….',
    {},
    { 'www-authenticate': 'Bearer' },
  );
}

const SELECT = 'SELECT hold, account, service, plan, amount, request_id AS requestId, state FROM purchases';

/** ASCII digits, at most two decimals, no sign, no exponent, no spaces: `\d` without the u flag is ASCII alone. */
const AMOUNT = /^\d{1,6}(\.\d{1,2})?$/;

/** @throws Problem invalid_field */
export function parseAmount(text: unknown, minimum: number): number {
  if (typeof text !== 'string' || !AMOUNT.test(text)) {
    throw invalidField('/amountUsd', 'a decimal string such as "5.00" is needed, with at most two decimals');
  }
  const [whole = '0', cents = ''] = text.split('.');
  const amount = Number(whole) * 1_000_000 + Number(cents.padEnd(2, '0')) * 10_000;
  if (amount < minimum) throw invalidField('/amountUsd', `at least ${formatUsd(minimum)} USD are needed`);
  return amount;
}
