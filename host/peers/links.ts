/**
 * Connections between the nodes of a host: TLS with a certificate on both sides, and one line that says what the
 * connection is for. Who is not admitted any more is cut off at once.
 */
import { createServer, type Server, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect, createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { type CertifiedKey, identityOf, type PeerIdentity } from './authority.ts';
import { Places } from './places.ts';

export interface PeerLinksOptions {
  /** Certificate of the authority, PEM. */
  authority: string;
  own: CertifiedKey;
  /** Whether a certificate of the authority's is good; asked for each connection, on both sides. */
  admits(peer: PeerIdentity): boolean;
  /** Where a node listens; undefined: nobody knows. */
  addressOf(node: number): { host: string; port: number } | undefined;
  /** Takes a connection. @param purpose what the other node said it is for; it may be anything */
  onConnection(purpose: string, stream: Duplex, from: number): void;
  /** Connections of others at a time; default: `MOST` */
  most?: typeof MOST;
}

/** Until a connection stands and has said what it is for, ms. */
const OPEN_MS = 5_000;
const MOST_PURPOSE = 512;
/** Connections of other nodes at a time, and of those who have not shown yet that they are one. */
const MOST = { nodes: 4_096, strangers: 1_024 };
const MOST_LISTENERS = 30;
const LAST_PORT = 65_535;
/** Silent ones are asked whether they are still there, ms. */
const KEEP_ALIVE_MS = 5_000;

export class PeerLinks {
  readonly #options: PeerLinksOptions;
  readonly #server: Server;
  /** It does not listen: it is handed its connections. */
  readonly #tls: Server;
  /** By the address that they come from; their TLS is being set up. */
  readonly #strangers: Places<string, Socket>;
  /** Takes one from among the strangers. By `endOf`: TLS has a socket of its own on each connection. */
  readonly #known = new Map<string, () => void>();
  readonly #callers: Places<number, TLSSocket>;
  /** Both ways. */
  readonly #open = new Map<TLSSocket, PeerIdentity>();

  constructor(options: PeerLinksOptions) {
    this.#options = options;
    const { authority, own, most = MOST } = options;
    this.#strangers = new Places(most.strangers);
    this.#callers = new Places(most.nodes);
    this.#tls = createTlsServer(
      {
        ca: authority,
        cert: own.certificate,
        key: own.key,
        requestCert: true,
        rejectUnauthorized: true,
        minVersion: 'TLSv1.3',
        handshakeTimeout: OPEN_MS,
      },
      (socket) => this.#accept(socket),
    );
    this.#tls.on('tlsClientError', (_error, socket) => socket.destroy());
    this.#server = createServer({ noDelay: true }, (socket) => this.#meet(socket));
  }

  /** @returns the port */
  async listen(host: string, port: number): Promise<number> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, host, resolve);
    });
    const address = this.#server.address();
    return typeof address === 'object' && address !== null ? address.port : port;
  }

  /** What is written before it stands waits; where it does not come to stand, it errs. */
  dial(node: number, purpose: string): Duplex {
    const { authority, own, addressOf } = this.#options;
    const { host, port } = addressOf(node) ?? { host: '127.0.0.1', port: 0 };
    const socket = connect({
      host,
      // Nobody listens at port 0: the error comes as any other does, and a number that is no port would be thrown here.
      port: port > LAST_PORT ? 0 : port,
      ca: authority,
      cert: own.certificate,
      key: own.key,
      minVersion: 'TLSv1.3',
      // The name of a node says who it is, not its address.
      checkServerIdentity: (_host, presented) => {
        const peer = identityOf(presented);
        return peer?.node === node && this.#options.admits(peer) ? undefined : new Error(`that is not node ${node}`);
      },
    });
    const late = setTimeout(() => socket.destroy(new Error(`node ${node} does not answer`)), OPEN_MS);
    socket.once('close', () => clearTimeout(late));
    socket.once('secureConnect', () => {
      clearTimeout(late);
      const peer = identityOf(socket.getPeerCertificate());
      if (peer) this.#keep(socket, peer);
    });
    socket.setNoDelay(true);
    socket.write(`${purpose}\n`);
    return socket;
  }

  /** Cuts off whoever is not admitted any more. */
  review(): void {
    for (const [socket, peer] of this.#open) if (!this.#options.admits(peer)) socket.destroy();
  }

  async close(): Promise<void> {
    for (const socket of this.#open.keys()) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #keep(socket: TLSSocket, peer: PeerIdentity): void {
    this.#open.set(socket, peer);
    // Those who pass it on listen, too.
    socket.setMaxListeners(MOST_LISTENERS);
    socket.once('close', () => this.#open.delete(socket));
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
  }

  /** Before anything is done for TLS: who comes often is turned away cheaply. */
  #meet(socket: Socket): void {
    const from = endOf(socket);
    const address = socket.remoteAddress ?? '';
    socket.on('error', () => undefined);
    if (!this.#strangers.take(address, socket)) return;
    const leave = () => {
      this.#strangers.leave(address, socket);
      this.#known.delete(from);
    };
    this.#known.set(from, leave);
    socket.once('close', leave);
    this.#tls.emit('connection', socket);
  }

  #accept(socket: TLSSocket): void {
    const peer = identityOf(socket.getPeerCertificate());
    socket.on('error', () => undefined);
    if (!peer || !this.#options.admits(peer)) {
      socket.destroy();
      return;
    }
    this.#keep(socket, peer);
    this.#known.get(endOf(socket))?.();
    const late = setTimeout(() => socket.destroy(), OPEN_MS);
    socket.once('close', () => {
      clearTimeout(late);
      this.#callers.leave(peer.node, socket);
    });
    if (!this.#callers.take(peer.node, socket)) return;
    let said = Buffer.alloc(0);
    const read = (): void => {
      for (let part = socket.read() as Buffer | null; part; part = socket.read() as Buffer | null) {
        said = Buffer.concat([said, part]);
        const end = said.indexOf(10);
        if (end < 0 && said.length <= MOST_PURPOSE) continue;
        socket.off('readable', read);
        clearTimeout(late);
        if (end < 0 || end > MOST_PURPOSE) {
          socket.destroy();
          return;
        }
        const rest = said.subarray(end + 1);
        if (rest.length > 0) socket.unshift(rest);
        this.#options.onConnection(said.subarray(0, end).toString(), socket, peer.node);
        return;
      }
    };
    socket.on('readable', read);
  }
}

/** Of the other side. */
function endOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
