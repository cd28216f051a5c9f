/**
 * TLS on accepted connections: the certificate by the name the caller asks for, HTTP/2 or HTTP/1.1 by ALPN, session
 * tickets, and the answers to an authority's TLS-ALPN-01 challenges (RFC 8737).
 */
import { constants } from 'node:crypto';
import type { Socket } from 'node:net';
import { createSecureContext, createServer, type SecureContext, type Server, type TLSSocket } from 'node:tls';
import type { Certificates } from './certificates.ts';

export const CHALLENGE_PROTOCOL = 'acme-tls/1';
const HANDSHAKE_MS = 10_000;
const SESSION_SECONDS = 86_400;
/** Time between two looks at the certificate for callers that name no host, ms. */
const RECHECK_MS = 60_000;

/**
 * Forward secrecy and AEAD only (Mozilla's "intermediate"); AES-128 first, as it takes a tenth off a handshake where
 * processors have SHA instructions, which SHA-384 has none of. Callers that put ChaCha20 first get it.
 */
const CIPHERS = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':');

const TERMS = {
  ciphers: CIPHERS,
  honorCipherOrder: true,
  secureOptions: constants.SSL_OP_PRIORITIZE_CHACHA,
  minVersion: 'TLSv1.2',
  sessionTimeout: SESSION_SECONDS,
  sessionIdContext: 'turnpike',
} as const;

export interface TlsServerOptions {
  certificates: Certificates;
  /** 48 bytes, the same in every edge process, so that a session goes on in any of them. */
  ticketKeys: Buffer | undefined;
  /** A connection that is ready, with what was negotiated. */
  secure(socket: TLSSocket, protocol: 'h2' | 'http/1.1'): void;
}

export class TlsServer {
  readonly #server: Server;
  readonly #certificates: Certificates;
  readonly #timer: NodeJS.Timeout;
  #ownVersion = 0;
  readonly #challengeServer: Server;
  readonly #challenges = new Map<string, SecureContext>();

  constructor({ certificates, ticketKeys, secure }: TlsServerOptions) {
    this.#certificates = certificates;
    this.#server = createServer({
      ...TERMS,
      ALPNProtocols: ['h2', 'http/1.1'],
      handshakeTimeout: HANDSHAKE_MS,
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
        answer(this.#challenges.get(name.toLowerCase()), done);
      },
    });
    // The handshake is all that the authority wants.
    this.#challengeServer.on('secureConnection', (socket) => socket.end());
    for (const server of [this.#server, this.#challengeServer])
      server.on('tlsClientError', (_error, socket) => socket.destroy());
    this.#timer = setInterval(() => void this.refresh(), RECHECK_MS).unref();
  }

  /** Callers that name no host, as by address, are shown the certificate of the host itself, as it is now. */
  async refresh(): Promise<void> {
    const own = await this.#certificates.own();
    if (!own || own.version === this.#ownVersion) return;
    this.#ownVersion = own.version;
    const { cert, key } = own;
    this.#server.setSecureContext({ ...TERMS, cert, key });
  }

  close(): void {
    clearInterval(this.#timer);
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
  context: SecureContext | undefined | Promise<SecureContext | undefined>,
  done: (error: Error | null, context?: SecureContext) => void,
): void {
  if (context instanceof Promise) context.then((found) => answer(found, done), done);
  else if (context) done(null, context);
  else done(new Error('there is no certificate for that name'));
}
