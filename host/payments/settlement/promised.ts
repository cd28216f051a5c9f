/**
 * What calls that are under way have been promised together: of a wallet's money, of what an access key may spend, of a
 * nonce. Each payment alone is covered when it is verified; many at once may not be, and handlers would work for all of
 * them while the chain takes one. What is promised at other nodes is found in the registry, once a payment has begun.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import type { Found, OtherPart } from '../../registry/payments/shares.ts';
import { formatUsd, micro } from '../../shared/money.ts';
import { monotonicNow } from '../../shared/monotonic.ts';
import { Problem } from '../../shared/problem.ts';
import type { Share } from '../terms.ts';
import type { PaymentStore } from './payment-store.ts';

/** Longer than any verification takes. */
const REMEMBERED_MS = 120_000;
/** How long a settlement of another node is waited for, and how often it is looked at, ms. */
const SETTLING_MS = 12_000;
const ASKED_AGAIN_MS = 100;

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
 * @param shares what it uses up, and what others did as it began
 * @param since when its verification began, ms of `monotonicNow`
 * @throws Problem `payment_invalid` where they leave too little; it is released then
 */
export async function releasedUnlessCovered(
  store: Pick<PaymentStore, 'queries' | 'released'>,
  row: PaymentRow,
  { parts, found }: { parts: readonly Share[]; found?: Found },
  since: number,
): Promise<void> {
  // Both clocks count whole milliseconds.
  const sinceMs = monotonicNow() - since + 1;
  try {
    for (const share of parts) {
      const underWay = found?.underWay.filter(({ of }) => of === share.of) ?? [];
      const endedMs = found?.endedMs.get(share.of) ?? Number.POSITIVE_INFINITY;
      if (underWay.length > 0 || endedMs <= sinceMs) await assertLeftBeside(store, share, underWay);
    }
  } catch (error) {
    await store.released(row, 'others use up what it shares with them');
    throw error;
  }
}

async function assertLeftBeside(
  { queries }: Pick<PaymentStore, 'queries'>,
  share: Share,
  earlier: readonly OtherPart[],
): Promise<void> {
  const end = monotonicNow() + SETTLING_MS;
  for (;;) {
    const promised = earlier.reduce((sum, { amount }) => sum + amount, 0n);
    const left = await share.left();
    if (promised + share.amount <= left) return;
    const now = await queries.stillUnderWay(earlier);
    if (now.length === earlier.length) {
      // What is moving counts twice, as promised and as gone.
      if (!now.some(({ settles }) => settles) || monotonicNow() > end)
        throw new Problem('payment_invalid', refusal(share, left, promised));
      await delay(ASKED_AGAIN_MS);
    }
    earlier = now;
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
