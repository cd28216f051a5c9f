/**
 * The gateway: sells what lies behind it. A call is forwarded unpaid to learn its price; the caller pays, from a
 * wallet or from credit; it is forwarded again with what was paid; and money moves only if the origin answers 2xx.
 */
import type { Account, Accounts, Opened } from '../accounts.ts';
import { authorizationOf } from '../authorization.ts';
import type { Catalog, Price, Service } from '../catalog.ts';
import { askBoth, known } from '../database/questions.ts';
import type { Database, Statement } from '../environment.ts';
import type { Ledger } from '../ledger.ts';
import { formatUsd } from '../money.ts';
import { Problem } from '../problem.ts';
import { newId, sha256Hex } from '../tokens.ts';
import { type CallClaim, type Calls, IDEMPOTENCY, type KeptAnswer, MAX_KEPT_BYTES } from './calls.ts';
import {
  type CreditChallenges,
  type CreditPayment,
  type CreditRequest,
  challengeHeader,
  presentedCredit,
} from './credit-challenge.ts';
import { answeredHeaders, callOrigin, forwardedHeaders, readPrice } from './origin.ts';
import { CaptureFailed, type HeldPayment, type Payments, paysByWallet, type WantedPayment } from './payments.ts';
import type { SigningKeys } from './signing-keys.ts';

/** Bodies are read whole: their digest is signed. */
const MAX_BODY_BYTES = 1024 * 1024;
const NONE = 'none';

export interface GatewayParts {
  db: Database;
  accounts: Accounts;
  catalog: Catalog;
  ledger: Ledger;
  keys: SigningKeys;
  payments: Payments;
  challenges: CreditChallenges;
  /** Address of the platform, before the names of services. */
  base: string;
  calls: Calls;
  /** Lets work go on though its caller has gone. */
  waitUntil(work: Promise<unknown>): void;
}

/** A call as it came, with what is needed to forward it any number of times. */
interface Call {
  service: Service;
  method: string;
  url: string;
  headers: Headers;
  original: Headers;
  body: Uint8Array<ArrayBuffer>;
  /** Address as the caller called it. */
  resource: string;
  /** Digest of method, address and body: what a payment is bound to. */
  hash: string;
  /** Whom the credential that came along belongs to. */
  opened: Opened | undefined;
}

/** A price, and what the account that asked can spend; null where none did. */
interface Asked {
  price: Price;
  balance: number | null;
}

export class Gateway {
  readonly #parts: GatewayParts;

  constructor(parts: GatewayParts) {
    this.#parts = parts;
  }

  /**
   * @param rest path and query below the service, such as `/v1/deals?q=x`
   * @returns undefined where there is no such service
   * @throws Problem
   */
  async handle(slug: string, rest: string, request: Request): Promise<Response | undefined> {
    const { accounts, base, catalog, challenges, db } = this.#parts;
    const { method, headers: original } = request;
    const credit = presentedCredit(original.get('authorization'));
    const credential = credit ? credit.credential : bearerOf(original);
    const [service, opened] = await askBoth(
      db,
      catalog.serviceNamed(slug),
      await accounts.openedBy(typeof credential === 'string' ? credential : undefined),
    );
    if (!service) return undefined;
    const body = await readBody(request);
    const url = service.origin + rest;
    const hash = await sha256Hex(`${method} ${url}\n${await sha256Hex(body)}`);
    const call: Call = {
      service,
      method,
      url,
      headers: forwardedHeaders(original),
      original,
      body,
      resource: `${base}/${slug}${rest}`,
      hash,
      opened,
    };
    if (credit) return this.#toItsEnd(this.#payFromCredit(call, await challenges.check(credit)));
    if (paysByWallet(original)) return this.#toItsEnd(this.#payFromWallet(call));
    return this.#unpaid(call);
  }

