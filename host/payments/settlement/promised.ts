/**
 * What calls that are under way have been promised together: of a wallet's money, of what an access key may spend, of a
 * nonce. Each payment alone is covered when it is verified; many at once may not be, and handlers would work for all of
 * them while the chain takes one. Money that is promised at other nodes is found in the registry, once a payment has begun.
 */
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { formatUsd, micro } from '../../shared/money.ts';
import { monotonicNow } from '../../shared/monotonic.ts';
import { Problem } from '../../shared/problem.ts';
import type { Share } from '../terms.ts';
import type { PaymentStore } from './payment-store.ts';

/** Longer than any verification takes. */
const REMEMBERED_MS = 120_000;

interface Noted {
  credential: string;
  shares: readonly Share[];
  /** Its money moves: ends when that is known, or not known in time. */
  settlement?: Promise<unknown> | 'unknown';
}

export class Promised {
  /** By what is shared, and by credential, in the order in which they came. */
  readonly #promises = new Map<string, Map<string, Noted>>();
  readonly #byCredential = new Map<string, Noted>();
  /** When something of it was used up last, ms of `monotonicNow`. The oldest first. */
  readonly #usedAt = new Map<string, number>();

  /**
   * Notes a payment until `forget`, or until its settlement ends.
   * @param since when its verification began, ms of `monotonicNow`: what was used up since then may have been seen as there
   * @throws Problem `payment_invalid` where the earlier ones leave too little
   */
  async add(credential: string, shares: readonly Share[], since: number): Promise<void> {
    const promise = { credential, shares };
    this.#byCredential.set(credential, promise);
    for (const { of } of shares) {
      const promises = this.#promises.get(of) ?? new Map<string, Noted>();
      this.#promises.set(of, promises.set(credential, promise));
    }
    try {
      for (const share of shares) await this.#assertLeft(credential, share, since);
    } catch (error) {
      this.forget(credential);
      throw error;
    }
  }

  /** Its money moves now: until that has ended it may count twice, as promised and as gone. */
  settles(credential: string, settlement: Promise<unknown>): void {
    const promise = this.#byCredential.get(credential);
    if (!promise) return;
    const end = () => {
      promise.settlement = 'unknown';
    };
    promise.settlement = settlement.then(end, end);
  }

  /** Its money has moved, or never will. */
  ended(credential: string): void {
    const promise = this.#byCredential.get(credential);
    if (!promise) return;
    delete promise.settlement;
    for (const { of } of promise.shares) this.#used(of);
    this.forget(credential);
  }

  /** Nothing will move; what moves already is noted until it has. */
  forget(credential: string): void {
    const promise = this.#byCredential.get(credential);
    if (!promise || promise.settlement) return;
    this.#byCredential.delete(credential);
    for (const { of } of promise.shares) {
      const promises = this.#promises.get(of);
      promises?.delete(credential);
      if (promises?.size === 0) this.#promises.delete(of);
    }
  }

  async #assertLeft(credential: string, share: Share, since: number): Promise<void> {
    for (;;) {
      // Before the chain is asked: what has left the list was seen as gone, and what has not counts twice at worst.
      const earlier = this.#before(share.of, credential);
      if (earlier.length === 0 && (this.#usedAt.get(share.of) ?? Number.NEGATIVE_INFINITY) < since) return;
      const promised = earlier.reduce((sum, { shares }) => sum + amountOf(share.of, shares), 0n);
      const left = await share.left();
      if (promised + share.amount <= left) return;
      const now = this.#before(share.of, credential);
      const settlements = now.flatMap(({ settlement = 'unknown' }) => (settlement === 'unknown' ? [] : settlement));
      if (settlements.length > 0) await Promise.race(settlements);
      else if (now.length === earlier.length) throw new Problem('payment_invalid', refusal(share, left, promised));
    }
  }

  #before(of: string, credential: string): Noted[] {
    const promises = [...(this.#promises.get(of)?.values() ?? [])];
    return promises.slice(
      0,
      promises.findIndex((promise) => promise.credential === credential),
    );
  }

  #used(of: string): void {
    const now = monotonicNow();
    this.#usedAt.delete(of);
    this.#usedAt.set(of, now);
    for (const [oldest, at] of this.#usedAt) {
      if (now - at < REMEMBERED_MS) break;
      this.#usedAt.delete(oldest);
    }
  }
}

/**
 * Looks at a payment that has begun, once more: now all nodes know of it.
 * @param others that its wallet had promised before
 * @throws Problem `payment_invalid` where they leave too little; it is released then
 */
export async function releasedUnlessCovered(
  store: Pick<PaymentStore, 'queries' | 'released'>,
  row: PaymentRow,
  others: readonly string[],
  money: Share,
): Promise<void> {
  try {
    let earlier = await store.queries.promised(others);
    while (earlier.length > 0) {
      const promised = earlier.reduce((sum, { authorized }) => sum + authorized, 0n);
      const left = await money.left();
      if (promised + money.amount <= left) return;
      const now = await store.queries.promised(earlier.map(({ id }) => id));
      if (now.length === earlier.length) throw new Problem('payment_invalid', refusal(money, left, promised));
      earlier = now;
    }
  } catch (error) {
    await store.released(row, 'its wallet has promised too much to others');
    throw error;
  }
}

function amountOf(of: string, shares: readonly Share[]): bigint {
  return shares.reduce((sum, share) => (share.of === of ? sum + share.amount : sum), 0n);
}

function refusal({ holds }: Share, left: bigint, promised: bigint): string {
  if (holds === undefined)
    return 'A call with the same nonce is under way, or was just now. Sign a new transaction. Nothing was charged.';
  return `${holds} ${formatUsd(micro(left))} USD, of which ${formatUsd(micro(promised))} are promised to calls that are under way; wait for them, or raise it. Nothing was charged.`;
}
