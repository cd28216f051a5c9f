/** The sockets that callers come in on, their connections, and the time limits of all of them. */
import type { Server, Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import type { ReadMemory } from '../http/message/blocks.ts';
import type { Peer } from '../http/message/exchange.ts';
import type { RequestHead } from '../http/message/head.ts';
import { readPreface } from '../http/preface/preface.ts';
import { type ConnectionLimits, Http1Connection, type RequestHandler } from '../http/server/http1-connection.ts';
import { Http2Connection } from '../http/server/http2-connection.ts';
import { networkOf, plainIp } from '../shared/network-of.ts';
import type { TrustedProxies } from './caller.ts';
import type { Certificates } from './tls/certificates.ts';
import { TlsServer } from './tls/tls-server.ts';

const SWEEP_MS = 500;
/** Beyond it a new connection is closed at once. */
const MAX_CONNECTIONS = 20_000;
/** Of one address: nobody takes all of them. */
const MAX_OF_ONE = 512;
/** Of this machine itself: its tenants and the operator's tools. */
const MAX_OF_OURS = 5_000;

export interface ListenersOptions {
  handler: RequestHandler<RequestHead>;
  limits: ConnectionLimits;
  /** Trusted proxies begin their connections with a PROXY header. */
  proxyProtocol: boolean;
  proxies: TrustedProxies;
  certificates: Certificates;
  memory: ReadMemory;
  /** 48 bytes that all edges share; undefined: made up by each. */
  ticketKeys: Buffer | undefined;
}

type AnyConnection = Http1Connection<RequestHead> | Http2Connection;

export class Listeners {
  readonly #options: ListenersOptions;
  readonly #servers = new Set<Server>();
  readonly #connections = new Set<AnyConnection>();
  /** The sockets under TLS, from before their handshake. */
  readonly #secured = new Set<Socket>();
  #open = 0;
  /** Callers that a PROXY header named, by the address and port of the connection. */
  readonly #named = new Map<string, string>();
  /** Connections by the network they come from. */
  readonly #ofNetwork = new Map<string, number>();
  readonly #tls: TlsServer;
  readonly #timer: NodeJS.Timeout;
  #draining = false;

  constructor(options: ListenersOptions) {
    this.#options = options;
    this.#tls = new TlsServer({
      certificates: options.certificates,
      ticketKeys: options.ticketKeys,
      secure: (socket, protocol) => this.#secure(socket, protocol),
    });
    this.#timer = setInterval(() => this.#sweep(), SWEEP_MS);
    this.#timer.unref();
  }

  get connections(): number {
    return this.#open;
  }

  /**
   * Serves HTTP/1.1 without TLS on a listening server.
   * @param from address of all who connect, where their sockets have none
   */
  addHttp(server: Server, from?: string): void {
    const { handler, limits, memory } = this.#options;
    this.#servers.add(server);
    // An option of net.Server that has to be set before the first connection; what arrives is read by the connection.
    Object.assign(server, { pauseOnConnect: true });
    server.on('connection', (socket) => {
      const address = this.#admit(socket, from);
      if (address === undefined) return;
      const proxyHeader = this.#expectsHeader(address);
      readPreface(socket, { proxyHeader, clientHello: false }, (preface) => {
        const peer = { address: preface.address ?? address, encrypted: false, tlsVersion: '', tlsCipher: '' };
        if (proxyHeader) this.#track((closed) => new Http1Connection(socket, undefined, peer, handler, limits, closed));
        else {
          // The connection takes the socket's place; its end is the one that counts.
          const left = () => this.#left(address);
          this.#track((closed) => new Http1Connection(socket, memory, peer, handler, limits, closed), left);
        }
      });
      if (proxyHeader) socket.once('close', () => this.#left(address));
    });
  }

  /** Serves HTTP/2 and HTTP/1.1 over TLS on a listening server. */
  addHttps(server: Server): void {
    this.#servers.add(server);
    server.on('connection', (socket) => {
      const address = this.#admit(socket);
      if (address === undefined) return;
      this.#secured.add(socket);
      socket.once('close', () => {
        this.#secured.delete(socket);
        this.#left(address);
      });
      const wanted = { proxyHeader: this.#expectsHeader(address), clientHello: this.#tls.challenged };
      readPreface(socket, wanted, (preface) => {
        if (preface.address !== undefined) this.#name(socket, preface.address);
        this.#tls.accept(socket, preface.protocols);
      });
    });
  }

  /** The certificate for callers that name no host may have changed. */
  certificateChanged(): Promise<void> {
    return this.#tls.refresh();
  }

  setChallenge(name: string, pem: string | undefined): void {
    this.#tls.setChallenge(name, pem);
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
    this.#tls.close();
    for (const connection of this.#connections) connection.destroy();
    for (const socket of this.#secured) socket.destroy();
  }

  /** @returns the peer's address, or undefined where the connection is not taken */
  #admit(socket: Socket, from = socket.remoteAddress): string | undefined {
    const address = plainIp(from ?? '');
    const network = networkOf(address);
    const present = this.#ofNetwork.get(network) ?? 0;
    let most = socket.remoteAddress === socket.localAddress ? MAX_OF_OURS : MAX_OF_ONE;
    if (this.#options.proxies.trusts(address)) most = MAX_CONNECTIONS;
    if (address !== '' && this.#open < MAX_CONNECTIONS && present < most) {
      this.#open += 1;
      this.#ofNetwork.set(network, present + 1);
      return address;
    }
    socket.destroy();
    return undefined;
  }

  #left(address: string): void {
    this.#open -= 1;
    const network = networkOf(address);
    const others = (this.#ofNetwork.get(network) ?? 1) - 1;
    if (others === 0) this.#ofNetwork.delete(network);
    else this.#ofNetwork.set(network, others);
  }

  #expectsHeader(address: string): boolean {
    return this.#options.proxyProtocol && this.#options.proxies.trusts(address);
  }

  /** TLS has a socket of its own, which has the address and port in common with the one below it. */
  #name(socket: Socket, caller: string): void {
    const endpoint = endpointOf(socket);
    this.#named.set(endpoint, caller);
    socket.once('close', () => this.#named.delete(endpoint));
  }

  #secure(socket: TLSSocket, protocol: 'h2' | 'http/1.1'): void {
    const peer: Peer = {
      address: this.#named.get(endpointOf(socket)) ?? plainIp(socket.remoteAddress ?? ''),
      encrypted: true,
      tlsVersion: socket.getProtocol() ?? '',
      tlsCipher: socket.getCipher()?.standardName ?? '',
    };
    const { handler, limits } = this.#options;
    if (protocol === 'h2') {
      this.#track((closed) => new Http2Connection(socket, peer, handler, limits, closed));
    } else {
      this.#track((closed) => new Http1Connection(socket, undefined, peer, handler, limits, closed));
    }
  }

  #track(create: (closed: () => void) => AnyConnection, left?: () => void): void {
    const connection = create(() => {
      this.#connections.delete(connection);
      left?.();
    });
    this.#connections.add(connection);
    if (this.#draining) connection.drain();
  }

  #sweep(): void {
    const now = performance.now();
    for (const connection of this.#connections) connection.sweep(now);
  }
}

function endpointOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
