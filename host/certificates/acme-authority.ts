/** An ACME authority (RFC 8555), by acme-client: HTTP-01, TLS-ALPN-01 (RFC 8737), and DNS-01 for wildcards. */

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Agent, get } from 'node:https';
import { rootCertificates } from 'node:tls';
import acme from 'acme-client';
import { writePrivateFile } from '../shared/private-file.ts';
import { type Authority, AuthorityError, type ChallengeResponders, type ChallengeType } from './authority.ts';

export interface AcmeOptions {
  directory: string;
  /** Contact of the account; empty: none. */
  email: string;
  /** PEM of a private authority to trust for the directory itself. */
  authorityPem: string | undefined;
  preferred: 'http-01' | 'tls-alpn-01';
  /** Where the account's key is kept. */
  accountKeyFile: string;
  responders: ChallengeResponders;
  /** For each request, with the whole of its answer, ms. */
  requestMs?: number;
}

const REQUEST_MS = 30_000;
/** A chain of certificates is a tenth of it. */
const MAX_ANSWER_BYTES = 262_144;
/** An order of one name has one; acme-client 5.4 asks for all that an order names at once. */
const MAX_AUTHORIZATIONS = 4;
/** What authorities mean by "rate limited" is hours (RFC 8555, section 6.6). */
const RATE_LIMITED_MS = 3_600_000;

export class AcmeAuthority implements Authority {
  readonly #options: AcmeOptions;
  readonly #agent: Agent;
  readonly #requestMs: number;
  #client: Promise<acme.Client> | undefined;

  constructor(options: AcmeOptions) {
    this.#options = options;
    this.#requestMs = options.requestMs ?? REQUEST_MS;
    const { authorityPem } = options;
    this.#agent = new Agent(authorityPem === undefined ? {} : { ca: [...rootCertificates, authorityPem] });
    Object.assign(acme.axios.defaults, {
      httpsAgent: this.#agent,
      maxContentLength: MAX_ANSWER_BYTES,
      // RFC 8555 has no redirects, and they could lead anywhere.
      maxRedirects: 0,
      // The renewer retries, with longer pauses; acme-client 5.4 would sleep for hours on Retry-After.
      acmeSettings: { retryMaxAttempts: 0, retryDefaultDelay: 1 },
    });
    acme.axios.interceptors.request.use((request) => {
      // The addresses are the authority's words (RFC 8555, section 6.1: HTTPS only).
      if (!request.url?.startsWith('https://'))
        throw new AuthorityError('The authority names an address without https.');
      // The timeout of axios begins anew with each byte.
      request.signal ??= AbortSignal.timeout(this.#requestMs);
      return request;
    });
    acme.axios.interceptors.response.use((response) => {
      const { authorizations } = (response.data ?? {}) as { authorizations?: unknown };
      if (Array.isArray(authorizations) && authorizations.length > MAX_AUTHORIZATIONS) {
        throw new AuthorityError('The authority asks for more authorizations than an order of one name has.');
      }
      return response;
    });
  }

  async issue(name: string): Promise<string> {
    try {
      await this.#reach();
      const client = await this.#account();
      const [key, csr] = await acme.crypto.createCsr(
        // The subject stays empty: a common name ends at 64 characters, and nobody reads it any more (RFC 9525).
        { altNames: [name] },
        await acme.crypto.createPrivateEcdsaKey(),
      );
      const chain = await client.auto({
        csr,
        challengePriority: this.#priority(name),
        // The authority's own look is the one that counts; ours could see another network.
        skipChallengeVerification: true,
        challengeCreateFn: async (authorization, challenge, proof) => {
          if (authorization.identifier.value.toLowerCase() !== name.replace(/^\*\./, '')) {
            throw new AuthorityError(`The authority asks for a proof of another name than ${name}.`);
          }
          await this.#respond(authorization, challenge, proof, true);
        },
        challengeRemoveFn: (authorization, challenge, proof) => this.#respond(authorization, challenge, proof, false),
      });
      return servable(name, key.toString().trim(), chain.toString().trim());
    } catch (error) {
      // The next attempt looks for its account anew: an authority may have lost it, or been replaced.
      this.#client = undefined;
      throw explained(error);
    }
  }

  /** acme-client 5.4 turns a refused connection into a TypeError; asked directly, the reason is plain. */
  #reach(): Promise<void> {
    const { directory } = this.#options;
    return new Promise((resolve, reject) => {
      const asked = get(directory, { agent: this.#agent, signal: AbortSignal.timeout(this.#requestMs) }, (response) => {
        response.destroy();
        if (response.statusCode === 200) resolve();
        else reject(new AuthorityError(`The authority at ${directory} answers ${response.statusCode}.`));
      });
      asked.on('error', (error) => {
        reject(
          new AuthorityError(`The authority at ${directory} cannot be reached: ${error.message}`, 0, { cause: error }),
        );
      });
    });
  }

