/**
 * Reads message bodies as they come in: by length, chunked, or until the connection ends (RFC 9112, sections 6 and 7).
 * Never buffers a body; chunk lines and trailers are bounded and read strictly.
 */
import type { Block } from './blocks.ts';
import type { Framing } from './framing.ts';
import { WireError } from './wire-error.ts';

export interface BodyReader {
  /**
   * A piece of the body.
   * @param block that it is in, to hold while it is needed; undefined: the memory is used again after the call
   */
  data(chunk: Buffer, block: Block | undefined): void;
  /** @param trailers field block, empty when there are none */
  end(trailers: string): void;
}

const State = {
  data: 0,
  size: 1,
  sizeExtension: 2,
  sizeLineFeed: 3,
  chunk: 4,
  chunkReturn: 5,
  chunkLineFeed: 6,
  trailer: 7,
  done: 8,
  untilClose: 9,
} as const;

/** Chunks up to this size are moved together with what was read before them: each piece costs more than its bytes. */
const SMALL_CHUNK = 4_096;
const MAX_SIZE_DIGITS = 12;
const MAX_EXTENSION_BYTES = 16_384;
const MAX_TRAILER_BYTES = 8_192;
const TRAILER_LINES = /^(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n$/;
/** A body is over when these would be read: whoever sends them hopes that somebody still believes them. */
const FRAMING_TRAILER = /^(?:transfer-encoding|content-length|host|connection|upgrade):/im;
/** Fields that may not come after the fact (RFC 9110, section 6.5.1). */
const FORBIDDEN_TRAILER =
  /^(?:content-encoding|content-type|content-range|trailer|connection|te|authorization|set-cookie|cookie|expect|cache-control|x-turnpike-[^:]*|x-charge|x-payer|x-payment-[^:]*|x-request-id):/i;

export class BodyDecoder {
  #state: number;
  #remaining = 0;
  #digits = 0;
  #extension = 0;
  #trailer = '';

  constructor(framing: Framing) {
    if (framing.kind === 'length') {
      this.#remaining = framing.length;
      this.#state = framing.length === 0 ? State.done : State.data;
    } else if (framing.kind === 'chunked') this.#state = State.size;
    else if (framing.kind === 'close') this.#state = State.untilClose;
    else this.#state = State.done;
  }

  get done(): boolean {
    return this.#state === State.done;
  }

  /** The connection's end is this body's regular end. */
  get endsWithConnection(): boolean {
    return this.#state === State.untilClose;
  }

  /** Bytes known to be missing, or undefined where that cannot be known yet. */
  get missing(): number | undefined {
    if (this.#state === State.done) return 0;
    return this.#state === State.data ? this.#remaining : undefined;
  }

  /**
   * Reads on from `offset`. `end` is called within the call that sees the last byte, never for an empty body.
   * @param bytes what was read, changed from `offset` on where chunks are small
   * @returns the offset of the first byte that is not part of this body
   * @throws WireError bad_request
   */
  feed(bytes: Buffer, offset: number, reader: BodyReader, block?: Block): number {
    let at = offset;
    // Chunks that were read and not given on yet: bytes of the body from `from` to `to`.
    let from = offset;
    let to = offset;
    const giveOn = () => {
      if (to > from) reader.data(from === 0 && to === bytes.length ? bytes : bytes.subarray(from, to), block);
      from = to;
    };
    while (at < bytes.length && this.#state !== State.done) {
      switch (this.#state) {
        case State.untilClose:
          reader.data(at === 0 ? bytes : bytes.subarray(at), block);
          return bytes.length;
        case State.data: {
          at = this.#piece(bytes, at, reader, block);
          if (this.#remaining === 0) {
            this.#state = State.done;
            reader.end('');
          }
          break;
        }
        case State.chunk: {
          const end = Math.min(bytes.length, at + this.#remaining);
          this.#remaining -= end - at;
          if (this.#remaining === 0) this.#state = State.chunkReturn;
          if (to > from && end - at <= SMALL_CHUNK) {
            bytes.copyWithin(to, at, end);
            to += end - at;
          } else {
            giveOn();
            from = at;
            to = end;
          }
          at = end;
          break;
        }
        case State.trailer:
          giveOn();
          at = this.#trailers(bytes, at, reader);
          break;
        default:
          this.#line(bytes[at] as number);
          at += 1;
      }
    }
    giveOn();
    return at;
  }

  #piece(bytes: Buffer, at: number, reader: BodyReader, block: Block | undefined): number {
    const end = Math.min(bytes.length, at + this.#remaining);
    this.#remaining -= end - at;
    reader.data(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end), block);
    return end;
  }

  /** One byte of the lines around chunks. */
  #line(byte: number): void {
    switch (this.#state) {
      case State.size: {
        const digit = hexDigit(byte);
        if (digit >= 0) {
          if (++this.#digits > MAX_SIZE_DIGITS) throw malformed();
          this.#remaining = this.#remaining * 16 + digit;
          return;
        }
        if (this.#digits === 0) throw malformed();
        if (byte === 0x0d) this.#state = State.sizeLineFeed;
        else if (byte === 0x3b) this.#state = State.sizeExtension;
        else throw malformed();
        return;
      }
      case State.sizeExtension:
        if (byte === 0x0d) this.#state = State.sizeLineFeed;
        else if ((byte < 0x20 && byte !== 9) || byte === 0x7f || ++this.#extension > MAX_EXTENSION_BYTES)
          throw malformed();
        return;
      case State.sizeLineFeed:
        if (byte !== 0x0a) throw malformed();
        this.#digits = 0;
        this.#state = this.#remaining === 0 ? State.trailer : State.chunk;
        return;
      case State.chunkReturn:
        if (byte !== 0x0d) throw malformed();
        this.#state = State.chunkLineFeed;
        return;
      case State.chunkLineFeed:
        if (byte !== 0x0a) throw malformed();
        this.#state = State.size;
    }
  }

  #trailers(bytes: Buffer, offset: number, reader: BodyReader): number {
    let at = offset;
    while (at < bytes.length) {
      const lineFeed = bytes.indexOf(0x0a, at);
      const end = lineFeed < 0 ? bytes.length : lineFeed + 1;
      this.#trailer += bytes.toString('latin1', at, end);
      at = end;
      if (this.#trailer.length > MAX_TRAILER_BYTES) throw malformed();
      if (this.#trailer === '\r\n' || this.#trailer.endsWith('\r\n\r\n')) {
        if (!TRAILER_LINES.test(this.#trailer) || FRAMING_TRAILER.test(this.#trailer)) throw malformed();
        this.#state = State.done;
        const lines = this.#trailer.split('\r\n').filter((line) => line !== '' && !FORBIDDEN_TRAILER.test(line));
        reader.end(lines.map((line) => `${line}\r\n`).join(''));
        break;
      }
      // A bare line feed would let another parser see the end of the trailers elsewhere.
      if (lineFeed >= 0 && !this.#trailer.endsWith('\r\n')) throw malformed();
    }
    return at;
  }
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}

function malformed(): WireError {
  return new WireError('bad_request', 'The chunked body is malformed.');
}
