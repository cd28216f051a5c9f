/**
 * `method="credit"`: a challenge in the form of the Payment scheme, paid from prepaid credit. Its id is an HMAC over
 * everything in it, so nothing needs to be stored until it is paid; it is bound to one request.
 */

import { authorizationOf } from '../accounts/request.ts';
import { base64url, bytesOf, fromBase64url, type MacKey, macKey, macUnder, sameText } from '../accounts/tokens.ts';
import type { UsageLine } from '../catalog.ts';
import { Problem } from '../problem.ts';

/** A price may be paid for so long after it was told. */
export const LIFE_MS = 300_000;
const METHOD = 'credit';
const INTENT = 'charge';

/** The `request` of a credit challenge, decoded. Amounts in micro-USD. */
export interface CreditRequest {
  amount: string;
  currency: 'USD';
  decimals: 6;
  serviceSlug: string;
  usage: UsageLine[];
  /** Spendable credit of the account that asked; null where none did. */
  balance: string | null;
  creditPayUrl: string;
  planId: string;
  minimumPurchaseUsd: string;
  requestId: string;
  /** SHA-256 of method, address and body, hex: another request cannot be paid with it. */
  requestHash: string;
}

export interface CreditChallenge {
  id: string;
  realm: string;
  method: typeof METHOD;
  intent: typeof INTENT;
  request: string;
  expires: string;
  description?: string;
}

/** What a caller sent as a payment from credit: nothing of it is checked yet. */
export interface PresentedCredit {
  challenge: CreditChallenge;
  credential: unknown;
}

export interface CreditPayment {
  challenge: CreditChallenge;
  request: CreditRequest;
  /** The account's credential. */
  credential: string;
}

export class CreditChallenges {
  readonly #secret: string;
  readonly #realm: string;
  #key: MacKey | undefined;

  /** @param realm host name of the public origin, as in the challenges of the host itself */
  constructor(secret: string, realm: string) {
    this.#secret = secret;
    this.#realm = realm;
  }

  async issue(request: CreditRequest, description: string): Promise<CreditChallenge> {
    const fields = {
      realm: this.#realm,
      method: METHOD,
      intent: INTENT,
      request: base64url(bytesOf(canonicalJson(request))),
      expires: new Date(Date.now() + LIFE_MS).toISOString(),
    } as const;
    // A quoted string in a header is ASCII without quotes and backslashes.
    const printable = description.replace(/[^\x20-\x7e]|["\\]/g, ' ');
    return { id: await this.#id(fields), ...fields, description: printable };
  }

  /** @throws Problem payment_invalid */
  async check({ challenge, credential }: PresentedCredit): Promise<CreditPayment> {
    const { id, realm, method, intent, request, expires } = challenge;
    if ([id, realm, request, expires].some((field) => typeof field !== 'string')) throw invalid('it is malformed');
    if (!sameText(id, await this.#id({ realm, method, intent, request, expires }))) {
      throw invalid('this platform did not issue the challenge');
    }
    if (Date.parse(expires) <= Date.now())
      throw invalid('the challenge is too old; repeat the request without payment');
    if (typeof credential !== 'string') throw invalid('its payload has no credential');
    const decoded = JSON.parse(new TextDecoder().decode(fromBase64url(request))) as CreditRequest;
    return { challenge, request: decoded, credential };
  }

  async #id(fields: Pick<CreditChallenge, 'realm' | 'method' | 'intent' | 'request' | 'expires'>): Promise<string> {
    const { realm, method, intent, request, expires } = fields;
    this.#key ??= await macKey(this.#secret, 'credit challenge');
    return macUnder(this.#key, JSON.stringify([realm, method, intent, request, expires]));
  }
}

/**
 * JSON with sorted keys (RFC 8785 for what occurs here): clients decode the request and encode it again, and the id is
 * computed over the encoded text.
 */
function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`).join(',')}}`;
}

/** As a `WWW-Authenticate` value. */
export function challengeHeader(challenge: CreditChallenge): string {
  const parameters = Object.entries(challenge).map(([name, value]) => `${name}="${value}"`);
  return `Payment ${parameters.join(', ')}`;
}

/** What a credential in the Payment scheme says, if it is one of credit; undefined for one of another method. */
export function presentedCredit(authorization: string | null): PresentedCredit | undefined {
  const encoded = authorizationOf(authorization, 'Payment');
  const parsed = encoded === undefined ? undefined : parse(encoded);
  const challenge = parsed?.challenge;
  if (!challenge || challenge.method !== METHOD) return undefined;
  return { challenge, credential: parsed?.payload?.credential };
}

function parse(encoded: string): { challenge?: CreditChallenge; payload?: { credential?: unknown } } | undefined {
  try {
    return JSON.parse(new TextDecoder().decode(fromBase64url(encoded)));
  } catch {
    return undefined;
  }
}

function invalid(why: string): Problem {
  return new Problem('payment_invalid', `The credit payment was refused: ${why}. Nothing was charged.`);
}
