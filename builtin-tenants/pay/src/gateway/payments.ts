/** The host's `PAYMENTS` binding: challenges in MPP and x402, and payments that are held until the work is done. */

import { PAYMENT_HEADER, paymentInCookies } from '../../../kit/payment-cookie.ts';
import { formatUsd } from '../../../kit/usd.ts';
import type { Fetcher } from '../environment.ts';
import { Problem } from '../problem.ts';

export interface WantedPayment {
  /** micro-USD. */
  amount: number;
  description: string;
  /** A credential is good for exactly this: a digest of what is paid for. */
  bind: string;
  /** Address as the caller sees it. */
  resource: string;
  /** Clients of x402 v1 may pay: nothing comes back of `metadata`. */
  x402v1?: boolean;
  /** How it is called, for indexers: `env.PAYMENTS` checks it. */
  call?: unknown;
  /** The caller's `Accept`: the 402 is a page for browsers, which their wallet can pay. */
  accept?: string;
  /** Why what a page brought pays for nothing. */
  refused?: string;
  /** Whether programs can call the same address; default: yes. */
  programs?: boolean;
  /** Goes with the challenge, authenticated, and comes back with the payment. */
  metadata?: Record<string, string>;
}

export interface HeldPayment {
  hold: string;
  /** `did:pkh:…`. */
  payer: string;
  /** The money was taken before: the credential is used up, whatever it was used for. */
  taken: boolean;
  metadata: Record<string, string>;
}

export interface WantedMandate {
  /** The most in each period, micro-USD. */
  most: number;
  days: number;
  /** ms. */
  until: number;
  description: string;
  bind: string;
  metadata: Record<string, string>;
}

export interface AcceptedMandate {
  /** By this the host draws. */
  sealed: string;
  /** The wallet's address. */
  payer: string;
  /** Address of the key, by which the wallet can revoke it. */
  key: string;
  metadata: Record<string, string>;
}

/** Headers by which callers pay. */
const CREDENTIAL_HEADERS = ['authorization', 'payment-signature', 'x-payment'];
/** States of a hold from which its money can be taken, or was. */
const GOOD_STATES = ['working', 'settled', 'answered'];
const BASE = 'http://payments';

export class Payments {
  readonly #binding: Fetcher;

  constructor(binding: Fetcher) {
    this.#binding = binding;
  }

  /** The 402 to return. */
  challenge({ amount, ...wanted }: WantedPayment): Promise<Response> {
    return this.#call('/challenge', { amount: formatUsd(amount), ...wanted });
  }

  /** Holds what the caller's headers pay; an answer to pass on where they do not. */
  async verify(headers: Headers, wanted: WantedPayment): Promise<{ held: HeldPayment } | { answer: Response }> {
    const sent: Record<string, string> = {};
    for (const name of CREDENTIAL_HEADERS) {
      const value = headers.get(name);
      if (value !== null) sent[name] = value;
    }
    const { amount, bind, resource, x402v1 } = wanted;
    const answer = await this.#call('/verify', { amount: formatUsd(amount), bind, resource, x402v1 }, sent);
    if (answer.status !== 200) return { answer };
    // Calls and purchases tell retries of one payment themselves, so all of them go by its own id.
    const {
      payment: hold,
      payer,
      state,
      metadata,
    } = (await answer.json()) as {
      payment: string;
      payer: string;
      state: string;
      metadata?: Record<string, string>;
    };
    if (!GOOD_STATES.includes(state)) {
      throw new Problem('payment_invalid', 'This payment was given back before; ask for a new challenge and pay that.');
    }
    return { held: { hold, payer, taken: state === 'answered', metadata: metadata ?? {} } };
  }

  /**
   * Takes the money; again without harm. Answers the receipt's headers.
   * @throws Error when it was not taken, now or for good
   */
  async capture(hold: string, amount: number): Promise<Headers> {
    const answer = await this.#call('/capture', { hold, amount: formatUsd(amount) });
    if (!answer.ok) throw new CaptureFailed(answer.status, await answer.text());
    const { headers } = (await answer.json()) as { headers?: Record<string, string> };
    return new Headers(headers);
  }

