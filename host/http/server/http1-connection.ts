/**
 * The caller's side of an HTTP/1.1 connection: reads requests one after the other, writes their answers, bounds
 * what a slow or silent caller can hold.
 */
import type { Socket } from 'node:net';
import { type Block, hasRoom, keepable, OWNED, type ReadBlock, type ReadMemory } from '../message/blocks.ts';
import type { ExchangeHandler, Peer } from '../message/exchange.ts';
import type { MessageHead } from '../message/framing.ts';
import { HeadBudget, type Incoming, incoming } from '../message/incoming.ts';
import { WireError } from '../message/wire-error.ts';
import { withReadBuffer } from './accepted-socket.ts';
import { type ExchangeOwner, Http1Exchange } from './http1-exchange.ts';

export interface ConnectionLimits {
  maxHeadBytes: number;
  /** From the first byte of a head to its last, and from connecting to the first head, ms. */
  headMs: number;
  /** Wait for the next request, ms. */
  keepAliveMs: number;
  /** A caller that takes no byte of its answer for so long is cut off, ms. */
  stallMs: number;
}

/** Of a process. Beyond it only small heads are waited for. */
const UNFINISHED_HEADS = new HeadBudget(33_554_432);
/** Bytes of a refused body that are read and thrown away so that the answer is not lost to a reset. */
const LINGER_BYTES = 1_048_576;
const LINGER_MS = 2_000;
/** Answers to pipelined requests that a caller may leave unread. */
const MAX_UNREAD = 262_144;

/** What a connection's requests are read with and given to. */
export interface RequestHandler<Head extends MessageHead> extends ExchangeHandler<Head> {
  /**
   * @param text a head in latin1, from the first byte of the request line through the line end of the last field
   * @throws WireError
   */
  parseHead(text: string): Head;
}

export class Http1Connection<Head extends MessageHead> implements ExchangeOwner {
  readonly #socket: Socket;
  readonly #handler: RequestHandler<Head>;
  readonly #limits: ConnectionLimits;
  readonly #peer: Peer;
  readonly #heads: Incoming;
  readonly #closed: () => void;
  #exchange: Http1Exchange<Head> | undefined;
  /** Bytes that came before they were wanted. */
  #held: Buffer | undefined;
  #processing = false;
  /** What the socket reads into now; undefined: the common buffer, or memory of its own. */
  #block: ReadBlock | undefined;
  /** Bytes of the block that hold pieces which are kept. */
  #filled = 0;
  #handedOver = false;
  #draining = false;
  #lingering = -1;
  /** Limit of what is waited for now, ms; 0: none. Counted from the first sweep that sees it. */
  #limit: number;
  #limitSince = 0;
  #stalled = false;
  #stalledSince = 0;

