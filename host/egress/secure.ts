/**
 * TLS to a destination, spoken for a handler over a connection that stands. The server is checked against the authorities
 * that Node and the system trust, and those of the operator.
 */
import { isIP, type Socket } from 'node:net';
import {
  connect,
  createSecureContext,
  getCACertificates,
  rootCertificates,
  type SecureContext,
  type TLSSocket,
} from 'node:tls';
import type { TlsMode } from '../shared/connection-string.ts';
import { Problem } from '../shared/problem.ts';
import type { Target } from './target.ts';

/** A server that takes longer for its handshake is given up, ms. */
const HANDSHAKE_MS = 15_000;

/** Reads all certificates once, when TLS is first asked for. */
export class Authorities {
  readonly #extra: string | undefined;
  #context: SecureContext | undefined;

  /** @param extra PEM of authorities to trust beside the usual ones */
  constructor(extra: string | undefined) {
    this.#extra = extra;
  }

  /** For fetch(), which trusts what Node does; undefined: nothing beside that. */
  get ofFetch(): string[] | undefined {
    return this.#extra === undefined ? undefined : [...rootCertificates, this.#extra];
  }

  get context(): SecureContext {
    this.#context ??= createSecureContext({
      ca: [
        ...new Set([
          ...rootCertificates,
          ...getCACertificates('system'),
          ...(this.#extra === undefined ? [] : [this.#extra]),
        ]),
      ],
    });
    return this.#context;
  }
}

/**
 * @param serverName that the certificate has to be for; default: the host of the target
 * @param signal ends the attempt; its reason is the Problem to throw
 * @throws Problem egress_failed that says why the server is not trusted, or did not answer
 */
export function secure(
  socket: Socket,
  target: Pick<Target, 'host' | 'name'>,
  mode: Exclude<TlsMode, 'disable'>,
  { context }: Authorities,
  signal: AbortSignal,
  serverName?: string,
): Promise<TLSSocket> {
  const name = serverName ?? target.host;
  return new Promise((resolve, reject) => {
    const secured = connect({
      socket,
      host: name,
      secureContext: context,
      rejectUnauthorized: mode !== 'require',
      ...(isIP(name) === 0 ? { servername: name } : {}),
      ...(mode === 'verify-full' ? {} : { checkServerIdentity: () => undefined }),
    });
    const settle = (done: () => void) => {
      clearTimeout(late);
      signal.removeEventListener('abort', stopped);
      secured.off('error', failed);
      secured.off('close', closed);
      done();
    };
    const fail = (problem: unknown) =>
      settle(() => {
        secured.destroy();
        socket.destroy();
        reject(problem);
      });
    const failed = (error: NodeJS.ErrnoException) => fail(unsafe(target.name, name, whyUnsafe(error.code)));
    const closed = () => fail(unsafe(target.name, name, 'the server closed the connection during the TLS handshake'));
    const stopped = () => fail(signal.reason);
    const late = setTimeout(
      () => fail(unsafe(target.name, name, `the TLS handshake took longer than ${HANDSHAKE_MS / 1_000} s`)),
      HANDSHAKE_MS,
    );
    // Later users of the connection learn of an error by `close`.
    secured.on('error', () => undefined);
    secured.once('error', failed);
    secured.once('close', closed);
    secured.once('secureConnect', () => settle(() => resolve(secured)));
    if (signal.aborted) stopped();
    else signal.addEventListener('abort', stopped, { once: true });
  });
}

function unsafe(target: string, name: string, why: string): Problem {
  return new Problem('egress_failed', `${target}: ${why.replace('NAME', () => name)}.`, { extensions: { target } });
}

/** What OpenSSL and Node call it -> what an owner can do something about. */
const REASONS: Record<string, string> = {
  CERT_HAS_EXPIRED: 'its certificate has expired',
  CERT_NOT_YET_VALID: 'its certificate is not valid yet',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for another name than NAME',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is signed by itself, and no authority that this host trusts',
  SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is from an authority that this host does not trust',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is from an authority that this host does not trust',
  UNABLE_TO_GET_ISSUER_CERT: 'its certificate is from an authority that this host does not trust',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its certificate is from an authority that this host does not trust',
  ECONNRESET: 'the server closed the connection during the TLS handshake',
  EPROTO: 'the server does not speak TLS there',
  ERR_SSL_WRONG_VERSION_NUMBER: 'the server does not speak TLS there',
};

function whyUnsafe(code = 'unknown'): string {
  return REASONS[code] ?? `the TLS handshake failed (${code})`;
}
