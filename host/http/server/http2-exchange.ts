/** One HTTP/2 stream as an exchange. */
import { constants, type OutgoingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import type { Duplex } from 'node:stream';
import { type Block, OWNED, writePiece } from '../message/blocks.ts';
import type { AnswerLength, Exchange, ExchangeListener, Peer } from '../message/exchange.ts';
import { blockPairs } from '../message/fields.ts';
import type { RequestHead } from '../message/head.ts';

/** Pieces up to this size are gathered into one write. */
const SMALL = 8_192;

export class Http2Exchange implements Exchange {
  readonly head: RequestHead;
  readonly peer: Peer;
  readonly #stream: ServerHttp2Stream;
  readonly #finished: () => void;
  #listener: ExchangeListener | undefined;
  /** Bytes of the body that are still to come; undefined: not declared. */
  #missing: number | undefined;
  #bodyDone: boolean;
  #receiving = false;
  #continued = false;
  /** Small pieces that came with one read. */
  readonly #small: Buffer[] = [];
  #over = false;
  #stalled = false;
  #stalledSince = 0;
  /** Bytes of the answer that were waiting at the last sweep. */
  #unsent = 0;

  /** @param finished called once, when the stream is gone */
  constructor(stream: ServerHttp2Stream, peer: Peer, head: RequestHead, finished: () => void) {
    this.#stream = stream;
    this.peer = peer;
    this.head = head;
    this.#finished = finished;
    this.#bodyDone = head.framing.kind === 'none';
    this.#missing = head.framing.kind === 'length' ? head.framing.length : undefined;
    stream.on('drain', () => {
      this.#stalled = false;
      this.#listener?.answerDrained();
    });
    stream.on('aborted', () => this.#gone());
    stream.on('close', () => {
      this.#gone();
      this.#finished();
    });
  }

  /** Cuts off a caller that takes nothing of its answer. */
  sweep(now: number, stallMs: number): void {
    const unsent = this.#stream.writableLength;
    // An answer that has ended may still wait for the caller to open its window.
    const waits = (this.#stalled || this.#over) && unsent === this.#unsent;
    this.#unsent = unsent;
    if (!waits) this.#stalledSince = 0;
    else if (this.#stalledSince === 0) this.#stalledSince = now;
    else if (now - this.#stalledSince > stallMs) this.#stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  listen(listener: ExchangeListener): void {
    this.#listener = listener;
  }

  receive(): void {
    // Asked for again when the request is sent to another instance.
    if (this.#bodyDone || this.#receiving) return;
    this.#receiving = true;
    this.#stream.on('data', (chunk: Buffer) => {
      if (this.#missing !== undefined) {
        this.#missing -= chunk.length;
        if (this.#missing < 0) return this.destroy();
      }
      this.#listener?.bodyData(chunk, OWNED);
    });
    this.#stream.on('end', () => {
      if (this.#bodyDone || this.#stream.aborted) return;
      this.#bodyDone = true;
      // The next hop waits for every byte that was declared.
      if (this.#missing !== undefined && this.#missing > 0) return this.destroy();
      this.#listener?.bodyEnd();
    });
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  sendContinue(): void {
    if (!this.head.expectContinue || this.#continued || this.#bodyDone) return;
    this.#continued = true;
    this.informational(100, '', '');
  }

  informational(status: number, _reason: string, fields: string): void {
    if (this.#over || this.#stream.destroyed || this.#stream.headersSent) return;
    this.#stream.additionalHeaders(headersOf(status, fields));
  }

  answer(status: number, _reason: string, fields: string, length: AnswerLength, declaredLength?: string): void {
    if (this.#over || this.#stream.destroyed) return;
    respondWith(this.#stream, status, fields, length, declaredLength);
  }

  write(chunk: Buffer, block?: Block): boolean {
    if (this.#over || this.#stream.destroyed) return true;
    if (chunk.length <= SMALL) {
      // Often it is all of the body, and goes out with the end of the stream.
      this.#small.push(Buffer.from(chunk));
      return !this.#stream.writableNeedDrain;
    }
    this.flush();
    const more = writePiece(this.#stream, chunk, block);
    if (!more) this.#stalled = true;
    return more;
  }

  finish(_trailers: string): void {
    if (this.#over) return;
    this.#over = true;
    const last = this.#small.splice(0);
    if (last.length === 0) this.#stream.end();
    else this.#stream.end(last.length === 1 ? last[0] : Buffer.concat(last));
    // The rest of the body is not wanted (RFC 9113, section 8.1): NO_ERROR keeps the answer valid.
    if (!this.#bodyDone) this.#stream.once('finish', () => this.#stream.close(constants.NGHTTP2_NO_ERROR));
  }

  flush(): boolean {
    if (this.#small.length === 0 || this.#over || this.#stream.destroyed) return true;
    const more = this.#stream.write(Buffer.concat(this.#small.splice(0)));
    if (!more) this.#stalled = true;
    return more;
  }

  destroy(): void {
    if (!this.#stream.destroyed) this.#stream.close(constants.NGHTTP2_INTERNAL_ERROR);
    this.#gone();
  }

  upgrade(): { socket: Duplex; rest: Buffer } {
    throw new Error('HTTP/2 has no upgrade');
  }

  #gone(): void {
    const listener = this.#listener;
    this.#listener = undefined;
    if (this.#over) return;
    this.#over = true;
    listener?.aborted();
  }
}

export function respondWith(
  stream: ServerHttp2Stream,
  status: number,
  fields: string,
  length: AnswerLength,
  declaredLength: string | undefined,
): void {
  const headers = headersOf(status, fields);
  if (typeof length === 'number') headers['content-length'] = length;
  else if (length === 'none' && declaredLength !== undefined) headers['content-length'] = declaredLength;
  stream.respond(headers, { endStream: length === 'none' });
}

function headersOf(status: number, fields: string): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = { ':status': status };
  for (const [given, value] of blockPairs(fields)) {
    const name = given.toLowerCase();
    const present = headers[name];
    if (present === undefined) headers[name] = value;
    else headers[name] = Array.isArray(present) ? [...present, value] : [String(present), value];
  }
  return headers;
}
