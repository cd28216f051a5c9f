/**
 * The settlement state machine: verified → working → settling → settled → answered, or → released, or → refund owed →
 * refunded. A credential is worked on once at a time; every step is in the registry before anybody hears of it.
 */
import { createHash } from 'node:crypto';
import type { Logger } from 'pino';
import { brokenConstraint } from '../../registry/constraints.ts';
import { PaymentKeys } from '../../registry/payments/keys.ts';
import type { ChannelRow, PaymentRow } from '../../registry/payments/schema.ts';
import { blockedWallet } from '../../shared/blocked-wallet.ts';
import { type Money, ZERO } from '../../shared/money.ts';
import { monotonicNow } from '../../shared/monotonic.ts';
import { KeyedLock } from '../../shared/mutex.ts';
import { Problem } from '../../shared/problem.ts';
import type { PreparedOffers } from '../challenge.ts';
import { methodOf } from '../methods/index.ts';
import type { Asked, Presented, Rail } from '../methods/method.ts';
import { type SettleResult, termsToText, type Verified } from '../terms.ts';
import type { SettledPayment } from '../types.ts';
import { Again, isShownBySame, noteOf, type Place, sameCredential, sameTerms } from './again.ts';
import type { StoredAnswer } from './kept-answers.ts';
import { FINAL } from './payment-rows.ts';
import { newPaymentId, type PaymentStore } from './payment-store.ts';
import { Promised, releasedUnlessCovered } from './promised.ts';
import { chargeReceipt } from './receipts.ts';
import { Verifications } from './verifications.ts';

/** Longest time that a caller waits for the chain before hearing that the payment is pending, ms. */
const SETTLE_WAIT_MS = 12_000;

export interface AdmitInput {
  /** Who takes turns with others: the network of an address, or a tenant. */
  caller: string;
  presented: Presented;
  prepared: PreparedOffers;
  asked: Asked;
  place: Place;
  idempotencyKey: string | undefined;
  state: 'verified' | 'working';
}

export type Admitted =
  /** Work may begin. `done` ends the credential's turn and must be called. */
  | { kind: 'work'; row: PaymentRow; verified: Verified; done: () => void }
  /** It was done before, for the same thing at the same place: answer what is stored. */
  | { kind: 'replay'; again: Again };

/** Session payments are settled in the books: the channel's own part of the machine. */
export interface ChannelCapture {
  /** @param channel as it is once the payment is in the books */
  receipt(row: PaymentRow, channel: ChannelRow, charged: Money): string;
}

export class SettlementMachine {
  readonly store: PaymentStore;
  readonly keys: PaymentKeys;
  readonly #rails: Map<string, Rail>;
  readonly #channels: ChannelCapture | undefined;
  readonly #isBlocked: ((wallet: string) => boolean) | undefined;
  readonly #log: Logger;
  readonly #locks = new KeyedLock();
  readonly #inFlight = new Set<Promise<unknown>>();
  readonly #promised = new Promised();
  readonly #verifications = new Verifications();
  /** Ids of payments. */
  readonly #settling = new Set<string>();

  constructor(options: {
    store: PaymentStore;
    rails: readonly Rail[];
    channels: ChannelCapture | undefined;
    /** Whether the operator takes no payment of a wallet, lower case. Default: of every one. */
    isBlocked?: ((wallet: string) => boolean) | undefined;
    log: Logger;
  }) {
    this.store = options.store;
    this.keys = new PaymentKeys(options.store.books);
    this.#rails = new Map(options.rails.map((rail) => [keyOf(rail.name, rail.asset), rail]));
    this.#channels = options.channels;
    this.#isBlocked = options.isBlocked;
    this.#log = options.log;
  }

