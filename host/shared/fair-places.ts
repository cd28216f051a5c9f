/**
 * A bounded number of places for work that many parties ask for. Parties take turns, so how much one of them asks for
 * does not make another wait longer; a lane that others may not fill keeps its work apart from theirs.
 */

export interface Lane {
  /** Places that this lane may hold at once; what is missing to all of them is kept for the other lanes. */
  places: number;
  /** Places that one party may hold at once. */
  perParty: number;
  /** Claims that may wait. Default: any number. */
  waiting?: number;
  /** Claims of one party that may wait. Default: any number. */
  waitingPerParty?: number;
  /** How long a claim may wait, ms. Default: for ever. */
  waitMs?: number;
}

export interface Claim {
  /** Index of the lane; while places are scarce, the first lanes come first. */
  lane: number;
  /** Who takes turns with others, such as an owner. */
  party: string;
  /** Who takes turns within the party, such as one of its slugs. */
  member?: string;
}

/** Why a claim got no place: `party` has too many that wait, `all` have, or it waited too `long`. */
export type RefusedFor = 'party' | 'all' | 'long';

export class NoPlace extends Error {
  readonly why: RefusedFor;

  constructor(why: RefusedFor) {
    super(`no place: ${why}`);
    this.why = why;
  }
}

interface Waiter {
  claim: Claim;
  go(): void;
}

class Queue {
  readonly lane: Lane;
  /** Party -> member -> claims; in the order of turns. */
  readonly parties = new Map<string, Map<string, Waiter[]>>();
  readonly held = new Map<string, number>();
  heldByAll = 0;
  waiting = 0;

  constructor(lane: Lane) {
    this.lane = lane;
  }

  admits(party: string): boolean {
    return this.heldByAll < this.lane.places && (this.held.get(party) ?? 0) < this.lane.perParty;
  }

  hold(party: string, by: 1 | -1): void {
    this.heldByAll += by;
    const held = (this.held.get(party) ?? 0) + by;
    if (held > 0) this.held.set(party, held);
    else this.held.delete(party);
  }

  /** @throws NoPlace */
  add(waiter: Waiter): void {
    const { party, member = '' } = waiter.claim;
    const { waiting = Number.POSITIVE_INFINITY, waitingPerParty = Number.POSITIVE_INFINITY } = this.lane;
    const members = this.parties.get(party) ?? new Map<string, Waiter[]>();
    const ofParty = [...members.values()].reduce((sum, { length }) => sum + length, 0);
    if (ofParty >= waitingPerParty) throw new NoPlace('party');
    if (this.waiting >= waiting) throw new NoPlace('all');
    members.set(member, [...(members.get(member) ?? []), waiter]);
    this.parties.set(party, members);
    this.waiting++;
  }

  /** @returns whether it still waited */
  remove(waiter: Waiter): boolean {
    const { party, member = '' } = waiter.claim;
    const members = this.parties.get(party);
    const claims = members?.get(member);
    if (!members || !claims?.includes(waiter)) return false;
    const left = claims.filter((one) => one !== waiter);
    // Behind all others: it had its turn.
    members.delete(member);
    if (left.length > 0) members.set(member, left);
    this.parties.delete(party);
    if (members.size > 0) this.parties.set(party, members);
    this.waiting--;
    return true;
  }

  /** Whose turn it is. */
  next(): Waiter | undefined {
    for (const [party, members] of this.parties) {
      if (!this.admits(party)) continue;
      for (const [waiter] of members.values()) return waiter;
    }
    return undefined;
  }
}

export class FairPlaces {
  readonly #queues: Queue[];
  #free: number;

  /** @param places of all lanes together */
  constructor(places: number, lanes: Lane[]) {
    this.#free = places;
    this.#queues = lanes.map((lane) => new Queue(lane));
  }

  /** Claims that wait. */
  get waiting(): number {
    return this.#queues.reduce((sum, { waiting }) => sum + waiting, 0);
  }

  /**
   * Waits for a place.
   * @returns gives it back; may be called more than once
   * @throws NoPlace
   */
  async take(claim: Claim): Promise<() => void> {
    const queue = this.#queues[claim.lane];
    if (!queue) throw new RangeError(`there is no lane ${claim.lane}`);
    if (this.#free > 0 && queue.admits(claim.party)) this.#hold(queue, claim.party);
    else await this.#wait(queue, claim);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      queue.hold(claim.party, -1);
      this.#free++;
      this.#fill();
    };
  }

  #wait(queue: Queue, claim: Claim): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiter: Waiter = {
        claim,
        go: () => {
          clearTimeout(timer);
          resolve();
        },
      };
      queue.add(waiter);
      const { waitMs } = queue.lane;
      const timer =
        waitMs === undefined
          ? undefined
          : setTimeout(() => {
              if (queue.remove(waiter)) reject(new NoPlace('long'));
            }, waitMs);
    });
  }

  #hold(queue: Queue, party: string): void {
    this.#free--;
    queue.hold(party, 1);
  }

  /** Gives free places to those whose turn it is. */
  #fill(): void {
    for (const queue of this.#queues) {
      while (this.#free > 0) {
        const waiter = queue.next();
        if (!waiter) break;
        queue.remove(waiter);
        this.#hold(queue, waiter.claim.party);
        waiter.go();
      }
    }
  }
}