  #priority(name: string): ChallengeType[] {
    if (name.startsWith('*.')) return ['dns-01'];
    return this.#options.preferred === 'http-01' ? ['http-01', 'tls-alpn-01'] : ['tls-alpn-01', 'http-01'];
  }

  async #respond(
    authorization: acme.Authorization,
    challenge: { type: string; token: string },
    proof: string,
    set: boolean,
  ): Promise<void> {
    const { responders } = this.#options;
    const name = authorization.identifier.value;
    switch (challenge.type) {
      case 'http-01':
        return await responders.http(name, challenge.token, set ? proof : undefined);
      case 'tls-alpn-01': {
        if (!set) return await responders.tls(name, undefined);
        const [key, certificate] = await acme.crypto.createAlpnCertificate(authorization, proof);
        return await responders.tls(name, `${key}\n${certificate}`);
      }
      case 'dns-01':
        if (!responders.dns)
          throw new AuthorityError('Wildcards need tls.acme.dnsHook, a command that sets DNS records.');
        return await responders.dns(name, proof, set);
      default:
        throw new AuthorityError(`The authority asks for ${challenge.type}, which is not supported.`);
    }
  }

  /** One account for all names, its key made once and kept. */
  #account(): Promise<acme.Client> {
    this.#client ??= this.#connect();
    return this.#client;
  }

  async #makeKey(file: string): Promise<Buffer> {
    const key = await acme.crypto.createPrivateEcdsaKey();
    await writePrivateFile(file, key);
    return key;
  }

  async #connect(): Promise<acme.Client> {
    const { directory, email, accountKeyFile } = this.#options;
    const known = await readFile(accountKeyFile).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
    // Empty: left by a full disk.
    const accountKey = known?.length ? known : await this.#makeKey(accountKeyFile);
    const client = new acme.Client({
      directoryUrl: directory,
      accountKey,
      backoffAttempts: 8,
      backoffMin: 500,
      backoffMax: 5_000,
    });
    try {
      await client.createAccount({ termsOfServiceAgreed: true, ...(email ? { contact: [`mailto:${email}`] } : {}) });
    } catch (error) {
      // acme-client 5.4 updates an account that is there already, and authorities refuse an update without a change.
      if (!isKnown(client)) throw error;
    }
    return client;
  }
}

/**
 * Key and chain in one text.
 * @throws AuthorityError where the authority's answer would not serve the name: the certificate it replaces may
 */
function servable(name: string, key: string, chain: string): string {
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(chain);
  } catch (error) {
    throw new AuthorityError('The authority answered with something that is no certificate.', 0, { cause: error });
  }
  if (!certificate.checkPrivateKey(createPrivateKey(key))) {
    throw new AuthorityError('The authority answered with a certificate for another key.');
  }
  if (!certificate.checkHost(name.replace(/^\*\./, 'any-name.'))) {
    throw new AuthorityError(`The authority answered with a certificate that does not cover ${name}.`);
  }
  return `${key}\n${chain}\n`;
}

/** Whether the authority has said which account is ours. */
function isKnown(client: acme.Client): boolean {
  try {
    return client.getAccountUrl() !== '';
  } catch {
    return false;
  }
}

/** The authority's own words, and how long it wants to be left alone. */
function explained(error: unknown): AuthorityError {
  if (error instanceof AuthorityError) return error;
  if (error instanceof TypeError) return new AuthorityError('The authority stopped answering.', 0, { cause: error });
  const message = error instanceof Error ? error.message : String(error);
  const limited = /rateLimited|rate limit|too many/i.test(message);
  return new AuthorityError(message.slice(0, 500), limited ? RATE_LIMITED_MS : 0, { cause: error });
}
