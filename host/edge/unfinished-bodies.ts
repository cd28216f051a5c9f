/**
 * Bodies on their way to control, most of which nobody has paid for. Each takes memory here and there for as long as its
 * caller likes, so there is room for so many of one caller and so many in all.
 */

export interface UnfinishedBody {
  /** Ends: somebody with fewer bodies needs the room. */
  giveWay(): void;
}

/** Of one caller. */
const OF_ONE = 128;
const IN_ALL = 1_024;

export class UnfinishedBodies {
  /** By network of the caller, the oldest first. */
  readonly #of = new Map<string, Set<UnfinishedBody>>();
  readonly #ofOne: number;
  readonly #inAll: number;
  #size = 0;

  constructor(ofOne = OF_ONE, inAll = IN_ALL) {
    this.#ofOne = ofOne;
    this.#inAll = inAll;
  }

  get size(): number {
    return this.#size;
  }

  /** @returns whether there was room, or somebody with more made some */
  add(network: string, body: UnfinishedBody): boolean {
    const own = this.#of.get(network)?.size ?? 0;
    if (own >= this.#ofOne) return false;
    if (this.#size >= this.#inAll) {
      const oldest = this.#oldestOfMost(own);
      if (!oldest) return false;
      oldest.giveWay();
    }
    const bodies = this.#of.get(network) ?? new Set();
    this.#of.set(network, bodies.add(body));
    this.#size += 1;
    return true;
  }

  /** Nothing, where it was removed before. */
  remove(network: string, body: UnfinishedBody): void {
    const bodies = this.#of.get(network);
    if (!bodies?.delete(body)) return;
    this.#size -= 1;
    if (bodies.size === 0) this.#of.delete(network);
  }

  /** Of the caller that has the most bodies, and more than `own`. */
  #oldestOfMost(own: number): UnfinishedBody | undefined {
    let most = own;
    let found: Set<UnfinishedBody> | undefined;
    for (const bodies of this.#of.values()) {
      if (bodies.size <= most) continue;
      most = bodies.size;
      found = bodies;
    }
    return found?.values().next().value;
  }
}
