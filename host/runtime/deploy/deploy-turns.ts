/**
 * Decides when whose code is bundled and probed. That is work before payment: callers take turns, owners who have paid
 * come before strangers, and a caller whose code was refused waits longer each time.
 */
import { FairPlaces, NoPlace } from '../../shared/fair-places.ts';
import { networkOf } from '../../shared/network-of.ts';
import { asProblem, Problem } from '../../shared/problem.ts';
import { UnpaidWork } from './unpaid-work.ts';

/** For whom the work is done. */
export type Asker =
  /** The host itself: built-in tenants. */
  | { kind: 'host' }
  /** Of a deployment that was paid for. */
  | { kind: 'owner'; wallet: string }
  /** Nobody has paid yet; wallets are free to make, addresses are not. */
  | { kind: 'stranger'; wallet: string; address: string };

export interface DeployTurnsOptions {
  /** Codes that are bundled or tried out at the same time. Default 2. */
  atOnce?: number;
  /** How long a call may wait for its turn, ms. Default 60 s. */
  waitMs?: number;
  /** ms that only go up. */
  now?(): number;
}

const AT_ONCE = 2;
const WAIT_MS = 60_000;
/** Each that waits holds its code in memory. */
const WAITING = 32;
const WAITING_OF_ONE = 4;
/** When to ask again where the queue is full, s. */
const FULL_RETRY_S = 30;
const OWN_RETRY_S = 5;

const HOST = 0;
const OWNERS = 1;
const STRANGERS = 2;

/** Work for nothing that is forgiven, ms: some mistakes are everybody's. An address may be that of a whole company. */
const FREE_MS = 10_000;
const FREE_OF_ADDRESS_MS = 25_000;

export class DeployTurns {
  readonly #places: FairPlaces;
  readonly #now: () => number;
  readonly #unpaid: UnpaidWork;

  constructor({ atOnce = AT_ONCE, waitMs = WAIT_MS, now = () => performance.now() }: DeployTurnsOptions = {}) {
    const bounds = { perParty: 1, waiting: WAITING, waitingPerParty: WAITING_OF_ONE, waitMs };
    this.#places = new FairPlaces(atOnce, [
      { places: atOnce, perParty: atOnce },
      { ...bounds, places: atOnce },
      // One place stays free of them, so an owner waits for other owners at most.
      { ...bounds, places: Math.max(1, atOnce - 1) },
    ]);
    this.#now = now;
    this.#unpaid = new UnpaidWork(now);
  }

  /**
   * Runs `work` when it is the caller's turn. Where it is refused, its time counts against the caller.
   * @returns with the time that it took, for `wasted` if it comes to nothing later
   * @throws Problem rate_limited | overloaded, with `retry-after`
   */
  async run<Result>(asker: Asker, work: () => Promise<Result>): Promise<{ result: Result; spentMs: number }> {
    this.#refuseDebtors(asker);
    const leave = await this.#place(asker);
    const from = this.#now();
    try {
      // What it sent before may have been refused while this waited.
      this.#refuseDebtors(asker);
      const result = await work();
      return { result, spentMs: this.#now() - from };
    } catch (error) {
      if (!HOST_TO_BLAME.has(asProblem(error).code)) this.wasted(asker, this.#now() - from);
      throw error;
    } finally {
      leave();
    }
  }

  /** What was done for the caller was for nothing: it did not pay. */
  wasted(asker: Asker, spentMs: number): void {
    for (const [key] of debtsOf(asker)) this.#unpaid.add(key, spentMs);
  }

  #refuseDebtors(asker: Asker): void {
    for (const [key, freeMs] of debtsOf(asker)) {
      const waitMs = this.#unpaid.waitMs(key, freeMs);
      if (waitMs === 0) continue;
      const seconds = Math.ceil(waitMs / 1_000);
      throw new Problem('rate_limited', `Too many of your recent deploys were rejected; try again in ${seconds} s.`, {
        headers: { 'retry-after': String(seconds) },
      });
    }
  }

  async #place(asker: Asker): Promise<() => void> {
    try {
      return await this.#places.take(claimOf(asker));
    } catch (error) {
      if (!(error instanceof NoPlace)) throw error;
      if (error.why === 'party') {
        throw new Problem(
          'rate_limited',
          `${WAITING_OF_ONE} of your deploys are queued already; send the next when one of them is answered.`,
          { headers: { 'retry-after': String(OWN_RETRY_S) } },
        );
      }
      throw new Problem('overloaded', `Too many deploys are queued; try again in ${FULL_RETRY_S} s.`, {
        headers: { 'retry-after': String(FULL_RETRY_S) },
      });
    }
  }
}

/** Refusals that say nothing about the code. */
const HOST_TO_BLAME = new Set(['overloaded', 'not_ready', 'rate_limited', 'disk_full', 'database_away']);

function claimOf(asker: Asker): { lane: number; party: string; member?: string } {
  if (asker.kind === 'host') return { lane: HOST, party: '' };
  if (asker.kind === 'owner') return { lane: OWNERS, party: asker.wallet };
  return { lane: STRANGERS, party: networkOf(asker.address), member: asker.wallet };
}

/** Whom refused work counts against, and how much of it is forgiven. */
function debtsOf(asker: Asker): [key: string, freeMs: number][] {
  if (asker.kind === 'host') return [];
  const wallet: [string, number] = [asker.wallet, FREE_MS];
  return asker.kind === 'owner' ? [wallet] : [wallet, [networkOf(asker.address), FREE_OF_ADDRESS_MS]];
}