  /** @throws Problem `payment_invalid`, `payment_pending`, `idempotency_conflict`, `blocked` */
  async admit(input: AdmitInput): Promise<Admitted> {
    const { presented, prepared, asked } = input;
    const unlock = await this.#locks.acquire(presented.id);
    let isPromised = false;
    const done = () => {
      if (isPromised) this.#promised.forget(presented.id);
      unlock();
    };
    try {
      const previous = await this.store.byCredential(presented.id);
      const known = previous && (await this.#known(previous, input));
      if (known) {
        done();
        return known;
      }
      // By its own word first: the rail asks the chain, and opens a channel there.
      if (this.#isBlocked) this.#refuseBlocked(methodOf(presented).payer(presented));
      const offer = methodOf(presented).match(presented, prepared, asked);
      const rail = this.#rail(offer.rail, offer.asset);
      const endTurn = await rail.turn?.(presented);
      const since = monotonicNow();
      const verified = await this.#verifications
        .run(input.caller, () => rail.verify(presented, offer))
        .catch(async (error) => {
          // To the chain it is used up as soon as another node has settled what it began since it was looked for.
          if (!previous && this.store.hasOthers && (await this.store.byCredential(presented.id)))
            throw elsewhere(error);
          throw error;
        })
        .finally(() => endTurn?.());
      this.#refuseBlocked(verified.payer.address);
      const { terms } = prepared;
      const authorized = offer.authorizes ?? terms.amount;
      if (verified.shares) {
        await this.#promised.add(presented.id, verified.shares, since);
        isPromised = true;
      }
      const begin = async (key?: string) => {
        const shares = verified.shares?.length && this.store.hasOthers ? { parts: verified.shares } : undefined;
        const row = await this.#begin(
          {
            id: newPaymentId(),
            credentialId: presented.id,
            credentialHash: presented.hash,
            credential: presented.text,
            rail: presented.rail,
            kind: terms.kind,
            name: terms.name,
            scope: terms.scope,
            slug: terms.slug ?? null,
            tenant: terms.tenant ?? null,
            asset: offer.asset,
            payer: verified.payer.address,
            payerDid: verified.payer.did,
            recipient: offer.recipient,
            payTo: offer.payTo,
            custody: offer.custody,
            channel: verified.channel ?? null,
            authorized,
            feeBps: terms.feeBps,
            terms: termsToText(terms),
            settleBefore: Number.isFinite(verified.settleBefore) ? verified.settleBefore : null,
            place: noteOf(input.place, shownBy(input)),
          },
          input.state,
          previous,
          verified.voucher,
          key,
          shares,
        );
        if (shares) await releasedUnlessCovered(this.store, row, shares, since);
        return row;
      };
      const key = idempotencyKey(input, verified);
      const begun = key ? await this.#beginOnce(key, input, begin) : await begin();
      if (begun instanceof Again) {
        done();
        return { kind: 'replay', again: begun };
      }
      // A tenant's hold is promised until it ends; another node may end it, which is not heard of here.
      const isHold = terms.kind === 'binding' && !this.store.hasOthers;
      return { kind: 'work', row: begun, verified, done: isHold ? unlock : done };
    } catch (error) {
      done();
      throw error;
    }
  }

  async #begin(...given: Parameters<PaymentStore['begin']>): Promise<PaymentRow> {
    try {
      return await this.store.begin(...given);
    } catch (error) {
      const [{ channel }] = given;
      const broken = brokenConstraint(error);
      if (broken === 'UNIQUE' || broken === 'NOT NULL') throw elsewhere(error);
      if (channel === null || broken !== 'CHECK') throw error;
      const detail = 'The channel’s vouchers are used up by other calls, or it is closing; sign a greater one.';
      throw new Problem('payment_invalid', detail, { cause: error });
    }
  }

