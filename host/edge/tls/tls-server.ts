/**
 * TLS on accepted connections: the certificate by the name the caller asks for, HTTP/2 or HTTP/1.1 by ALPN, session
 * tickets, and the answers to an authority's TLS-ALPN-01 challenges (RFC 8737).
 */
import type { Socket } from 'node:net';
import { createSecureContext, createServer, type SecureContext, type Server, type TLSSocket } from 'node:tls';
import type { Certificates } from './certificates.ts';

export const CHALLENGE_PROTOCOL = 'acme-tls/1';
const HANDSHAKE_MS = 10_000;
const SESSION_SECONDS = 86_400;

export interface TlsServerOptions {
  certificates: Certificates;
  /** 48 bytes, the same in every edge process, so that a session goes on in any of them. */
  ticketKeys: Buffer | undefined;
  /** A connection that is ready, with what was negotiated. */
  secure(socket: TLSSocket, protocol: 'h2' | 'http/1.1'): void;
}

export class TlsServer {
  readonly #server: Server;
  readonly #challengeServer: Server;
  readonly #challenges = new Map<string, SecureContext>();

  constructor({ certificates, ticketKeys, secure }: TlsServerOptions) {
    this.#server = createServer({
      ALPNProtocols: ['h2', 'http/1.1'],
      minVersion: 'TLSv1.2',
      handshakeTimeout: HANDSHAKE_MS,
      sessionTimeout: SESSION_SECONDS,
      sessionIdContext: 'turnpike',
      ...(ticketKeys ? { ticketKeys } : {}),
      SNICallback: (name, done) => {
        answer(certificates.contextFor(name.toLowerCase()), done);
      },
    });
    this.#server.on('secureConnection', (socket) => {
      socket.setNoDelay(true);
      secure(socket, socket.alpnProtocol === 'h2' ? 'h2' : 'http/1.1');
    });
    this.#challengeServer = createServer({
      ALPNProtocols: [CHALLENGE_PROTOCOL],
      handshakeTimeout: HANDSHAKE_MS,
      SNICallback: (name, done) => {
        answer(Promise.resolve(this.#challenges.get(name.toLowerCase())), done);
      },
    });
    // The handshake is all that the authority wants.
    this.#challengeServer.on('secureConnection', (socket) => socket.end());
    for (const server of [this.#server, this.#challengeServer])
      server.on('tlsClientError', (_error, socket) => socket.destroy());
  }

  /** Whether a ClientHello has to be looked into before the handshake. */
  get challenged(): boolean {
    return this.#challenges.size > 0;
  }

  /** @param pem key and certificate to answer the challenge with; undefined: it is over */
  setChallenge(name: string, pem: string | undefined): void {
    if (pem === undefined) this.#challenges.delete(name);
    else this.#challenges.set(name, createSecureContext({ cert: pem, key: pem }));
  }

  /** @param protocols that the ClientHello offers, as far as it was looked into */
  accept(socket: Socket, protocols: readonly string[]): void {
    const server = protocols.includes(CHALLENGE_PROTOCOL) ? this.#challengeServer : this.#server;
    server.emit('connection', socket);
  }
}

function answer(
  context: Promise<SecureContext | undefined>,
  done: (error: Error | null, context?: SecureContext) => void,
): void {
  context.then(
    (found) => (found ? done(null, found) : done(new Error('there is no certificate for that name'))),
    (error: Error) => done(error),
  );
}
