/**
 * The gateway: sells what lies behind it. A call is forwarded unpaid to learn its price; the caller pays, from a
 * wallet or from credit; it is forwarded again with what was paid; and money moves only if the origin answers 2xx.
 */

import { prefersHtml } from '../../../kit/prefers-html.ts';
import { formatUsd } from '../../../kit/usd.ts';
import type { Account, Opened } from '../accounts/accounts.ts';
import { newId, sha256Hex } from '../accounts/tokens.ts';
import type { Price, Service } from '../catalog.ts';
import { askBoth } from '../database/questions.ts';
import { creditOnlyPage } from '../pages/credit-only.ts';
import { Problem } from '../problem.ts';
import { type Asked, askPrice, wanted } from './asking.ts';
import { AtOnce, upTo } from './at-once.ts';
import { bearer, bearerOf, type Call, type GatewayParts, idempotencyKey, toCaller } from './call.ts';
import { type CreditPayment, type CreditRequest, challengeHeader, presentedCredit } from './credit-challenge.ts';
import { creditKeys, payFromCredit } from './from-credit.ts';
import { payFromWallet } from './from-wallet.ts';
import { forwardedHeaders } from './origin.ts';
import { isPage, paidOnPage, paysByWallet, refusalOf } from './payments.ts';

/** Bodies are read whole: their digest is signed. */
const MAX_BODY_BYTES = 1024 * 1024;

/** What the pages call. */
export interface OwnCall {
  method: string;
  /** Path and query below the service. */
  rest: string;
  headers?: Record<string, string>;
  body?: string;
}