  /** A credential that was seen before; undefined when it may be tried again. */
  async #known(previous: PaymentRow, input: AdmitInput): Promise<Admitted | undefined> {
    const { presented, prepared, place } = input;
    if (previous.state === 'released') {
      // A tenant may still know it as a hold for what it was for: it must not become one for something else.
      if (previous.kind === 'binding' && !sameTerms(previous, prepared.terms)) throw otherUse();
      return undefined;
    }
    // It paid for nothing: the same id is another call.
    if (presented.repeats && previous.charged === 0n && FINAL.includes(previous.state)) return undefined;
    const usedUp = async (problem: Problem) =>
      (await this.#rail(previous.rail, previous.asset).usedUp?.(presented)) ?? problem;
    if (!sameCredential(previous, presented))
      throw await usedUp(
        new Problem('payment_invalid', 'This challenge was paid by another credential. Pay the new challenge.'),
      );
    const same = Again.of(previous, prepared.terms, place);
    if (!same) throw await usedUp(otherUse());
    const by = shownBy(input);
    if (by !== undefined && !isShownBySame(previous, by)) throw await usedUp(shownElsewhere());
    this.#refuseElsewhere(previous);
    const again = same.as(previous.state === 'settling' ? await this.reconcile(previous) : previous);
    if (!again || again.row.state === 'released') return undefined;
    if (again.row.state === 'settling' || (await this.#isLeft(again.row))) throw pending(again.row);
    return { kind: 'replay', again };
  }

  /** Its node ended between the settlement and the answer: what becomes of it is known once this node has recovered it. */
  async #isLeft(row: PaymentRow): Promise<boolean> {
    if (!this.store.hasOthers || row.state !== 'settled' || row.kind !== 'route') return false;
    return !(await this.store.kept.has(row));
  }

  /** Begins a payment under an Idempotency-Key, unless another one under it is at work or was answered. */
  async #beginOnce(
    key: string,
    input: AdmitInput,
    begin: (key: string) => Promise<PaymentRow>,
  ): Promise<PaymentRow | Again> {
    for (;;) {
      // The key is not held while its payment's end is waited for: that payment's credential may be waiting for the key.
      const found = await this.#locks.run(`key:${key}`, async () => {
        const known = await this.keys.byKey(key);
        if (known && known.state !== 'released') return { known };
        return { row: await begin(key) };
      });
      if (found.row) return found.row;
      const { known } = found;
      const comparable = input.place.whole && known.place !== null;
      const same = comparable ? Again.of(known, input.prepared.terms, input.place) : undefined;
      if (!same)
        throw new Problem(
          'idempotency_conflict',
          comparable
            ? 'This Idempotency-Key was used for another request. Nothing was charged.'
            : 'This Idempotency-Key was used, and this request cannot be compared with the first: send the first payment again, or take another key. Nothing was charged.',
        );
      // The first call may still be at work; its end is this call's answer too.
      this.#refuseElsewhere(known);
      const again = await this.#locks.run(known.credentialId, async () => same.as(await this.store.byId(known.id)));
      if (again && again.row.state !== 'released') return again;
    }
  }

  /**
   * Takes the money for work that is done. Resolves when it is settled and in the books.
   * @param charged at most what was authorized
   * @param answer what the payer gets; kept so that a retry gets the same
   * @throws Problem `payment_invalid` (nothing was charged) or `payment_pending`
   */
  async take(
    row: PaymentRow,
    charged: Money,
    options: { answer?: StoredAnswer; prepared?: string } = {},
  ): Promise<PaymentRow> {
    const { answer } = options;
    if (row.custody === 'channel') {
      const state = answer?.body === undefined ? 'settled' : 'answered';
      const receiptOf = (channel: ChannelRow) => this.#channels?.receipt(row, channel, charged) ?? '{}';
      return this.store.channel.captured(row, charged, receiptOf, answer, state);
    }
    if (row.state === 'settled') return this.store.captured(row, charged, answer);
    if (charged === 0n) {
      this.#promised.forget(row.credentialId);
      return this.store.free(row, answer);
    }
    return this.#settle(row, { charged, ...options });
  }

  /** The work came to nothing: nothing is charged, and what was taken beforehand goes back. */
  async release(row: PaymentRow, reason: string): Promise<PaymentRow> {
    this.#promised.forget(row.credentialId);
    if (row.state === 'settled') return this.store.refunds.owe(row, reason);
    return row.state === 'released' ? row : this.store.released(row, reason);
  }

  /** Takes what was authorized before the work is done; what is not used goes back at `take`. */
  async takeEarly(row: PaymentRow): Promise<PaymentRow> {
    if (row.custody !== 'collected') throw new Error('only collected payments can be settled before the work');
    return this.#settle(row, { charged: null });
  }

  async #settle(begun: PaymentRow, change: Parameters<PaymentStore['settling']>[1]): Promise<PaymentRow> {
    this.#settling.add(begun.id);
    const forget = () => void this.#settling.delete(begun.id);
    const row = await this.store.settling(begun, change).catch((error) => {
      forget();
      throw error;
    });
    const settled = this.#track(this.#ask(row, change.charged ?? undefined).finally(forget));
    this.#promised.settles(row.credentialId, settled);
    // What moved is not known to the registry yet: nobody may say that nothing was charged.
    const next = await withTimeout(settled, SETTLE_WAIT_MS).catch((error) => {
      this.#log.error({ err: error, payment: row.id }, 'what became of a settlement could not be noted');
      return row;
    });
    if (next === undefined) {
      const waiting = await this.store.pending(row, 'the network did not answer in time').catch(() => row);
      throw pending(waiting);
    }
    return this.#orThrow(next);
  }

  async #ask(row: PaymentRow, charged: Money | undefined): Promise<PaymentRow> {
    const work = this.#rail(row.rail, row.asset).settle(row, charged ?? row.authorized);
    const result = await work.catch((error): SettleResult => {
      this.#log.error({ err: error, payment: row.id }, 'unexpected error in a settlement');
      return { status: 'unknown', reason: 'unexpected error' };
    });
    return this.#apply(row, charged, result);
  }

  #orThrow(row: PaymentRow): PaymentRow {
    if (row.state === 'released')
      throw new Problem(
        'payment_invalid',
        `The payment failed: ${row.error ?? 'refused'}. Nothing was charged; pay the new challenge.`,
      );
    if (row.state === 'settling') throw pending(row);
    return row;
  }

  async #apply(row: PaymentRow, charged: Money | undefined, result: SettleResult): Promise<PaymentRow> {
    if (result.status === 'unknown') {
      this.#log.warn({ payment: row.id, reason: result.reason }, 'settlement is pending');
      return this.store.pending(row, result.reason);
    }
    this.#promised.ended(row.credentialId);
    if (result.status === 'failed') return this.store.released(row, result.reason);
    const receipt = chargeReceipt(row, result.reference, charged ?? row.authorized);
    return this.store.settled(row, result.reference, charged, receipt);
  }

  /**
   * Refuses a blocked wallet by its own word, before anything is read or done for it. What it paid for before is still
   * answered.
   * @throws Problem `blocked`
   */
  async assertTaken(presented: Presented): Promise<void> {
    const payer = this.#isBlocked && methodOf(presented).payer(presented);
    if (payer !== undefined && this.#isBlocked?.(payer) && !(await this.knows(presented))) throw blockedWallet(payer);
  }

  /** @throws Problem `payment_pending` or `in_progress` where another node is at work on it */
  #refuseElsewhere(row: PaymentRow): void {
    if (!this.store.isElsewhere(row)) return;
    throw row.state === 'settling' ? pending(row) : elsewhere();
  }

  #refuseBlocked(wallet: string | undefined): void {
    if (wallet !== undefined && this.#isBlocked?.(wallet)) throw blockedWallet(wallet);
  }

  /** Whether a payment was begun with this credential, and did not come to nothing: it may be shown again. */
  async knows(presented: Presented): Promise<boolean> {
    const row = await this.store.byCredential(presented.id);
    return row !== undefined && row.state !== 'released';
  }

  /** Whether this process is at a payment's settlement; one that is `settling` all the same was left behind. */
  isSettling(row: PaymentRow): boolean {
    return this.#settling.has(row.id);
  }

  /** Whether somebody is at work on a payment, or about to be. */
  isHeld(row: PaymentRow): boolean {
    return this.#locks.isHeld(row.credentialId);
  }

  /** Asks the chain about a settlement whose outcome is not known. Idempotent. */
  async reconcile(row: PaymentRow): Promise<PaymentRow> {
    const current = (await this.store.byId(row.id)) ?? row;
    if (this.store.isElsewhere(current)) return current;
    // Two that learn the same outcome would book it twice.
    if (current.state !== 'settling' || this.isSettling(current)) return current;
    const charged = current.charged ?? undefined;
    const result = await this.#rail(current.rail, current.asset).reconcile(current, charged ?? current.authorized);
    const latest = (await this.store.byId(row.id)) ?? current;
    // A settlement that was slow may have ended meanwhile.
    return latest.state === 'settling' ? this.#apply(latest, charged, result) : latest;
  }

  /** With the credential's lock held: for recovery and background work. */
  exclusively<T>(row: PaymentRow, work: () => Promise<T>): Promise<T> {
    return this.#locks.run(row.credentialId, work);
  }

  /** What was paid on one network is settled on that one. */
  #rail(name: string, asset: string): Rail {
    const rail = this.#rails.get(keyOf(name, asset));
    if (!rail)
      throw new Problem('payment_invalid', 'This way of paying is not offered here; pay one of the challenges.');
    return rail;
  }

  /** Waits until no settlement is in flight any more. */
  async idle(): Promise<void> {
    while (this.#inFlight.size > 0) await Promise.allSettled(this.#inFlight);
  }

  #track<T>(promise: Promise<T>): Promise<T> {
    this.#inFlight.add(promise);
    const forget = () => this.#inFlight.delete(promise);
    promise.then(forget, forget);
    return promise;
  }
}

