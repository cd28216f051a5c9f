/** One request on an HTTP/1.1 connection and its answer, whose framing is made here. */
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type Block, LARGE_BYTES, OWNED, takesMore } from '../message/blocks.ts';
import { BodyDecoder, type BodyReader } from '../message/body.ts';
import type { AnswerLength, Exchange, ExchangeListener, Peer } from '../message/exchange.ts';
import type { MessageHead } from '../message/framing.ts';
import { sendFile } from './send-file.ts';

/** What an exchange tells the connection it is on. */
export interface ExchangeOwner {
  /** The exchange is ready for its body. */
  wanted(): void;
  /** The answer is complete. @param reusable another request may follow */
  finished(exchange: object, reusable: boolean): void;
  /** The caller does not keep up with its answer. */
  stalled(): void;
  /** The rest of a body is thrown away, for a while. */
  discarding(): void;
  /** The socket is no longer the connection's. @returns bytes that came already */
  handOver(): Buffer;
}

/** Pieces up to this size are copied together. */
const SMALL = 8_192;
/** Bytes of larger pieces that wait for `flush`. */
const MAX_GATHERED = 262_144;
/** A body of which more is missing than that, in bytes, is not waited for once its answer is complete. */
const MAX_DISCARDED = 1_048_576;

/** A piece of an answer, held until it is written. */
interface Piece {
  bytes: Buffer;
  block: Block;
}

export class Http1Exchange<Head extends MessageHead> implements Exchange<Head>, BodyReader {
  readonly head: Head;
  readonly peer: Peer;
  listener: ExchangeListener | undefined;
  receiving = false;
  answered = false;
  readonly #socket: Socket;
  readonly #owner: ExchangeOwner;
  readonly #decoder: BodyDecoder | undefined;
  /** What goes out with the next write: these in turn, then `#out`. */
  #gathered: (string | Piece)[] = [];
  #gatheredBytes = 0;
  #out = '';
  #chunked = false;
  #remaining = -1;
  #reusable: boolean;
  #continued = false;
  #bodyBytes = 0;
  #over = false;

  constructor(owner: ExchangeOwner, socket: Socket, peer: Peer, head: Head, draining: boolean) {
    this.head = head;
    this.peer = peer;
    this.#socket = socket;
    this.#owner = owner;
    this.#reusable = head.keepAlive && !draining;
    this.#decoder = head.framing.kind === 'none' ? undefined : new BodyDecoder(head.framing);
  }