  /** Whoever hangs up while the origin works would have its work for nothing. */
  #toItsEnd(work: Promise<Response>): Promise<Response> {
    this.#parts.waitUntil(work.catch(() => undefined));
    return work;
  }

  async #unpaid(call: Call): Promise<Response> {
    const account = await this.#bearer(call);
    const idempotency = idempotencyKey(call, account?.id);
    const kept = idempotency ? await this.#parts.calls.kept(idempotency, call.hash) : undefined;
    if (kept) return kept;
    const requestId = newId('req');
    const priced = await this.#ask(call, account?.id, requestId);
    if ('answer' in priced) return toCaller(priced.answer, requestId);
    return this.#challenge(call, priced, account, requestId);
  }

  /** The unpaid forward: a price, or an answer that is free. */
  async #ask(call: Call, account: string | undefined, requestId: string): Promise<Asked | { answer: Response }> {
    const { catalog, db, keys, ledger } = this.#parts;
    const answer = await callOrigin({ ...call, account: account ?? NONE, requestId, usage: NONE }, keys);
    const read = await readPrice(answer);
    if ('answer' in read) return read;
    const { serviceSlug, usage } = read.asked;
    const [price, balance] = await askBoth(
      db,
      catalog.priceOf(serviceSlug, usage),
      account === undefined ? known(null) : ledger.availableTo(account),
    );
    // A service may charge for another one of the same origin, not for anybody's.
    if (!price || price.service.origin !== call.service.origin) {
      throw new Problem('upstream_failed', 'The origin asked for a price that this platform does not know.');
    }
    return { price, balance };
  }

  async #challenge(
    call: Call,
    { price, balance }: Asked,
    account: Account | undefined,
    requestId: string,
  ): Promise<Response> {
    const { catalog, challenges, payments } = this.#parts;
    const request = {
      amount: String(price.amount),
      currency: 'USD',
      decimals: 6,
      serviceSlug: price.service.slug,
      usage: price.usage,
      balance: balance === null ? null : String(balance),
      creditPayUrl: catalog.creditPayUrl(price.service),
      planId: price.plan?.id ?? '',
      minimumPurchaseUsd: formatUsd(price.plan?.minimum ?? 0),
      requestId,
      requestHash: call.hash,
    } as const;
    const wallet = price.creditOnly ? undefined : await payments.challenge(wanted(call, price));
    if (wallet && wallet.status !== 402 && !account) return wallet;
    const headers = new Headers(wallet?.status === 402 ? wallet.headers : {});
    headers.set('cache-control', 'no-store');
    headers.set('content-type', 'application/problem+json');
    headers.set('x-request-id', requestId);
    headers.delete('content-length');
    // Who has no account is still told what one would pay, where nothing else is taken.
    if (account || price.creditOnly) {
      headers.append('www-authenticate', challengeHeader(await challenges.issue(request, price.description)));
    }
    const problem = new Problem('payment_required', howToPay(price, account, request.creditPayUrl), {
      requestId,
      price: { amountUsd: formatUsd(price.amount), serviceSlug: price.service.slug, usage: price.usage },
      ...(account || price.creditOnly ? { credit: request } : {}),
    });
    return new Response(JSON.stringify({ ...(await offersOf(wallet)), ...problem.toDocument() }), {
      status: 402,
      headers,
    });
  }

  async #payFromCredit(call: Call, { request, challenge }: CreditPayment): Promise<Response> {
    const { accounts, calls, ledger } = this.#parts;
    if (!call.opened) throw new Problem('unauthorized', 'The credential is unknown or revoked.');
    const account = await accounts.noteUse(call.opened);
    if (request.requestHash !== call.hash) {
      throw new Problem('payment_invalid', 'The challenge was for another request. Nothing was charged.');
    }
    const key = `credit:${challenge.id}:${account.id}`;
    const idempotency = idempotencyKey(call, account.id);
    const hold = newId('hld');
    const movement = {
      account: account.id,
      service: request.serviceSlug,
      amount: Number(request.amount),
      usage: JSON.stringify(request.usage),
    };
    // Noted in the same transaction: whoever takes over after a crash finds what was held.
    const take = async (claim: CallClaim, note: Statement[]): Promise<void> => {
      const held = await ledger.hold(hold, { ...movement, requestId: claim.requestId }, note);
      if (held.status === 'insufficient_credit') throw notCovered(request, held.balance);
      if (held.status !== 'held') throw new Error(`unexpected hold: ${held.status}`);
    };
    const fresh: CallClaim = {
      keys: idempotency ? [key, idempotency] : [key],
      requestId: request.requestId,
      abandonedHold: null,
    };
    let begun: { claim: CallClaim } | { kept: Response };
    try {
      await take(fresh, calls.beginHeld(fresh, call.hash, hold, movement.amount));
      begun = { claim: fresh };
    } catch (error) {
      if (error instanceof Problem) throw error;
      // Mostly because the call is known: step by step it is seen how far it had come.
      begun = await this.#beginAgain(fresh, call.hash, (claim) =>
        take(claim, calls.noteHold(claim, hold, movement.amount)),
      );
    }
    if ('kept' in begun) return begun.kept;
    const { claim } = begun;
    return this.#work(
      call,
      claim,
      { account: account.id, usage: request.usage },
      {
        capture: async (answer) => {
          // One transaction: the money is taken and the answer kept, or neither.
          if (!(await ledger.capture(hold, calls.done(claim, answer), movement))) {
            throw new CaptureFailed(409, 'the hold was given back meanwhile');
          }
          return new Headers();
        },
        release: async () => {
          await ledger.release(hold);
        },
      },
    );
  }

  /** Begins a call that may be known under any of its keys, gives back what an attempt before held, and holds anew. */
  async #beginAgain(
    { keys: [key = '', idempotency], requestId }: CallClaim,
    hash: string,
    take: (claim: CallClaim) => Promise<void>,
  ): Promise<{ claim: CallClaim } | { kept: Response }> {
    const { calls, ledger } = this.#parts;
    const begun = await calls.begin(key, hash, requestId);
    if ('kept' in begun) return begun;
    const { claim } = begun;
    const abandoned = [claim.abandonedHold];
    if (idempotency) {
      const { kept, abandonedHold } = await this.#join(claim, idempotency, hash);
      if (kept) return { kept };
      abandoned.push(abandonedHold ?? null);
    }
    try {
      for (const left of abandoned) if (left) await ledger.release(left);
      await take(claim);
    } catch (error) {
      await calls.forget(claim);
      throw error;
    }
    return { claim };
  }

  async #payFromWallet(call: Call): Promise<Response> {
    const { calls, payments, db } = this.#parts;
    const { original } = call;
    const account = await this.#bearer(call);
    const presented = original.get('payment-signature') ?? original.get('x-payment') ?? original.get('authorization');
    const fingerprint = await sha256Hex(presented ?? '');
    const begun = await calls.begin(`wallet:${fingerprint}`, call.hash, `req_${fingerprint.slice(0, 20)}`);
    if ('kept' in begun) return begun.kept;
    const { claim } = begun;
    let held: HeldPayment | undefined;
    let price: Price;
    try {
      // The price may have changed, and the request may have become unacceptable: both are known before money is held.
      const priced = await this.#ask(call, account?.id, claim.requestId);
      if ('answer' in priced) {
        await calls.forget(claim);
        return toCaller(priced.answer, claim.requestId);
      }
      price = priced.price;
      if (price.creditOnly) throw new Problem('payment_invalid', 'This is paid from credit only. Nothing was charged.');
      const verified = await payments.verify(call.original, wanted(call, price));
      if ('answer' in verified) {
        await calls.forget(claim);
        return verified.answer;
      }
      const { hold, taken } = verified.held;
      // However the credential is spelled and whatever else is sent with it: one payment is one call.
      const same = await this.#join(claim, `payment:${hold}`, call.hash);
      if (same.kept) return same.kept;
      if (taken) throw new Problem('conflict', 'This payment was used, and its answer is no longer kept.');
      held = verified.held;
      const idempotency = idempotencyKey(call, held.payer);
      const joined = idempotency ? await this.#join(claim, idempotency, call.hash) : {};
      if (joined.abandonedHold && joined.abandonedHold !== hold) await payments.release(joined.abandonedHold);
      if (joined.kept) {
        await payments.release(held.hold);
        return joined.kept;
      }
      await db.batch(calls.noteHold(claim, held.hold, price.amount));
    } catch (error) {
      if (held) await payments.release(held.hold);
      await calls.forget(claim);
      throw error;
    }
    return this.#workForWallet(call, claim, held, price, account?.id ?? held.payer);
  }

  #workForWallet(
    call: Call,
    claim: CallClaim,
    { hold }: HeldPayment,
    price: Price,
    account: string,
  ): Promise<Response> {
    const { calls, payments, db } = this.#parts;
    return this.#work(
      call,
      claim,
      { account, usage: price.usage },
      {
        capture: async (answer) => {
          await db.batch(calls.capturing(claim, answer));
          const receipt = await payments.capture(hold, price.amount);
          await db.batch(
            calls.done(claim, { ...answer, headers: [...answer.headers, ...receipt] as [string, string][] }),
          );
          return receipt;
        },
        release: () => payments.release(hold),
      },
    );
  }

  /** The paid forward, and what becomes of the money. */
  async #work(
    call: Call,
    claim: CallClaim,
    paid: { account: string; usage: Price['usage'] },
    money: { capture(answer: KeptAnswer): Promise<Headers>; release(): Promise<void> },
  ): Promise<Response> {
    const { keys, calls } = this.#parts;
    const { requestId } = claim;
    let answer: Response | undefined;
    try {
      const forward = { ...call, account: paid.account, requestId, usage: JSON.stringify(paid.usage) };
      answer = await callOrigin(forward, keys).catch(brokenOff);
      // The origin may have done the work before it broke off: by the call's id it knows it again.
      if (!answer || BROKEN_OFF.includes(answer.status)) {
        await answer?.body?.cancel();
        answer = undefined;
        answer = await callOrigin(forward, keys);
      }
      const small = answer.ok ? await readSmall(answer) : undefined;
      if (!answer.ok) {
        await money.release();
        await (BROKEN_OFF.includes(answer.status) ? calls.unanswered(claim) : calls.forget(claim));
        if (answer.status === 402) throw new Problem('upstream_failed', 'The origin asked again. Nothing was charged.');
        return toCaller(answer, requestId);
      }
      const headers = answeredHeaders(answer.headers);
      headers.set('x-request-id', requestId);
      const receipt = await money.capture({ status: answer.status, headers: [...headers], body: small ?? null });
      for (const [name, value] of receipt) headers.set(name, value);
      return new Response(small === undefined || answer.status === 204 ? answer.body : small, {
        status: answer.status,
        headers,
      });
    } catch (error) {
      await answer?.body?.cancel().catch(() => {});
      if (error instanceof CaptureFailed) {
        if (error.final) await calls.forget(claim);
        throw new Problem('payment_invalid', 'The payment could not be taken, so the answer is withheld; try again.');
      }
      if (!answer || error instanceof Problem) {
        await money.release();
        await (answer ? calls.forget(claim) : calls.unanswered(claim));
      }
      throw error;
    }
  }

  /** Claims the Idempotency-Key too; where its answer is kept, the credential's own key is free again. */
  async #join(claim: CallClaim, key: string, hash: string): Promise<{ kept?: Response; abandonedHold?: string }> {
    const { calls } = this.#parts;
    try {
      const joined = await calls.join(claim, key, hash);
      if (joined.kept) await calls.forget(claim);
      return joined;
    } catch (error) {
      await calls.forget(claim);
      throw error;
    }
  }

  /** The account of a Bearer credential. @throws Problem unauthorized for one that opens nothing */
  async #bearer({ original, opened }: Call): Promise<Account | undefined> {
    if (bearerOf(original) === undefined) return undefined;
    if (!opened)
      throw new Problem('unauthorized', 'The credential is unknown or revoked.', {}, { 'www-authenticate': 'Bearer' });
    return this.#parts.accounts.noteUse(opened);
  }
}