function keyOf(rail: string, asset: string): string {
  return `${rail} ${asset}`;
}

export function settledPayment(row: PaymentRow): SettledPayment {
  return {
    id: row.id,
    payer: { address: row.payer as SettledPayment['payer']['address'], did: row.payerDid },
    amount: row.charged ?? ZERO,
    rail: row.rail as SettledPayment['rail'],
    reference: row.reference ?? '',
  };
}

/**
 * By what a payer is known again whose credential everybody can read on the chain; undefined for all others. A caller
 * chooses the key, so no key reads like a network.
 */
function shownBy({ presented, idempotencyKey, caller }: AdmitInput): string | undefined {
  if (!presented.onChain) return undefined;
  const key = idempotencyKey ?? presented.idempotencyKey;
  return key === undefined ? `network ${caller}` : `key ${key}`;
}

function shownElsewhere(): Problem {
  return new Problem(
    'payment_invalid',
    'This payment was used. The chain shows it to everybody, so its answer is given again only to the network that it came from, or with the Idempotency-Key that came with it. Pay the new challenge.',
  );
}

function otherUse(): Problem {
  return new Problem('payment_invalid', 'This payment was made for something else. Pay the new challenge.');
}

/** Another process of the host began with the same credential, or the same key, at the same moment. */
function elsewhere(cause?: unknown): Problem {
  return new Problem(
    'in_progress',
    'This payment is being worked on already. Send the very same request again in a few seconds; it is not charged twice.',
    { headers: { 'retry-after': '2' }, cause },
  );
}

function pending(row: PaymentRow): Problem {
  return new Problem(
    'payment_pending',
    'The payment was sent and is being confirmed. Send the very same request again in a few seconds; it is not charged twice.',
    { headers: { 'retry-after': '2', 'x-payment-id': row.id }, extensions: { payment: row.id } },
  );
}

/** Keys belong to one payer and one scope. */
function idempotencyKey(input: AdmitInput, verified: Verified): string | undefined {
  const { presented, prepared } = input;
  const key = input.idempotencyKey ?? presented.idempotencyKey;
  if (key === undefined) return undefined;
  return createHash('sha256').update([verified.payer.address, prepared.terms.scope, key].join('\n')).digest('hex');
}

async function withTimeout<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, ms, undefined);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