  /** More of a large body is to come. */
  get large(): boolean {
    const { framing } = this.head;
    const known = framing.kind === 'length' ? framing.length : 0;
    return Math.max(this.#bodyBytes, known) > LARGE_BYTES && !this.bodyDone;
  }

  get bodyDone(): boolean {
    return this.#decoder === undefined || this.#decoder.done;
  }

  listen(listener: ExchangeListener): void {
    this.listener = listener;
  }

  receive(): void {
    this.receiving = true;
    if (!this.bodyDone) this.#owner.wanted();
  }

  feed(bytes: Buffer, offset: number, block: Block | undefined): number {
    return (this.#decoder as BodyDecoder).feed(bytes, offset, this, block);
  }

  data(chunk: Buffer, block: Block | undefined): void {
    this.#bodyBytes += chunk.length;
    this.listener?.bodyData(chunk, block);
  }

  end(): void {
    this.listener?.bodyEnd();
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  sendContinue(): void {
    if (!this.head.expectContinue || this.#continued || this.answered || this.bodyDone) return;
    this.#continued = true;
    this.#socket.write('HTTP/1.1 100 Continue\r\n\r\n', 'latin1');
  }

  informational(status: number, reason: string, fields: string): void {
    if (this.#over || this.answered || this.head.version !== '1.1') return;
    if (status === 100) this.sendContinue();
    else this.#socket.write(`HTTP/1.1 ${status} ${reason}\r\n${fields}\r\n`, 'latin1');
  }

  answer(status: number, reason: string, fields: string, length: AnswerLength, declaredLength?: string): void {
    if (this.#over) return;
    this.answered = true;
    let framing = '';
    if (typeof length === 'number') {
      this.#remaining = length;
      framing = `content-length: ${length}\r\n`;
    } else if (length === 'none') {
      this.#remaining = 0;
      if (declaredLength !== undefined) framing = `content-length: ${declaredLength}\r\n`;
    } else if (this.head.version === '1.1') {
      this.#chunked = true;
      framing = 'transfer-encoding: chunked\r\n';
    } else this.#reusable = false;
    // A body that was not read to its end makes the connection unusable, unless what is left of it is on its way.
    if (this.#reusable && !this.bodyDone && this.#unwanted(length)) this.#reusable = false;
    if (!this.#reusable) framing += 'connection: close\r\n';
    else if (this.head.version === '1.0') framing += 'connection: keep-alive\r\n';
    this.#out = `HTTP/1.1 ${status} ${reason}\r\n${fields}${framing}\r\n`;
  }

  write(chunk: Buffer, block?: Block): boolean {
    if (this.#over) return true;
    if (!this.#chunked && this.#remaining >= 0) {
      this.#remaining -= chunk.length;
      if (this.#remaining < 0) {
        this.destroy();
        return true;
      }
    }
    if (chunk.length <= SMALL) {
      this.#out += this.#chunked
        ? `${chunk.length.toString(16)}\r\n${chunk.toString('latin1')}\r\n`
        : chunk.toString('latin1');
    } else {
      if (this.#chunked) this.#out += `${chunk.length.toString(16)}\r\n`;
      if (this.#out !== '') this.#gathered.push(this.#out);
      this.#gathered.push({ bytes: block ? chunk : Buffer.from(chunk), block: block ?? OWNED });
      block?.hold();
      this.#gatheredBytes += chunk.length;
      this.#out = this.#chunked ? '\r\n' : '';
    }
    return this.#out.length <= SMALL && this.#gatheredBytes < MAX_GATHERED ? true : this.flush();
  }

  finish(trailers: string): void {
    if (this.#over) return;
    if (this.#chunked) this.#out += `0\r\n${this.head.acceptsTrailers ? trailers : ''}\r\n`;
    else if (this.#remaining > 0) {
      this.destroy();
      return;
    }
    this.flush();
    this.#over = true;
    if (!this.bodyDone && this.#reusable) {
      this.#discardBody();
      return;
    }
    this.#owner.finished(this, this.#reusable && this.bodyDone);
  }

  flush(): boolean {
    const out = this.#out;
    this.#out = '';
    if (this.#gathered.length > 0) this.#writeGathered(out);
    else if (out !== '') this.#socket.write(out, 'latin1');
    if (takesMore(this.#socket)) return true;
    this.#owner.stalled();
    return false;
  }

  /** The kernel has all that was written. */
  get flushed(): boolean {
    return this.#socket.writableLength === 0;
  }

  /** @param done called once the kernel has what was written until now, or the connection is gone */
  whenFlushed(done: () => void): void {
    this.#socket.write('', () => done());
  }

  destroy(): void {
    this.#over = true;
    this.listener = undefined;
    this.#forget();
    this.#socket.destroy();
  }

  upgrade(head: string): { socket: Duplex; rest: Buffer } {
    this.#over = true;
    this.answered = true;
    const rest = this.#owner.handOver();
    this.#socket.write(head, 'latin1');
    return { socket: this.#socket, rest };
  }

  /** In one call of the system: a read of a chunked answer has pieces of several chunks. */
  #writeGathered(last: string): void {
    const parts = this.#gathered;
    this.#gathered = [];
    this.#gatheredBytes = 0;
    this.#socket.cork();
    for (const part of parts) {
      if (typeof part === 'string') this.#socket.write(part, 'latin1');
      else this.#writePiece(part);
    }
    if (last !== '') this.#socket.write(last, 'latin1');
    this.#socket.uncork();
  }

  #writePiece({ bytes, block }: Piece): void {
    const inFile = this.peer.encrypted ? undefined : block.inFile?.(bytes);
    let sent = 0;
    if (inFile) {
      // What comes before it goes first.
      this.#socket.uncork();
      sent = sendFile(this.#socket, inFile, bytes.length);
      this.#socket.cork();
    }
    if (sent === bytes.length) block.release();
    else this.#socket.write(sent === 0 ? bytes : bytes.subarray(sent), () => block.release());
  }

  /** What was gathered goes nowhere any more. */
  #forget(): void {
    for (const part of this.#gathered) if (typeof part !== 'string') part.block.release();
    this.#gathered = [];
  }

  /**
   * The rest of the body is read and thrown away; then comes the next request. How much it is has no limit, only how
   * long it takes: the answer said that the connection goes on, so the next request may be on its way behind the body.
   */
  #discardBody(): void {
    this.listener = {
      bodyData: () => {},
      bodyEnd: () => this.#owner.finished(this, true),
      answerDrained: () => {},
      aborted: () => {},
    };
    this.#owner.discarding();
    this.receive();
  }

  /** The caller's side is gone. */
  abort(): void {
    const listener = this.listener;
    this.listener = undefined;
    this.#forget();
    if (this.#over) return;
    this.#over = true;
    listener?.aborted();
  }

  /**
   * Whether what is missing of the body is too much to wait for, or will not come (an unanswered Expect).
   * @param length of the answer: one that is streamed may take as long as the body
   */
  #unwanted(length: AnswerLength): boolean {
    const missing = this.#decoder?.missing;
    if (this.receiving && (length === 'unknown' || missing === undefined)) return false;
    return missing === undefined || missing > MAX_DISCARDED || (this.head.expectContinue && !this.#continued);
  }
}