function bearerOf(headers: Headers): string | undefined {
  return authorizationOf(headers.get('authorization'), 'Bearer');
}

/** What the host, or whatever is before an origin, answers for one that broke off or is being started. */
const BROKEN_OFF = [502, 503];

/** @throws what is not a broken connection */
function brokenOff(error: unknown): undefined {
  if (!(error instanceof Problem) || error.code !== 'upstream_failed') throw error;
}

function notCovered(request: CreditRequest, balance: number): Problem {
  const [price, credit] = [formatUsd(Number(request.amount)), formatUsd(balance)];
  return new Problem(
    'insufficient_credit',
    `This costs ${price} USD and the credit is ${credit} USD; top up at ${request.creditPayUrl}.`,
    { priceMicroUsd: request.amount, balanceMicroUsd: String(balance), credit: request },
  );
}

function wanted(call: Call, price: Price): WantedPayment {
  return { amount: price.amount, description: price.description, bind: call.hash, resource: call.resource };
}

function howToPay(price: Price, account: Account | undefined, creditPayUrl: string): string {
  const cost = `This costs ${formatUsd(price.amount)} USD.`;
  if (!price.creditOnly) return `${cost} Repeat the request with a payment; see www-authenticate.`;
  if (account)
    return `${cost} It is paid from credit: repeat the request with the credit challenge, or top up at ${creditPayUrl}.`;
  return `${cost} It is paid from credit only: get an account (POST /pay/accounts/anonymous), top up at ${creditPayUrl}, and send its credential.`;
}

