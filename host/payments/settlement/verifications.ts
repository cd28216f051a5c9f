/**
 * To verify a payment asks the network several times, and costs who sends a bad one nothing. Callers take turns: a flood
 * of bad ones makes nobody else wait, opens no connection without end, and leaves the process to other work.
 */
import { FairPlaces, NoPlace } from '../../shared/fair-places.ts';
import { Problem } from '../../shared/problem.ts';

const AT_ONCE = 128;
const OF_ONE = 32;
/** Each holds a request. */
const WAITING = 4_096;
const WAITING_OF_ONE = 1_024;
/** What is signed does not live long. */
const WAIT_MS = 10_000;

export class Verifications {
  readonly #places = new FairPlaces(AT_ONCE, [
    { places: AT_ONCE, perParty: OF_ONE, waiting: WAITING, waitingPerParty: WAITING_OF_ONE, waitMs: WAIT_MS },
  ]);

  /**
   * @param caller network of an address, or the tenant that asks
   * @throws Problem `overloaded`
   */
  async run<Result>(caller: string, verify: () => Promise<Result>): Promise<Result> {
    const leave = await this.#places.take({ lane: 0, party: caller }).catch((error) => {
      if (!(error instanceof NoPlace)) throw error;
      throw new Problem(
        'overloaded',
        'Too many payments are being verified; send the very same request again in a second. Nothing was charged.',
        { headers: { 'retry-after': '1' } },
      );
    });
    try {
      return await verify();
    } finally {
      leave();
    }
  }
}
