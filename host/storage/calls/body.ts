/**
 * A request's body, read at the speed of whoever consumes it. Small bodies come as one piece; large ones as a stream
 * with a bounded queue, so that memory does not grow with what a tenant sends.
 */
import { type Block, OWNED } from '../../http/message/blocks.ts';
import type { Framing } from '../../http/message/framing.ts';
import { BodyCut } from '../refusal.ts';

/** Bytes queued before the socket is no longer read. */
const HIGH_WATER = 128 * 1024;

/** Where a body comes from. */
interface Source {
  /** Lets it come. */
  receive(): void;
  sendContinue(): void;
  pause(): void;
  resume(): void;
}

export class CallBody {
  readonly #source: Source;
  #chunks: Buffer[] = [];
  #queued = 0;
  #receiving = false;
  #ended: boolean;
  #cut = false;
  #draining = false;
  #paused = false;
  /** Pieces lie in memory of their own, because they may be kept for any time. */
  #copying = false;
  #held: Block[] = [];
  #wake: (() => void) | undefined;
  /** Declared length in bytes; undefined for chunked bodies. */
  readonly length: number | undefined;

  constructor(source: Source, framing: Framing) {
    this.#source = source;
    this.length = framing.kind === 'length' ? framing.length : framing.kind === 'none' ? 0 : undefined;
    this.#ended = this.length === 0;
  }

  /** All of it is here. */
  get ended(): boolean {
    return this.#ended;
  }

  /** Exactly `size` bytes from the front. Throws BodyCut when there are fewer. */
  async take(size: number): Promise<Buffer> {
    while (this.#queued < size) if (!(await this.#more())) throw new BodyCut();
    const [first = Buffer.alloc(0)] = this.#chunks;
    const all = first.length >= size ? first : Buffer.concat(this.#chunks);
    const rest = all.subarray(size);
    this.#chunks = [...(rest.length > 0 ? [rest] : []), ...(all === first ? this.#chunks.slice(1) : [])];
    this.#queued -= size;
    return all.subarray(0, size);
  }

  /**
   * All that is left, or undefined as soon as it is more than `limit` bytes: then go on with the iterator.
   * The pieces are gone with `release`.
   */
  async all(limit: number): Promise<Buffer[] | undefined> {
    while (this.#queued <= limit) {
      if (await this.#more()) continue;
      return this.#taken();
    }
    return undefined;
  }

  /** The rest of the body in pieces as they arrive. Throws BodyCut when the caller goes away. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    this.#copying = true;
    for (;;) {
      if (this.#chunks.length === 0 && !(await this.#more())) return;
      const chunks = this.#taken();
      if (!this.#ended && !this.#cut) this.#go();
      yield* chunks;
    }
  }

  /**
   * Reads to the end and forgets: workerd reports `Network connection lost.` instead of our answer when a request is
   * answered before its body was read.
   */
  async drain(): Promise<void> {
    this.#draining = true;
    this.#taken();
    while (!this.#ended && !this.#cut) {
      this.#go();
      if (!this.#ended) await this.#event();
    }
  }

  /** Nobody looks at the pieces any more. */
  release(): void {
    for (const block of this.#held.splice(0)) block.release();
  }

  /** A piece came. */
  data(chunk: Buffer, block: Block | undefined): void {
    if (this.#draining) return;
    if (block === undefined || (this.#copying && block !== OWNED)) this.#chunks.push(Buffer.from(chunk));
    else {
      block.hold();
      this.#held.push(block);
      this.#chunks.push(chunk);
    }
    this.#queued += chunk.length;
    if (this.#queued > HIGH_WATER && !this.#paused) {
      this.#paused = true;
      this.#source.pause();
    }
    this.#wake?.();
  }

  end(): void {
    this.#ended = true;
    this.#wake?.();
  }

  /** The caller is gone. */
  cut(): void {
    if (this.#ended) return;
    this.#cut = true;
    this.#wake?.();
  }

  #taken(): Buffer[] {
    const chunks = this.#chunks;
    this.#chunks = [];
    this.#queued = 0;
    return chunks;
  }

  /** Waits for more bytes; false at the end of the body. */
  async #more(): Promise<boolean> {
    const before = this.#queued;
    for (;;) {
      if (this.#queued > before) return true;
      if (this.#cut) throw new BodyCut();
      if (this.#ended) return false;
      this.#go();
      // Bytes that were here already come within the call.
      if (this.#queued === before && !this.#ended) await this.#event();
    }
  }

  #go(): void {
    if (!this.#receiving) {
      this.#receiving = true;
      this.#source.sendContinue();
      this.#source.receive();
    } else if (this.#paused) {
      this.#paused = false;
      this.#source.resume();
    }
  }

  #event(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        resolve();
      };
    });
  }
}
