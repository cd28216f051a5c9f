/** What certificate renewal needs of a certificate authority, and how control of a name is proved to it. */

export type ChallengeType = 'http-01' | 'tls-alpn-01' | 'dns-01';

/** Makes proofs of control visible to the authority, and takes them away again. Every call names one proof. */
export interface ChallengeResponders {
  /** Serve `body` at `http://<name>/.well-known/acme-challenge/<token>`. */
  http(name: string, token: string, body: string | undefined): Promise<void>;
  /** Answer TLS with protocol `acme-tls/1` for the name with this key and certificate (PEM). */
  tls(name: string, pem: string | undefined): Promise<void>;
  /** Set or clear the TXT record `_acme-challenge.<name>`; undefined: there is no way to. */
  dns: ((name: string, value: string, set: boolean) => Promise<void>) | undefined;
}

export interface Authority {
  /**
   * Obtains a certificate.
   * @param name host name, or `*.` and one
   * @returns private key and chain, PEM, key first
   * @throws AuthorityError
   */
  issue(name: string): Promise<string>;
}

export class AuthorityError extends Error {
  /** The authority asks for this much patience, ms. */
  readonly retryAfterMs: number;

  constructor(message: string, retryAfterMs = 0, options?: ErrorOptions) {
    super(message, options);
    this.name = 'AuthorityError';
    this.retryAfterMs = retryAfterMs;
  }
}