  /**
   * @param accepted with `memory`, a socket that was accepted paused (`pauseOnConnect`) and not read from
   * @param memory what to read into; undefined for sockets that do their own reading, such as TLS
   * @param closed called once, when the socket is gone
   */
  constructor(
    accepted: Socket,
    memory: ReadMemory | undefined,
    peer: Peer,
    handler: RequestHandler<Head>,
    limits: ConnectionLimits,
    closed: () => void,
  ) {
    const socket = memory ? this.#readingInto(accepted, memory) : accepted;
    this.#socket = socket;
    this.#peer = peer;
    this.#handler = handler;
    this.#limits = limits;
    this.#heads = incoming(limits.maxHeadBytes, UNFINISHED_HEADS);
    this.#closed = closed;
    this.#limit = limits.headMs;
    socket.setNoDelay(true);
    if (socket === accepted) socket.on('data', (bytes) => this.#receive(bytes, OWNED)).resume();
    socket.on('drain', () => this.#drained());
    socket.on('end', () => this.#gone());
    socket.on('error', () => this.#gone());
    socket.on('close', () => {
      this.#block?.release();
      this.#block = undefined;
      this.#heads.end();
      this.#gone();
      closed();
    });
  }

  #readingInto(accepted: Socket, memory: ReadMemory): Socket {
    const socket = withReadBuffer(accepted, {
      buffer: () => this.#block?.bytes.subarray(this.#filled) ?? memory.common,
      callback: (length, buffer) => {
        const block = this.#block ?? keepable(memory, length);
        const start = this.#filled;
        const bytes = (block?.bytes ?? (buffer as Buffer)).subarray(start, start + length);
        // A tunnel listens as to any stream; it keeps what it cannot write at once.
        if (this.#handedOver) socket.emit('data', Buffer.from(bytes));
        else this.#receive(bytes, block);
        this.#filled = 0;
        const large = this.#exchange?.large === true;
        if (large && block?.kept && hasRoom(block, start + length)) {
          // Small pieces that are kept lie one behind the other: a block for each would be mostly empty.
          this.#block = block;
          this.#filled = start + length;
        } else {
          block?.release();
          this.#block = large ? memory.blocks.take() : undefined;
        }
        return true;
      },
    });
    return socket;
  }

  /**
   * Applies the time limits; called about twice a second. Starting a limit is only an assignment, so that requests
   * need no clock.
   */
  sweep(now: number): void {
    if (!this.#stalled) this.#stalledSince = 0;
    else if (this.#stalledSince === 0) this.#stalledSince = now;
    else if (now - this.#stalledSince > this.#limits.stallMs) this.#socket.destroy();
    if (this.#limit === 0) return;
    if (this.#limitSince === 0) this.#limitSince = now;
    else if (now - this.#limitSince >= this.#limit) this.#expired();
  }

  /** No further request: ends at once where none is under way, else after the answer. */
  drain(): void {
    this.#draining = true;
    if (!this.#handedOver && !this.#exchange && this.#heads.held === 0) this.#socket.end();
  }

  get busy(): boolean {
    return this.#exchange !== undefined;
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #wait(limitMs: number): void {
    this.#limit = limitMs;
    this.#limitSince = 0;
  }

  #expired(): void {
    if (this.#exchange || this.#lingering >= 0) this.#socket.destroy();
    else if (this.#heads.held > 0) this.#refuse(new WireError('request_timeout', 'The request head took too long.'));
    else this.#linger();
  }

  #receive(bytes: Buffer, block: Block | undefined): void {
    if (this.#lingering >= 0) {
      this.#lingering += bytes.length;
      // What it still sends waits in the kernel until the deadline.
      if (this.#lingering > LINGER_BYTES) this.#socket.pause();
      return;
    }
    if (this.#held) this.#process(Buffer.concat([this.#held, bytes]), OWNED);
    else this.#process(bytes, block);
  }

  #process(bytes: Buffer, block: Block | undefined): void {
    this.#processing = true;
    this.#held = undefined;
    let at = 0;
    try {
      while (at < bytes.length) {
        const exchange = this.#exchange;
        if (exchange) {
          if (exchange.bodyDone || !exchange.receiving) break;
          at = exchange.feed(bytes, at, block);
          continue;
        }
        if (this.#lingering >= 0 || this.#socket.destroyed) return;
        if (this.#socket.writableLength > MAX_UNREAD) break;
        if (this.#heads.held === 0) {
          // Robustness of RFC 9112 section 2.2: an empty line before a request is passed over.
          if (bytes[at] === 0x0d && bytes[at + 1] === 0x0a) {
            at += 2;
            continue;
          }
          this.#wait(this.#limits.headMs);
        }
        const head = this.#heads.take(bytes, at);
        if (!head) return;
        at = head.next;
        this.#begin(this.#handler.parseHead(head.text));
      }
      if (at < bytes.length) this.#hold(block === OWNED ? bytes.subarray(at) : Buffer.from(bytes.subarray(at)));
    } catch (error) {
      if (error instanceof WireError) this.#refuse(error);
      else {
        this.#handler.unexpected(error);
        this.#socket.destroy();
      }
    } finally {
      this.#processing = false;
    }
  }

  #begin(head: Head): void {
    this.#limit = 0;
    const exchange = new Http1Exchange(this, this.#socket, this.#peer, head, this.#draining);
    this.#exchange = exchange;
    this.#handler.handle(exchange);
  }

  #hold(bytes: Buffer): void {
    this.#held = bytes;
    if (!this.#exchange?.bodyDone || bytes.length > this.#limits.maxHeadBytes) this.#socket.pause();
  }

  /** @internal The exchange is ready for its body, or the next request for its turn. */
  wanted(): void {
    if (this.#processing) return;
    const held = this.#held;
    if (held) this.#process(held, OWNED);
    if (!this.#held && !this.#socket.destroyed) this.#socket.resume();
  }

  /** @internal The answer is complete. */
  finished(exchange: object, reusable: boolean): void {
    if (this.#exchange !== exchange) return;
    this.#exchange = undefined;
    if (!reusable || this.#draining) {
      this.#linger();
      return;
    }
    this.#wait(this.#limits.keepAliveMs);
    if (this.#held) this.wanted();
    // The upstream may have been busy with the last piece of a body until the end.
    else if (this.#socket.isPaused()) this.#socket.resume();
  }

  /** @internal The caller does not keep up with its answer. */
  stalled(): void {
    this.#stalled = true;
  }

  /** @internal The rest of a body is thrown away, for a while. */
  discarding(): void {
    this.#wait(LINGER_MS);
  }

  /** Ends our side and reads on for a while: closing on unread bytes would reset the connection and lose the answer. */
  #linger(): void {
    this.#lingering = 0;
    this.#held = undefined;
    this.#heads.end();
    this.#wait(LINGER_MS);
    this.#socket.end();
    this.#socket.resume();
  }

  #refuse(error: WireError): void {
    const exchange = this.#exchange;
    this.#exchange = undefined;
    exchange?.abort();
    if (exchange?.answered) {
      this.#socket.destroy();
      return;
    }
    const { status, reason, fields, body } = this.#handler.refuse(error);
    this.#socket.write(
      `HTTP/1.1 ${status} ${reason}\r\n${fields}content-length: ${body.length}\r\nconnection: close\r\n\r\n${body.toString('latin1')}`,
      'latin1',
    );
    this.#linger();
  }

  #drained(): void {
    this.#stalled = false;
    this.#exchange?.listener?.answerDrained();
    if (!this.#exchange && this.#held) this.wanted();
  }

  /** @internal The socket is no longer this connection's. @returns bytes that came already */
  handOver(): Buffer {
    const rest = this.#held;
    this.#handedOver = true;
    this.#held = undefined;
    this.#exchange = undefined;
    this.#limit = 0;
    this.#socket.removeAllListeners();
    this.#socket.once('close', this.#closed);
    return rest ? Buffer.from(rest) : Buffer.alloc(0);
  }

  #gone(): void {
    const exchange = this.#exchange;
    this.#exchange = undefined;
    exchange?.abort();
    // Answers that are complete are still sent.
    if (exchange) this.#socket.destroy();
    else this.#socket.destroySoon();
  }
}