/** What a wallet's 402 says in its body (x402 clients of version 1 read it there). */
async function offersOf(wallet: Response | undefined): Promise<object> {
  if (!wallet) return {};
  const text = await wallet.text();
  try {
    return JSON.parse(text) as object;
  } catch {
    return {};
  }
}

function idempotencyKey(call: Call, who: string | undefined): string | undefined {
  const key = call.original.get('idempotency-key');
  if (key === null || who === undefined) return undefined;
  if (!/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw new Problem('invalid_field', 'Idempotency-Key: 1 to 255 visible ASCII characters are expected.');
  }
  return `${IDEMPOTENCY}${who}:${call.service.slug}:${key}`;
}

function toCaller(answer: Response, requestId: string): Response {
  const headers = answeredHeaders(answer.headers);
  headers.set('x-request-id', requestId);
  return new Response(answer.body, { status: answer.status, headers });
}

/** The whole body where it is known to be small; undefined where it is to be streamed. */
async function readSmall(answer: Response): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const length = answer.headers.get('content-length');
  if (answer.body === null) return new Uint8Array();
  if (length === null || Number(length) > MAX_KEPT_BYTES) return undefined;
  try {
    return new Uint8Array(await answer.arrayBuffer());
  } catch {
    throw new Problem('upstream_failed', 'The origin broke off its answer. Nothing was charged.');
  }
}

async function readBody(request: Request): Promise<Uint8Array<ArrayBuffer>> {
  if (request.body === null) return new Uint8Array();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body as unknown as AsyncIterable<Uint8Array>) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) throw new Problem('too_large', `Bodies of up to ${MAX_BODY_BYTES} bytes are accepted.`);
    chunks.push(chunk);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