export class Gateway {
  readonly #parts: GatewayParts;
  readonly #atOnce = new AtOnce();

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
    const resource = `${base}/${slug}${rest}`;
    const onPage = paidOnPage(request, resource);
    const { method } = request;
    const original = onPage ?? request.headers;
    const credit = presentedCredit(original.get('authorization'));
    const credential = credit ? credit.credential : bearerOf(original);
    const [service, opened] = await askBoth(
      db,
      catalog.serviceNamed(slug),
      await accounts.openedBy(typeof credential === 'string' ? credential : undefined),
    );
    if (!service) return undefined;
    const call = await callOf(service, method, rest, original, await readBody(request), resource, opened);
    if (credit) return this.#toItsEnd(this.#fromCredit(call, await challenges.check(credit)));
    if (onPage) return this.#paidOnPage(call);
    if (paysByWallet(original)) return this.#toItsEnd(payFromWallet(this.#parts, call));
    const most = upTo(original);
    if (most !== undefined) return this.#toItsEnd(this.#payUpTo(call, most));
    return this.#unpaid(call);
  }

  /**
   * A call that a person makes on the pages, for an account of theirs.
   * @param most what it may cost, micro-USD, from credit
   * @param headers with an `Idempotency-Key` where it changes something
   * @returns undefined where there is no such service
   * @throws Problem
   */
  async forAccount(
    account: Account,
    slug: string,
    { method, rest, headers = {}, body }: OwnCall,
    most: number,
  ): Promise<Response | undefined> {
    const { base, catalog } = this.#parts;
    const service = await catalog.service(slug);
    if (!service) return undefined;
    const bytes = new TextEncoder().encode(body ?? '');
    const call = await callOf(service, method, rest, new Headers(headers), bytes, `${base}/${slug}${rest}`, undefined);
    const idempotency = idempotencyKey(call, account.id);
    const kept = idempotency ? await this.#parts.calls.kept(idempotency, call.hash) : undefined;
    if (kept) return kept;
    const requestId = newId('req');
    const priced = await askPrice(this.#parts, call, account.id, requestId);
    if ('answer' in priced) return toCaller(priced.answer, requestId);
    const { price } = priced;
    if (price.amount > most)
      throw new Problem('conflict', `This costs ${formatUsd(price.amount)} USD now. Nothing was charged; look again.`);
    const request = this.#creditRequest(call, priced, requestId);
    const keys = creditKeys(call, account, requestId);
    return this.#toItsEnd(payFromCredit(this.#parts, call, account, { request, keys }));
  }

  /** What costs more is answered as if nothing had been said. */
  async #payUpTo(call: Call, most: number): Promise<Response> {
    const account = await bearer(this.#parts, call);
    if (!account) throw new Problem('unauthorized', 'X-Pay-Up-To is paid from credit: send a Bearer credential, too.');
    const request = (asked: Asked, requestId: string) => this.#creditRequest(call, asked, requestId);
    const paid = await this.#atOnce.pay(this.#parts, call, account, most, request);
    return 'answer' in paid ? paid.answer : this.#challenge(call, paid.dear, account, newId('req'));
  }

  async #fromCredit(call: Call, payment: CreditPayment): Promise<Response> {
    if (!call.opened) throw new Problem('unauthorized', 'The credential is unknown or revoked.');
    const account = await this.#parts.accounts.noteUse(call.opened);
    const { request, challenge } = payment;
    return payFromCredit(this.#parts, call, account, { request, keys: creditKeys(call, account, challenge.id) });
  }

  #creditRequest(call: Call, { price, balance }: Asked, requestId: string): CreditRequest {
    return {
      amount: String(price.amount),
      currency: 'USD',
      decimals: 6,
      serviceSlug: price.service.slug,
      usage: price.usage,
      balance: balance === null ? null : String(balance),
      creditPayUrl: this.#parts.catalog.creditPayUrl(price.service),
      planId: price.plan?.id ?? '',
      minimumPurchaseUsd: formatUsd(price.plan?.minimum ?? 0),
      requestId,
      requestHash: call.hash,
    };
  }

  /** Whoever hangs up while the origin works would have its work for nothing. */
  #toItsEnd(work: Promise<Response>): Promise<Response> {
    this.#parts.waitUntil(work.catch(() => undefined));
    return work;
  }

  /** What is refused is said on the page, which then asks anew. */
  async #paidOnPage(call: Call): Promise<Response> {
    try {
      const answer = await this.#toItsEnd(payFromWallet(this.#parts, call));
      return answer.status === 402 ? await this.#unpaid(call, await refusalOf(answer)) : answer;
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 402) throw error;
      return this.#unpaid(call, error.message);
    }
  }

  async #unpaid(call: Call, refused?: string): Promise<Response> {
    const account = await bearer(this.#parts, call);
    const idempotency = idempotencyKey(call, account?.id);
    const kept = idempotency ? await this.#parts.calls.kept(idempotency, call.hash) : undefined;
    if (kept) return kept;
    const requestId = newId('req');
    const priced = await askPrice(this.#parts, call, account?.id, requestId);
    if ('answer' in priced) return toCaller(priced.answer, requestId);
    return this.#challenge(call, priced, account, requestId, refused);
  }

  async #challenge(
    call: Call,
    priced: Asked,
    account: Account | undefined,
    requestId: string,
    refused?: string,
  ): Promise<Response> {
    const { challenges, pagesUrl, payments, places } = this.#parts;
    const { price, shape } = priced;
    const asked = { serviceSlug: price.service.slug, usage: price.usage };
    const request = this.#creditRequest(call, priced, requestId);
    const accept = account || call.method !== 'GET' ? null : call.original.get('accept');
    const asking = {
      ...wanted(call, price, shape),
      ...(accept === null ? {} : { accept }),
      ...(refused === undefined ? {} : { refused }),
    };
    const wallet = price.creditOnly ? undefined : await payments.challenge(asking);
    if (wallet && isPage(wallet)) return wallet;
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
    if (!account && price.creditOnly && prefersHtml(call.original.get('accept')))
      return creditOnlyPage({ call, price, pagesUrl, places, requestId }, headers);
    const problem = new Problem('payment_required', howToPay(price, account, request.creditPayUrl), {
      requestId,
      ...asked,
      price: { amountUsd: formatUsd(price.amount), ...asked },
      ...(account || price.creditOnly ? { credit: request } : {}),
    });
    return new Response(JSON.stringify({ ...(await offersOf(wallet)), ...problem.toDocument() }), {
      status: 402,
      headers,
    });
  }
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

async function callOf(
  service: Service,
  method: string,
  rest: string,
  original: Headers,
  body: Uint8Array<ArrayBuffer>,
  resource: string,
  opened: Opened | undefined,
): Promise<Call> {
  const url = service.origin + rest;
  const hash = await sha256Hex(`${method} ${url}\n${await sha256Hex(body)}`);
  return { service, method, url, headers: forwardedHeaders(original), original, body, resource, hash, opened };
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
