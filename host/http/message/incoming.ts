/**
 * Cuts heads out of a stream of bytes: finds the empty line, keeps what came of an unfinished head, bounds its size.
 */
import { WireError } from './wire-error.ts';

export interface IncomingHead {
  /** In latin1, through the line end of the last field. */
  text: string;
  /** Offset in the given bytes of what follows the head. */
  next: number;
}

export interface Incoming {
  /**
   * @returns the head, or undefined while it is incomplete (then all bytes were kept)
   * @throws WireError header_too_large
   */
  take(bytes: Buffer, offset: number): IncomingHead | undefined;
  /** Bytes kept of an unfinished head. */
  readonly held: number;
  /** Nothing more comes. */
  end(): void;
}

/** What unfinished heads of all connections together take. */
export class HeadBudget {
  bytes = 0;
  readonly limit: number;

  constructor(limit: number) {
    this.limit = limit;
  }
}

const END = Buffer.from('\r\n\r\n', 'latin1');

const SMALL = 2_048;
/** An unfinished head of this size is taken, however much there is of others. */
const ALWAYS_TAKEN = 4_096;

/** @param budget for heads of strangers, who may leave many unfinished */
export function incoming(maxBytes: number, budget = new HeadBudget(Number.POSITIVE_INFINITY)): Incoming {
  return new HeadBuffer(maxBytes, budget);
}

class HeadBuffer implements Incoming {
  held = 0;
  #buffer: Buffer | undefined;
  readonly #maxBytes: number;
  readonly #budget: HeadBudget;

  constructor(maxBytes: number, budget: HeadBudget) {
    this.#maxBytes = maxBytes;
    this.#budget = budget;
  }

  end(): void {
    this.held = 0;
    this.#replace(undefined);
  }

  take(bytes: Buffer, offset: number): IncomingHead | undefined {
    if (this.held === 0) {
      if (bytes.length - offset <= SMALL) {
        // One conversion is cheaper than a search in bytes and a conversion.
        const text = bytes.toString('latin1', offset, bytes.length);
        const end = text.indexOf('\r\n\r\n');
        if (end > this.#maxBytes) throw this.#tooLarge();
        if (end >= 0) return { text: text.slice(0, end + 2), next: offset + end + 4 };
        this.#keep(bytes, offset, bytes.length);
        return undefined;
      }
      const end = bytes.indexOf(END, offset);
      if (end < 0) {
        this.#keep(bytes, offset, bytes.length);
        return undefined;
      }
      if (end - offset > this.#maxBytes) throw this.#tooLarge();
      return { text: bytes.toString('latin1', offset, end + 2), next: end + 4 };
    }
    // The empty line may begin in what is held: look from three bytes before its end.
    const from = Math.max(0, this.held - 3);
    const before = this.held;
    this.#keep(bytes, offset, Math.min(bytes.length, offset + this.#maxBytes + 4 - this.held));
    const buffer = this.#buffer as Buffer;
    const end = buffer.subarray(0, this.held).indexOf(END, from);
    if (end < 0) {
      if (this.held > this.#maxBytes) throw this.#tooLarge();
      return undefined;
    }
    this.end();
    return { text: buffer.toString('latin1', 0, end + 2), next: offset + (end + 4 - before) };
  }

  /** Doubling keeps a head that arrives byte by byte from being copied anew each time. */
  #keep(bytes: Buffer, start: number, end: number): void {
    const size = end - start;
    if (size > this.#maxBytes + 4) throw this.#tooLarge();
    const needed = this.held + size;
    let buffer = this.#buffer;
    if (!buffer || buffer.length < needed) {
      if (needed > ALWAYS_TAKEN && this.#budget.bytes + needed > this.#budget.limit) {
        throw new WireError('overloaded', 'Too many large request heads are under way; try again in a few seconds.');
      }
      const larger = Buffer.allocUnsafe(Math.min(this.#maxBytes + 4, Math.max(512, needed * 2)));
      buffer?.copy(larger, 0, 0, this.held);
      this.#replace(larger);
      buffer = larger;
    }
    bytes.copy(buffer, this.held, start, end);
    this.held = needed;
  }

  #replace(buffer: Buffer | undefined): void {
    this.#budget.bytes += (buffer?.length ?? 0) - (this.#buffer?.length ?? 0);
    this.#buffer = buffer;
  }

  #tooLarge(): WireError {
    return new WireError(
      'header_too_large',
      `The request head is larger than ${this.#maxBytes} bytes; send fewer headers.`,
    );
  }
}
