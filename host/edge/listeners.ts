/** The sockets that callers come in on, their connections, and the time limits of all of them. */
import type { Server, Socket } from 'node:net';
import { plainIp } from './caller.ts';
import type { ExchangeHandler, Peer } from './exchange.ts';
import { type ConnectionLimits, Http1Connection } from './http1/connection.ts';

const SWEEP_MS = 500;
/** Beyond it a new connection is closed at once. */
const MAX_CONNECTIONS = 20_000;

export class Listeners {
  readonly #handler: ExchangeHandler;
  readonly #limits: ConnectionLimits;
  readonly #servers = new Set<Server>();
  readonly #connections = new Set<Http1Connection>();
  readonly #timer: NodeJS.Timeout;
  #draining = false;

  constructor(handler: ExchangeHandler, limits: ConnectionLimits) {
    this.#handler = handler;
    this.#limits = limits;
    this.#timer = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#timer.unref();
  }

  get connections(): number {
    return this.#connections.size;
  }

  /** Serves plain HTTP/1.1 on a listening server. */
  addHttp(server: Server): void {
    this.#servers.add(server);
    server.on('connection', (socket) => {
      this.accept(socket, {
        address: plainIp(socket.remoteAddress ?? ''),
        encrypted: false,
        tlsVersion: '',
        tlsCipher: '',
      });
    });
  }

  accept(socket: Socket, peer: Peer): void {
    if (this.#connections.size >= MAX_CONNECTIONS || peer.address === '') {
      socket.destroy();
      return;
    }
    const connection = new Http1Connection(socket, peer, this.#handler, this.#limits, () =>
      this.#connections.delete(connection),
    );
    this.#connections.add(connection);
    if (this.#draining) connection.drain();
  }

  /** Accepts nothing more and lets connections end after their present request. */
  drain(): void {
    this.#draining = true;
    for (const server of this.#servers) server.close();
    this.#servers.clear();
    for (const connection of this.#connections) connection.drain();
  }

  close(): void {
    this.drain();
    clearInterval(this.#timer);
    for (const connection of this.#connections) connection.destroy();
  }

  #sweep(): void {
    const now = performance.now();
    for (const connection of this.#connections) connection.sweep(now);
  }
}
