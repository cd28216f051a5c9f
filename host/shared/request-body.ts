/**
 * Reading bodies that anybody may send. Whole bodies of requests are read here and nowhere else, so that what a process
 * holds of them is bounded: for each caller, for all together, and in time.
 */
import { networkOf } from './network-of.ts';
import { Problem } from './problem.ts';

export interface BodyLimits {
  /** Bytes held at once of one caller's bodies. */
  perCaller: number;
  /** Bytes held at once of all bodies. */
  total: number;
  /** A body that brings fewer bytes than this in a period is given up. */
  leastBytes: number;
  periodMs: number;
}

/** One of the largest deploys of a caller, two in all. While a body is read and parsed it takes up to twice its bytes. */
const LIMITS: BodyLimits = {
  perCaller: 24 * 1_048_576,
  total: 48 * 1_048_576,
  leastBytes: 32 * 1024,
  periodMs: 10_000,
};
/** Room for a body that does not declare its length; doubled as it grows. */
const FIRST_BYTES = 65_536;
const RETRY = { headers: { 'retry-after': '5' } };

interface Held {
  caller: string;
  bytes: number;
  bytesOf: ArrayBuffer;
  /** Ends the reading; undefined once the body is whole. */
  giveUp: ((problem: Problem) => void) | undefined;
}

/** Counts the bytes of bodies that are held. Where all are taken, the caller with the most gives way to one with less. */
export class BodyBudget {
  readonly #limits: BodyLimits;
  readonly #held = new Map<Request, Held>();
  readonly #ofCaller = new Map<string, number>();
  #total = 0;

  constructor(limits: BodyLimits = LIMITS) {
    this.#limits = limits;
  }

  get bytes(): number {
    return this.#total;
  }

  /**
   * The whole body, which counts until `release(request)`.
   * @param limit most bytes
   * @param caller whose body it is: an address, or a tenant
   * @throws Problem `too_large`, `overloaded`, `request_timeout`
   */
  async read(request: Request, limit: number, caller: string): Promise<Buffer> {
    const { body } = request;
    if (body === null) return Buffer.alloc(0);
    const reader = body.getReader();
    const held: Held = { caller: networkOf(caller), bytes: 0, bytesOf: new ArrayBuffer(0), giveUp: undefined };
    let givenUp: Problem | undefined;
    // A read that waits ends at once. (`Promise.race` with a promise that outlives it would keep each piece until then.)
    held.giveUp = (problem) => {
      givenUp ??= problem;
      void reader.cancel().catch(() => {});
    };
    this.#held.set(request, held);
    const { leastBytes, periodMs } = this.#limits;
    let size = 0;
    let sizeBefore = 0;
    const pace = setInterval(() => {
      if (size - sizeBefore < leastBytes) held.giveUp?.(tooSlow());
      sizeBefore = size;
    }, periodMs);
    try {
      const declared = Number(request.headers.get('content-length') ?? 0);
      if (declared > limit) throw tooLarge(limit);
      // One piece of its own goes back to the system when it is freed; memory that is not written to takes none.
      held.bytesOf = new ArrayBuffer(Math.min(limit, declared > 0 ? declared : FIRST_BYTES));
      for (;;) {
        const { done, value } = await reader.read();
        if (givenUp) throw givenUp;
        if (done) break;
        size += value.length;
        if (size > limit) throw tooLarge(limit);
        this.#take(held, value.length);
        const room = held.bytesOf.byteLength;
        if (size > room) held.bytesOf = held.bytesOf.transfer(Math.min(limit, Math.max(size, 2 * room)));
        new Uint8Array(held.bytesOf).set(value, size - value.length);
      }
      return Buffer.from(held.bytesOf, 0, size);
    } catch (error) {
      this.release(request);
      void reader.cancel().catch(() => {});
      throw error;
    } finally {
      clearInterval(pace);
      held.giveUp = undefined;
    }
  }

  /** What was read of a request, and is held still; undefined where nothing was, or not all of it. */
  bodyOf(request: Request): Buffer | undefined {
    const held = this.#held.get(request);
    return held && !held.giveUp ? Buffer.from(held.bytesOf, 0, held.bytes) : undefined;
  }

  /** The body of this request, if one was read, is needed no more: its buffer is empty from now on. */
  release(request: Request): void {
    const held = this.#held.get(request);
    if (!held) return;
    this.#held.delete(request);
    held.giveUp?.(
      new Problem('request_timeout', 'The request was answered before all of its body came; send it again, faster.'),
    );
    this.#count(held, -held.bytes);
    // At once, not when the collector comes by: it is in no hurry where nothing else is asked for.
    held.bytesOf.transfer(0);
  }

  #count(held: Held, bytes: number): void {
    held.bytes += bytes;
    this.#total += bytes;
    const all = (this.#ofCaller.get(held.caller) ?? 0) + bytes;
    if (all === 0) this.#ofCaller.delete(held.caller);
    else this.#ofCaller.set(held.caller, all);
  }

  #take(held: Held, bytes: number): void {
    const { perCaller, total } = this.#limits;
    const own = (this.#ofCaller.get(held.caller) ?? 0) + bytes;
    if (own > perCaller) throw busy('You have too many large requests under way; send one after the other.');
    while (this.#total + bytes > total) {
      const heaviest = this.#heaviest(own);
      if (!heaviest) throw busy('Too many large requests are under way; try again in a few seconds.');
      heaviest.entry.giveUp?.(busy('Too many large requests are under way; try again in a few seconds.'));
      this.release(heaviest.request);
    }
    this.#count(held, bytes);
  }

  /** An unfinished body of the caller that holds the most, and more than `own`. */
  #heaviest(own: number): { request: Request; entry: Held } | undefined {
    let found: { request: Request; entry: Held } | undefined;
    let most = own;
    for (const [request, entry] of this.#held) {
      const all = this.#ofCaller.get(entry.caller) ?? 0;
      if (!entry.giveUp || entry.bytes === 0 || all <= most) continue;
      most = all;
      found = { request, entry };
    }
    return found;
  }
}

/** The memory of a process is one, and so is its budget. */
const ofProcess = new BodyBudget();

/** As `BodyBudget.read`, within the budget of this process. The server gives the bytes back: `releasingBodies`. */
export function readBody(request: Request, limit: number, caller: string): Promise<Buffer> {
  return ofProcess.read(request, limit, caller);
}

/** As `readBody`, where the body is needed for `use` alone. Another may have read the request, or read it later. */
export async function withCopyOfBody<Result>(
  request: Request,
  limit: number,
  caller: string,
  use: (body: Buffer) => Result,
): Promise<Result> {
  const known = ofProcess.bodyOf(request);
  if (known) return use(known);
  const copy = request.clone();
  try {
    return use(await readBody(copy, limit, caller));
  } finally {
    ofProcess.release(copy);
  }
}

/** A handler of requests whose bodies count as held until it has answered. */
export function releasingBodies<Rest extends unknown[]>(
  handle: (request: Request, ...rest: Rest) => Response | Promise<Response>,
): (request: Request, ...rest: Rest) => Promise<Response> {
  return async (request, ...rest) => {
    try {
      return await handle(request, ...rest);
    } finally {
      ofProcess.release(request);
    }
  };
}

function tooLarge(limit: number): Problem {
  return new Problem('too_large', `The body is larger than ${limit} bytes, the most that is taken here; send less.`);
}

function tooSlow(): Problem {
  return new Problem('request_timeout', 'The request body arrived too slowly; send it again over a faster connection.');
}

function busy(detail: string): Problem {
  return new Problem('overloaded', detail, RETRY);
}
