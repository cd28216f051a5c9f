/** A call of what the gateway sells: how it came, who makes it, and how its answer goes back. */
import type { Place } from '../../../kit/look/layout.ts';
import type { Accounts, Opened, OpenedAccount } from '../accounts/accounts.ts';
import { authorizationOf } from '../accounts/request.ts';
import type { Catalog, Service } from '../catalog.ts';
import type { Ledger } from '../credit/ledger.ts';
import type { Database, Fetcher } from '../environment.ts';
import { Problem } from '../problem.ts';
import { type Calls, IDEMPOTENCY } from './calls.ts';
import type { CreditChallenges } from './credit-challenge.ts';
import { answeredHeaders } from './origin.ts';
import type { Payments } from './payments.ts';
import type { SigningKeys } from './signing-keys.ts';

/** What the gateway works with. */
export interface GatewayParts {
  db: Database;
  accounts: Accounts;
  catalog: Catalog;
  ledger: Ledger;
  keys: SigningKeys;
  origins: Fetcher;
  payments: Payments;
  challenges: CreditChallenges;
  /** Address of the platform, before the names of services. */
  base: string;
  /** Origin of the pages for people. */
  pagesUrl: string;
  /** What else the host has. */
  places: readonly Place[];
  calls: Calls;
  /** Lets work go on though its caller has gone. */
  waitUntil(work: Promise<unknown>): void;
  /** Tops up an account that is low and has a mandate, after the answer. */
  topUp(account: string): void;
}

/** A call as it came, with what is needed to forward it any number of times. */
export interface Call {
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

/** The account of a Bearer credential. @throws Problem unauthorized for one that opens nothing */
export async function bearer(parts: GatewayParts, { original, opened }: Call): Promise<OpenedAccount | undefined> {
  if (bearerOf(original) === undefined) return undefined;
  if (!opened)
    throw new Problem('unauthorized', 'The credential is unknown or revoked.', {}, { 'www-authenticate': 'Bearer' });
  return parts.accounts.noteUse(opened);
}

export function bearerOf(headers: Headers): string | undefined {
  return authorizationOf(headers.get('authorization'), 'Bearer');
}

export function idempotencyKey(call: Call, who: string | undefined): string | undefined {
  const key = call.original.get('idempotency-key');
  if (key === null || who === undefined) return undefined;
  if (!/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw new Problem('invalid_field', 'Idempotency-Key: 1 to 255 visible ASCII characters are expected.');
  }
  return `${IDEMPOTENCY}${who}:${call.service.slug}:${key}`;
}

export function toCaller(answer: Response, requestId: string): Response {
  const headers = answeredHeaders(answer.headers);
  headers.set('x-request-id', requestId);
  return new Response(answer.body, { status: answer.status, headers });
}
