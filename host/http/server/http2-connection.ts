/** The caller's side of an HTTP/2 connection: every stream is one exchange; bounds what a connection can hold. */
import { constants, performServerHandshake, type ServerHttp2Session } from 'node:http2';
import type { TLSSocket } from 'node:tls';
import type { ExchangeHandler, Peer } from '../message/exchange.ts';
import { WireError } from '../message/wire-error.ts';
import type { ConnectionLimits } from './http1-connection.ts';
import { Http2Exchange, respondWith } from './http2-exchange.ts';
import { requestHeadOf } from './http2-request-head.ts';

const MAX_STREAMS = 100;
/** Megabytes that Node's session may take for headers and unsent data. */
const MAX_SESSION_MEMORY_MB = 10;
const MAX_HEADER_PAIRS = 256;
const WINDOW_BYTES = 1_048_576;

export class Http2Connection {
  readonly #session: ServerHttp2Session;
  readonly #exchanges = new Set<Http2Exchange>();
  readonly #limits: ConnectionLimits;
  #idleSince = 0;

  /** @param closed called once, when the connection is gone */
  constructor(socket: TLSSocket, peer: Peer, handler: ExchangeHandler, limits: ConnectionLimits, closed: () => void) {
    this.#limits = limits;
    this.#session = performServerHandshake(socket, {
      maxSessionMemory: MAX_SESSION_MEMORY_MB,
      maxHeaderListPairs: MAX_HEADER_PAIRS,
      // Handlers and what they fetch from repeat some fields; over HTTP/1.1 callers bear it.
      strictSingleValueFields: false,
      settings: {
        maxConcurrentStreams: MAX_STREAMS,
        maxHeaderListSize: limits.maxHeadBytes,
        initialWindowSize: WINDOW_BYTES,
        enablePush: false,
      },
    });
    this.#session.setLocalWindowSize(4 * WINDOW_BYTES);
    this.#session.on('error', () => {});
    this.#session.on('close', () => {
      socket.destroy();
      closed();
    });
    this.#session.on('stream', (stream, _headers, flags, rawHeaders) => {
      // Many a request begins and ends between two sweeps.
      this.#idleSince = 0;
      stream.on('error', () => {});
      try {
        const head = requestHeadOf(rawHeaders as unknown as string[], (flags & END_STREAM) !== 0, limits.maxHeadBytes);
        const exchange: Http2Exchange = new Http2Exchange(stream, peer, head, () => this.#exchanges.delete(exchange));
        this.#exchanges.add(exchange);
        handler.handle(exchange);
      } catch (error) {
        if (!(error instanceof WireError)) {
          handler.unexpected(error);
          stream.close(constants.NGHTTP2_INTERNAL_ERROR);
          return;
        }
        const { status, fields, body } = handler.refuse(error);
        if (stream.destroyed) return;
        respondWith(stream, status, fields, body.length, undefined);
        stream.end(body);
      }
    });
  }

  get busy(): boolean {
    return this.#exchanges.size > 0;
  }

  /** Applies the time limits; called about twice a second. */
  sweep(now: number): void {
    for (const exchange of this.#exchanges) exchange.sweep(now, this.#limits.stallMs);
    if (this.#exchanges.size > 0) this.#idleSince = 0;
    else if (this.#idleSince === 0) this.#idleSince = now;
    else if (now - this.#idleSince > this.#limits.keepAliveMs) this.#session.close();
    if (this.#idleSince > 0 && now - this.#idleSince > 2 * this.#limits.keepAliveMs) this.#session.destroy();
  }

  /** No further request: GOAWAY, and the end after the answers under way. */
  drain(): void {
    this.#session.close();
  }

  destroy(): void {
    this.#session.destroy();
  }
}

/** Flag of a HEADERS frame without a body to follow (RFC 9113, section 6.2). */
const END_STREAM = 0x1;