  /**
   * Gives the money back; again without harm.
   * @throws Error when it was not given back: whoever holds it must try again
   */
  async release(hold: string): Promise<void> {
    const answer = await this.#call('/release', { hold });
    await answer.body?.cancel();
    if (answer.status >= 500) throw new Error(`the payment was not given back: ${answer.status}`);
  }

  /** The 402 by which a wallet signs a mandate. */
  askMandate({ most, until, ...wanted }: WantedMandate): Promise<Response> {
    return this.#call('/mandate', { amount: formatUsd(most), until: new Date(until).toISOString(), ...wanted });
  }

  /** Takes the mandate that the caller's headers bring; an answer to pass on where they bring none that is good. */
  async acceptMandate(headers: Headers, bind: string): Promise<{ accepted: AcceptedMandate } | { answer: Response }> {
    const answer = await this.#call('/mandate/accept', { bind }, { authorization: headers.get('authorization') ?? '' });
    if (answer.status !== 200) return { answer };
    const { mandate, payer, key, metadata } = (await answer.json()) as AcceptedMandate & { mandate: string };
    return { accepted: { sealed: mandate, payer, key, metadata } };
  }

  /**
   * A payment that is signed by a mandate; nothing has moved.
   * @returns the value of `Authorization`, or why there is none
   * @throws Error when the host cannot say
   */
  async payByMandate(
    sealed: string,
    { amount, ...wanted }: WantedPayment,
  ): Promise<{ authorization: string } | { refused: string; detail: string }> {
    const challenge = { amount: formatUsd(amount), ...wanted };
    const answer = await this.#call('/mandate/pay', { mandate: sealed, challenge });
    const body = (await answer.json()) as { authorization?: string; mandate?: string; detail?: string };
    if (body.authorization !== undefined) return { authorization: body.authorization };
    if (body.mandate === undefined) throw new Error(`no payment was signed: ${answer.status} ${body.detail}`);
    return { refused: body.mandate, detail: body.detail ?? '' };
  }

  #call(path: string, body: object, headers: Record<string, string> = {}): Promise<Response> {
    return this.#binding.fetch(BASE + path, {
      method: 'POST',
      headers: { ...headers, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  }
}

export class CaptureFailed extends Error {
  /** Whether the payment is lost for good: trying again cannot help. */
  readonly final: boolean;

  constructor(status: number, text: string) {
    super(`the payment was not captured: ${status} ${text.slice(0, 200)}`);
    this.name = 'CaptureFailed';
    this.final = status === 402 || status === 404 || status === 409 || status === 410;
  }
}

/** Whether a request carries a payment in MPP or x402. */
export function paysByWallet(headers: Headers): boolean {
  return (
    headers.has('payment-signature') ||
    headers.has('x-payment') ||
    /(?:^|,)\s*Payment\s/i.test(headers.get('authorization') ?? '')
  );
}

/** The headers of a request that brings the payment as the page of a 402 has kept it; undefined: it brings none. */
export function paidOnPage({ method, headers }: Request, resource: string): Headers | undefined {
  if ((method !== 'GET' && method !== 'HEAD') || paysByWallet(headers)) return undefined;
  const payment = paymentInCookies(headers.get('cookie') ?? '', resource);
  if (payment === undefined) return undefined;
  const paid = new Headers(headers);
  paid.set(PAYMENT_HEADER, payment);
  return paid;
}

/** What a 402 says of a payment that was brought. */
export async function refusalOf(answer: Response): Promise<string> {
  const { detail } = (await answer.json().catch(() => ({}))) as { detail?: unknown };
  return typeof detail === 'string' ? detail.slice(0, 500) : 'The payment was refused. Nothing was charged.';
}

/** Whether the host answered a page. */
export function isPage({ headers }: Response): boolean {
  return /^text\/html\b/.test(headers.get('content-type') ?? '');
}
