/** The one list of methods of payment. Nothing outside of this folder asks by which one something is paid. */
import type { Offer } from '../terms.ts';
import type { Mandates } from '../types.ts';
import type { PaymentMethod, Presented, Rail } from './method.ts';
import { type TempoNeeds, tempo, tempoRails } from './tempo/index.ts';
import { tempoMandates } from './tempo/mandates.ts';
import { x402 } from './x402/index.ts';
import { type X402Needs, x402Rails } from './x402/rails.ts';

/** What the methods need of the host to take payments. */
export interface MethodHost extends TempoNeeds, X402Needs {}

interface Entry {
  method: PaymentMethod;
  /** Opens its rails on each of the host's networks: none where it cannot pay there. */
  rails(host: MethodHost): Rail[] | Promise<Rail[]>;
}

/** In the order in which offers are announced. */
const ENTRIES: readonly Entry[] = [
  { method: tempo, rails: tempoRails },
  { method: x402, rails: x402Rails },
];

export const METHODS: readonly PaymentMethod[] = ENTRIES.map(({ method }) => method);

/** Request headers that may carry a credential, in lower case. */
export const CREDENTIAL_HEADERS: readonly string[] = METHODS.flatMap(({ headers }) => headers);

/** `access-control-expose-headers` of whatever concerns a payment. */
export const EXPOSED_HEADERS = [...new Set(METHODS.flatMap(({ exposed }) => exposed))].join(', ');

/** Removes the credentials of all methods. */
export function removeCredentials(headers: Headers): void {
  for (const { headers: own, carries = () => true } of METHODS) {
    for (const name of own) {
      const value = headers.get(name);
      if (value !== null && carries(value)) headers.delete(name);
    }
  }
}

/** All ways to pay on this host's networks. */
export async function openRails(host: MethodHost): Promise<Rail[]> {
  return (await Promise.all(ENTRIES.map(({ rails }) => rails(host)))).flat();
}

/** What wallets let this host take from time to time; undefined where no method has it. */
export function openMandates(
  { mpp: [first], collector, challengeKey }: Pick<MethodHost, 'mpp' | 'collector' | 'challengeKey'>,
  derive: (purpose: string) => Buffer,
): Mandates | undefined {
  return first && tempoMandates({ network: first.network, collector, challengeKey, derive });
}

/** @throws Error for what no method made: a defect, never a caller's fault */
export function methodOf({ via }: Pick<Presented | Offer, 'via'>): PaymentMethod {
  return known(METHODS.find((method) => method.via === via));
}

/** @throws Error for a rail of no method */
export function methodOfRail(rail: string): PaymentMethod {
  return known(METHODS.find(({ family }) => rail.startsWith(`${family}/`)));
}

function known(method: PaymentMethod | undefined): PaymentMethod {
  if (!method) throw new Error('no method of payment is known for this');
  return method;
}

/**
 * @param key HMAC key of our challenges
 * @returns undefined when the request offers no payment
 * @throws Problem `payment_invalid` for anything that is not a well-formed credential of ours
 */
export function readCredential(headers: Headers, key: string): Presented | undefined {
  // The last one first: who sends a header of its own for paying means that, whatever `Authorization` holds.
  for (const method of METHODS.toReversed()) {
    const presented = method.read(headers, key);
    if (presented) return presented;
  }
  return undefined;
}

/** Whether a settlement on this rail moves what was charged, and not what was authorized. */
export function takesParts(rail: string): boolean {
  return METHODS.some(({ partialRails }) => partialRails?.some((name) => name === rail));
}
