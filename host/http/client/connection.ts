/**
 * One connection to a server of our own: sends requests one after the other, reads their answers strictly, and never
 * lets bytes of one answer become another's.
 */
import type { Socket } from 'node:net';
import {
  type Block,
  keepable,
  LARGE_BYTES,
  type ReadBlock,
  type ReadMemory,
  takesMore,
  writePiece,
} from '../message/blocks.ts';
import { BodyDecoder, type BodyReader } from '../message/body.ts';
import type { Classifier } from '../message/fields.ts';
import type { Framing } from '../message/framing.ts';
import { parseResponseHead, type ResponseHead } from '../message/head.ts';
import { type Incoming, incoming } from '../message/incoming.ts';
import { UpstreamSocket } from './socket.ts';

/** Who answers is told what came, piece by piece, in this order; `failed` may come at any time, and is the last. */
export interface UpstreamHandler {
  /** 100 and 103. */
  informational(head: ResponseHead): void;
  head(head: ResponseHead): void;
  /**
   * @param chunk a piece of the body
   * @param block that it is in, to hold while it is needed; undefined: the memory is used again after the call
   */
  data(chunk: Buffer, block: Block | undefined): void;
  /** The answer is complete. @param trailers field block */
  end(trailers: string): void;
  /** All that arrived with one read was handed over: a good moment to write. */
  flush(): void;
  /** After `write` said false: the request body may go on. */
  drained(): void;
  /** The WebSocket handshake succeeded; the socket is the handler's from here on. @param rest bytes after the head */
  upgraded(head: ResponseHead, socket: Socket, rest: Buffer): void;
  failed(error: UpstreamError): void;
}

/**
 * - `connect`: nobody listens on the socket; nothing was sent
 * - `stale`: a kept-alive connection ended before any byte of an answer: the server may have closed it while idle
 * - `broken`: the connection ended, or what came was no HTTP
 */
export type UpstreamFailure = 'connect' | 'stale' | 'broken';

export class UpstreamError extends Error {
  readonly failure: UpstreamFailure;

  constructor(failure: UpstreamFailure, message: string) {
    super(message);
    this.name = 'UpstreamError';
    this.failure = failure;
  }
}

/** A connection that a large answer comes in on. */
export interface BulkReader {
  /** Stop reading. */
  hold(): void;
  /** Read on. */
  proceed(): void;
}

/** Gives turns to the connections that large answers come in on. */
export interface BulkTurns {
  /** A reader wants to read: it may, or is held until its turn. */
  enter(reader: BulkReader): void;
  /** A reader has nothing to read, or does not want to. */
  leave(reader: BulkReader): void;
  /** @param bytes that one of its readers read */
  spend(bytes: number): void;
}

/** What a connection needs of the pool it belongs to. */
export interface ConnectionOwner {
  readonly options: {
    socketPath: string;
    classify: Classifier;
    maxHeadBytes: number;
    memory: ReadMemory;
    bulk: BulkTurns | undefined;
  };
  /** The connection is free for another request. */
  release(connection: UpstreamConnection): void;
  /** The connection ended. */
  forget(connection: UpstreamConnection): void;
}

/** Bodies up to this size travel in one write with the head. */
const SMALL = 8_192;

/** One request on its way. Calls after the answer ended or failed do nothing. */
export class UpstreamCall {
  /** The connection carried other requests before. */
  readonly reused: boolean;
  #connection: UpstreamConnection | undefined;

  constructor(connection: UpstreamConnection, reused: boolean) {
    this.#connection = connection;
    this.reused = reused;
  }

  /** A piece of the request body. @param block that it is in @returns false: wait for `drained` */
  write(chunk: Buffer, block: Block | undefined): boolean {
    return this.#connection?.write(chunk, block) ?? true;
  }

  /** The request body is complete. */
  end(): void {
    this.#connection?.endRequest();
  }

  /** Sends the head now, where no piece of the body was at hand to go with it. */
  flush(): void {
    this.#connection?.flushHead();
  }

  /** Stops reading the answer until `resume`. */
  pause(): void {
    this.#connection?.pause();
  }

  resume(): void {
    this.#connection?.resume();
  }

  /** Gives the request up; the handler hears no more of it. */
  destroy(): void {
    const connection = this.#connection;
    this.#connection = undefined;
    connection?.abandon();
  }

  /** @internal The connection goes on without this call. */
  detach(): void {
    this.#connection = undefined;
  }
}

