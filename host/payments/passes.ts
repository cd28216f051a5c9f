/**
 * What somebody who has proved who they are brings along: signed, so that each node of a host can check it, with an end of
 * its own. That one was ended before its time is in the registry.
 */
import type { PaymentKeys } from '../registry/payments/keys.ts';
import { Sealed } from './sealed.ts';

export interface Pass {
  /** ms since the epoch. */
  readonly expiresAt: number;
  /** The same in all that one was renewed by: they end together. Default: it is not renewed. */
  readonly id?: string;
  /** No renewal lasts longer, ms since the epoch. */
  readonly endsAt?: number;
}

export interface PassesParts {
  /** What passes are for: one of another purpose is nothing here. */
  purpose: string;
  /** Of this purpose alone, the same at all nodes. */
  key: Buffer;
  /** Remembers which were ended. */
  keys: Pick<PaymentKeys, 'claim' | 'isClaimed'>;
  /** ms since the epoch that only grow. */
  now: () => number;
}

export class Passes<Claims extends object> {
  readonly #purpose: string;
  readonly #sealed: Sealed<Claims & Pass>;
  readonly #keys: PassesParts['keys'];
  readonly now: () => number;

  constructor({ purpose, key, keys, now }: PassesParts) {
    this.#purpose = purpose;
    this.#sealed = new Sealed(key);
    this.#keys = keys;
    this.now = now;
  }

  issue(claims: Claims & Omit<Pass, 'expiresAt'>, lifeMs: number): { token: string; expiresAt: number } {
    const expiresAt = Math.min(this.now() + lifeMs, claims.endsAt ?? Number.POSITIVE_INFINITY);
    return { token: this.#sealed.seal({ ...claims, expiresAt }), expiresAt };
  }

  async read(token: string): Promise<(Claims & Pass) | undefined> {
    const read = this.#sealed.open(token);
    if (!read || read.expiresAt <= this.now()) return undefined;
    return (await this.isEnded(nameOf(token, read))) ? undefined : read;
  }

  /** It is worth nothing from now on, at all nodes. @returns what it was worth, to one of those who end it */
  async end(token: string): Promise<(Claims & Pass) | undefined> {
    const read = await this.read(token);
    if (!read) return undefined;
    const isFirst = await this.#keys.claim(this.#endOf(nameOf(token, read)), read.endsAt ?? read.expiresAt);
    return isFirst ? read : undefined;
  }

  /** Whether it was ended before its time. @param id of one that is renewed */
  isEnded(id: string): Promise<boolean> {
    return this.#keys.isClaimed(this.#endOf(id));
  }

  #endOf(name: string): string {
    return `${this.#purpose}:${name}`;
  }
}

/** One that is not renewed has its signature, by its bytes: the same one can be written in several ways. */
function nameOf(token: string, { id }: Pass): string {
  return id ?? Buffer.from(token.slice(token.indexOf('.') + 1), 'base64url').toString('hex');
}

/**
 * @param trustedNow trusted real time, ms
 * @param highest the latest that was trusted before, ms
 * @returns time that goes on where the clock is set back: that must not revive a pass
 */
export function growing(trustedNow: () => number, highest: number): () => number {
  let latest = highest;
  let asked = performance.now();
  return () => {
    const elapsed = performance.now() - asked;
    asked += elapsed;
    latest = Math.max(latest + elapsed, trustedNow());
    return Math.floor(latest);
  };
}
