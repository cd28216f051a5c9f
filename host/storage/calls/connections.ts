/** The connections that calls come in on. Each socket has one peer, the tenant's workerd, which ends them as it likes. */
import type { Socket } from 'node:net';
import { readMemory } from '../../http/message/blocks.ts';
import type { Peer } from '../../http/message/exchange.ts';
import type { WireError } from '../../http/message/wire-error.ts';
import { type ConnectionLimits, Http1Connection, type RequestHandler } from '../../http/server/http1-connection.ts';
import type { Http1Exchange } from '../../http/server/http1-exchange.ts';
import { Call, reasonOf } from './call.ts';
import { type CallHead, parseCallHead } from './head.ts';

/** One buffer for all connections of a process: what is read is dealt with before the next is. */
const MEMORY = readMemory();
/** How often connections that were answered as ended are looked at, until they are gone, ms. */
const SWEEP_MS = 1_000;

export interface CallsOptions {
  handle: (call: Call) => void;
  /** A mistake of ours, met on one connection, which is cut. */
  failed: (error: unknown) => void;
  maxHeadBytes: number;
}

export class CallConnections implements RequestHandler<CallHead> {
  readonly #options: CallsOptions;
  readonly #limits: ConnectionLimits;
  readonly #connections = new Set<Http1Connection<CallHead>>();
  #sweeper: NodeJS.Timeout | undefined;
  #emptied: (() => void) | undefined;

  constructor(options: CallsOptions) {
    this.#options = options;
    // workerd keeps connections and closes them itself; closing one here would race with its next request. No time is
    // measured but that of connections that are over.
    const never = Number.POSITIVE_INFINITY;
    this.#limits = { maxHeadBytes: options.maxHeadBytes, headMs: never, keepAliveMs: never, stallMs: never };
  }

  get size(): number {
    return this.#connections.size;
  }

  /**
   * @param socket accepted paused, and not read from; not to be used any more
   * @returns what stands for the connection; see `Call.connection`
   */
  adopt(socket: Socket, closed?: () => void): object {
    const peer: Peer = { address: '', encrypted: false, tlsVersion: '', tlsCipher: '' };
    const connection: Http1Connection<CallHead> = new Http1Connection(socket, MEMORY, peer, this, this.#limits, () => {
      this.#connections.delete(connection);
      closed?.();
      if (this.#connections.size === 0) this.#emptied?.();
    });
    this.#connections.add(connection);
    return peer;
  }

  /** Ends those that do nothing now, and the others after their answer, at the latest after `graceMs`. */
  async close(graceMs: number): Promise<void> {
    const emptied = new Promise<void>((resolve) => {
      this.#emptied = resolve;
    });
    for (const connection of this.#connections) connection.drain();
    if (this.#connections.size > 0) {
      const timer = setTimeout(() => {
        for (const connection of this.#connections) connection.destroy();
      }, graceMs);
      await emptied;
      clearTimeout(timer);
    }
    clearInterval(this.#sweeper);
  }

  /** @internal */
  parseHead(text: string): CallHead {
    return parseCallHead(text);
  }

  /** @internal */
  handle(exchange: Http1Exchange<CallHead>): void {
    this.#options.handle(new Call(exchange));
  }

  /** @internal */
  unexpected(error: unknown): void {
    this.#options.failed(error);
  }

  /** @internal */
  refuse(error: WireError): { status: number; reason: string; fields: string; body: Buffer } {
    this.#sweep();
    const status = error.code === 'header_too_large' ? 431 : 400;
    return { status, reason: reasonOf(status), fields: '', body: Buffer.alloc(0) };
  }

  /** Ends the connections that were told to end and do not. */
  #sweep(): void {
    this.#sweeper ??= setInterval(() => {
      for (const connection of this.#connections) connection.sweep(performance.now());
      if (this.#connections.size > 0) return;
      clearInterval(this.#sweeper);
      this.#sweeper = undefined;
    }, SWEEP_MS).unref();
  }
}