export class UpstreamConnection implements BodyReader, BulkReader {
  readonly socket: Socket;
  idleSince = 0;
  readonly #pool: ConnectionOwner;
  readonly #heads: Incoming;
  #call: UpstreamCall | undefined;
  #handler: UpstreamHandler | undefined;
  #method = '';
  #pendingHead = '';
  #chunkedRequest = false;
  #requestDone = true;
  #decoder: BodyDecoder | undefined;
  #reusable: boolean;
  #used = false;
  #connected = false;
  #answered = false;
  #upgraded = false;
  #paused = false;
  /** Waits for its turn among large answers. */
  #held = false;
  /** What the socket reads into now; undefined: the common buffer. */
  #block: ReadBlock | undefined;
  #large = false;
  #bodyBytes = 0;

  /** @param upgrade the socket may be handed over */
  constructor(pool: ConnectionOwner, upgrade: boolean) {
    this.#pool = pool;
    this.#reusable = !upgrade;
    this.#heads = incoming(pool.options.maxHeadBytes);
    const path = pool.options.socketPath;
    const { common } = pool.options.memory;
    this.socket = new UpstreamSocket({
      onread: {
        buffer: () => this.#block?.bytes ?? common,
        callback: (length, bytes) => {
          if (this.#upgraded) {
            // A tunnel listens as to any stream; it keeps what it cannot write at once.
            this.socket.emit('data', Buffer.from((bytes as Buffer).subarray(0, length)));
            return true;
          }
          const block = this.#block ?? keepable(pool.options.memory, length);
          const whole = block?.bytes ?? (bytes as Buffer);
          this.#receive(length === whole.length ? whole : whole.subarray(0, length), block);
          block?.release();
          this.#block = this.#large && this.#handler ? pool.options.memory.blocks.take() : undefined;
          return true;
        },
      },
    });
    this.socket.connect({ path });
    this.socket.on('connect', () => {
      this.#connected = true;
    });
    this.socket.on('drain', () => this.#handler?.drained());
    this.socket.on('end', () => this.#ended());
    // 'close' follows and says the same.
    this.socket.on('error', () => {});
    this.socket.on('close', () => {
      this.#pool.options.bulk?.leave(this);
      this.#block?.release();
      this.#block = undefined;
      this.#ended();
    });
  }

  begin(method: string, head: string, framing: Framing, handler: UpstreamHandler): UpstreamCall {
    this.#method = method;
    this.#handler = handler;
    this.#answered = false;
    this.#decoder = undefined;
    this.#large = false;
    this.#bodyBytes = 0;
    this.#chunkedRequest = framing.kind === 'chunked';
    this.#requestDone = framing.kind === 'none' || (framing.kind === 'length' && framing.length === 0);
    const call = new UpstreamCall(this, this.#used);
    this.#call = call;
    this.#used = true;
    if (this.#requestDone) this.socket.write(head, 'latin1');
    else this.#pendingHead = head;
    return call;
  }

  write(chunk: Buffer, block: Block | undefined): boolean {
    const head = this.#pendingHead;
    this.#pendingHead = '';
    const { socket } = this;
    if (chunk.length <= SMALL) {
      const text = chunk.toString('latin1');
      return socket.write(
        this.#chunkedRequest ? `${head}${chunk.length.toString(16)}\r\n${text}\r\n` : head + text,
        'latin1',
      );
    }
    socket.cork();
    if (this.#chunkedRequest) {
      socket.write(`${head}${chunk.length.toString(16)}\r\n`, 'latin1');
      writePiece(socket, chunk, block);
      socket.write('\r\n', 'latin1');
    } else {
      if (head !== '') socket.write(head, 'latin1');
      writePiece(socket, chunk, block);
    }
    socket.uncork();
    return takesMore(socket);
  }

  endRequest(): void {
    if (this.#requestDone) return;
    this.#requestDone = true;
    const head = this.#pendingHead;
    this.#pendingHead = '';
    if (this.#chunkedRequest) this.socket.write(`${head}0\r\n\r\n`, 'latin1');
    else if (head !== '') this.socket.write(head, 'latin1');
  }

  flushHead(): void {
    if (this.#pendingHead === '') return;
    this.socket.write(this.#pendingHead, 'latin1');
    this.#pendingHead = '';
  }

  pause(): void {
    this.#paused = true;
    this.socket.pause();
    if (this.#large) this.#pool.options.bulk?.leave(this);
  }

  resume(): void {
    this.#paused = false;
    this.#held = false;
    if (this.#large) this.#pool.options.bulk?.enter(this);
    if (!this.#held) this.socket.resume();
  }

  hold(): void {
    this.#held = true;
    this.socket.pause();
  }

  proceed(): void {
    this.#held = false;
    if (!this.#paused) this.socket.resume();
  }

  abandon(): void {
    this.#handler = undefined;
    this.#call = undefined;
    this.socket.destroy();
  }

  data(chunk: Buffer, block: Block | undefined): void {
    this.#bodyBytes += chunk.length;
    if (!this.#large && this.#bodyBytes > LARGE_BYTES) this.#becomeLarge();
    if (this.#large) this.#pool.options.bulk?.spend(chunk.length);
    this.#handler?.data(chunk, block);
  }

  end(trailers: string): void {
    const handler = this.#handler;
    this.#handler = undefined;
    this.#call?.detach();
    this.#call = undefined;
    if (this.#large) {
      this.#large = false;
      this.#pool.options.bulk?.leave(this);
    }
    // Paused by the piece that was the last: the next answer has to come in, and the server's close.
    if (this.#paused || this.#held) this.resume();
    // Released before the handler learns of it: the next request of the same caller finds the connection free.
    if (this.#reusable && this.#requestDone) this.#pool.release(this);
    else this.socket.destroy();
    handler?.end(trailers);
  }

  #receive(bytes: Buffer, block: Block | undefined): void {
    const handler = this.#handler;
    if (!handler) {
      // Bytes nobody asked for: never let them become the answer to the next request.
      this.#pool.forget(this);
      this.socket.destroy();
      return;
    }
    try {
      let at = 0;
      while (this.#handler === handler && at < bytes.length) {
        if (this.#decoder) {
          at = this.#decoder.feed(bytes, at, this, block);
          continue;
        }
        const head = this.#heads.take(bytes, at);
        if (!head) break;
        at = head.next;
        this.#takeHead(parseResponseHead(head.text, this.#method, this.#pool.options.classify), bytes, at);
        // The handler owns the socket, and has what came after the head.
        if (this.#upgraded) return;
      }
      if (at < bytes.length && this.#handler === undefined) {
        this.#pool.forget(this);
        this.socket.destroy();
      }
    } catch (error) {
      this.#fail(new UpstreamError('broken', error instanceof Error ? error.message : 'The answer is malformed.'));
    }
    handler.flush();
  }

  #takeHead(head: ResponseHead, bytes: Buffer, at: number): void {
    this.#answered = true;
    const handler = this.#handler;
    if (head.status === 101) {
      if (!head.upgrade || !handler) throw new UpstreamError('broken', 'The answer switches to an unknown protocol.');
      this.#handler = undefined;
      this.#upgraded = true;
      this.#call?.detach();
      this.#call = undefined;
      // By name: removing the listeners of all events at once would start a stream again that is paused next.
      for (const event of this.socket.eventNames()) this.socket.removeAllListeners(event);
      handler.upgraded(head, this.socket, Buffer.from(bytes.subarray(at)));
      return;
    }
    if (head.status < 200) {
      handler?.informational(head);
      return;
    }
    if (!head.keepAlive) this.#reusable = false;
    this.#decoder = new BodyDecoder(head.framing);
    if (head.framing.kind === 'length' && head.framing.length > LARGE_BYTES) this.#becomeLarge();
    handler?.head(head);
    if (this.#decoder.done) this.end('');
  }

  #becomeLarge(): void {
    this.#large = true;
    if (!this.#paused) this.#pool.options.bulk?.enter(this);
  }

  #ended(): void {
    if (!this.#handler) {
      this.#pool.forget(this);
      this.socket.destroy();
      return;
    }
    if (this.#decoder?.endsWithConnection) {
      const handler = this.#handler;
      this.#reusable = false;
      this.end('');
      handler.flush();
      return;
    }
    if (!this.#connected) this.#fail(new UpstreamError('connect', 'Nobody listens on the socket.'));
    else if (this.#call?.reused && !this.#answered)
      this.#fail(new UpstreamError('stale', 'The connection had been closed.'));
    else this.#fail(new UpstreamError('broken', 'The connection ended before the answer was complete.'));
  }

  #fail(error: UpstreamError): void {
    const handler = this.#handler;
    this.#handler = undefined;
    this.#call?.detach();
    this.#call = undefined;
    this.socket.destroy();
    handler?.failed(error);
  }
}
