/** The one list of methods of payment. Nothing outside of this folder asks by which one something is paid. */
import type { Offer } from '../terms.ts';
import type { PaymentMethod, Presented } from './method.ts';
import { tempo } from './tempo/index.ts';
import { x402 } from './x402/index.ts';

/** In the order in which offers are announced. */
export const METHODS: readonly PaymentMethod[] = [tempo, x402];

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
