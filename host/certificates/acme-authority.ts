/** An ACME authority (RFC 8555), by acme-client: HTTP-01, TLS-ALPN-01 (RFC 8737), and DNS-01 for wildcards. */

import { createPrivateKey, X509Certificate } from 'node:crypto';
import { Agent, get } from 'node:https';
import { rootCertificates } from 'node:tls';
import acme from 'acme-client';
import { z } from 'zod';
import { type Authority, AuthorityError, type ChallengeResponders, type ChallengeType } from './authority.ts';
import { ACCOUNT, type CertificateStore, orderFile } from './store.ts';

export interface AcmeOptions {
  directory: string;
  /** Contact of the account; empty: none. */
  email: string;
  /** PEM of a private authority to trust for the directory itself. */
  authorityPem: string | undefined;
  preferred: 'http-01' | 'tls-alpn-01';
  /** Keeps the account's key, and orders that are under way. */
  store: CertificateStore;
  responders: ChallengeResponders;
  /** For each request, with the whole of its answer, ms. */
  requestMs?: number;
}

type Challenge = acme.Authorization['challenges'][number];

const REQUEST_MS = 30_000;
/** A chain of certificates is a tenth of it. */
const MAX_ANSWER_BYTES = 262_144;
/** An order of one name has one; acme-client 5.4 asks for all that an order names at once. */
const MAX_AUTHORIZATIONS = 4;
/** What authorities mean by "rate limited" is hours (RFC 8555, section 6.6). */
const RATE_LIMITED_MS = 3_600_000;
/** An order that is older is not gone on with. */
const ORDER_MS = 86_400_000;

/** An order as it is kept, so that whoever goes on after a kill obtains its certificate, and orders no other. */
const keptShape = z.object({ directory: z.string(), at: z.number(), key: z.string(), url: z.string().optional() });
type Kept = z.infer<typeof keptShape>;

export class AcmeAuthority implements Authority {
  readonly #options: AcmeOptions;
  readonly #agent: Agent;
  readonly #requestMs: number;
  #client: Promise<acme.Client> | undefined;
  #accountKey: string | undefined;

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
      const { order, key } = await this.#order(client, name);
      if (order.status === 'pending') await this.#prove(client, order, name);
      const chain = await client.getCertificate(await finalized(client, order, name, key));
      return servable(name, key.trim(), chain.toString().trim());
    } catch (error) {
      // The next attempt looks for its account anew: an authority may have lost it, or been replaced.
      this.#client = undefined;
      if (error instanceof Unservable) await this.#options.store.remove(orderFile(name));
      throw explained(error);
    }
  }

  /** The order that is under way, or a new one. */
  async #order(client: acme.Client, name: string): Promise<{ order: acme.Order; key: string }> {
    const { store, directory } = this.#options;
    const kept = keptOrder(await store.read(orderFile(name)), directory);
    if (kept?.url !== undefined) {
      const order = await client.getOrder({ url: kept.url } as acme.Order).catch((error: Error) => {
        // The authority's own words are plain errors: it knows no such order (any more).
        if (error.constructor !== Error) throw error;
      });
      if (order && ['pending', 'ready', 'processing', 'valid'].includes(order.status)) return { order, key: kept.key };
    }
    const key = (await acme.crypto.createPrivateEcdsaKey()).toString();
    const begun: Kept = { directory, at: Date.now(), key };
    // Before it, too: whoever may not write that must not order.
    await store.write(orderFile(name), JSON.stringify(begun));
    const order = await client.createOrder({ identifiers: [{ type: 'dns', value: name }] });
    await store.write(orderFile(name), JSON.stringify({ ...begun, url: order.url }));
    return { order, key };
  }

  async #prove(client: acme.Client, order: acme.Order, name: string): Promise<void> {
    for (const authorization of await client.getAuthorizations(order)) {
      if (authorization.status === 'valid') continue;
      if (authorization.identifier.value.toLowerCase() !== name.replace(/^\*\./, '')) {
        throw new AuthorityError(`The authority asks for a proof of another name than ${name}.`);
      }
      const challenge = this.#chosen(authorization, name);
      const proof = await client.getChallengeKeyAuthorization(challenge);
      try {
        await this.#respond(authorization, challenge, proof, true);
        // The authority's own look is the one that counts; ours could see another network.
        if (challenge.status === 'pending') await client.completeChallenge(challenge);
        await client.waitForValidStatus(challenge);
      } finally {
        await this.#respond(authorization, challenge, proof, false).catch(() => undefined);
      }
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

  /** @throws AuthorityError where none of what is offered is supported */
  #chosen({ challenges }: acme.Authorization, name: string): Challenge {
    const http: ChallengeType[] = ['http-01', 'tls-alpn-01'];
    const byName = this.#options.preferred === 'http-01' ? http : http.toReversed();
    for (const type of name.startsWith('*.') ? ['dns-01'] : byName) {
      const found = challenges.find((one) => one.type === type);
      if (found) return found;
    }
    const offered = challenges.map(({ type }) => type).join(', ');
    throw new AuthorityError(`The authority asks for ${offered || 'no proof'}, which is not supported.`);
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
    }
  }

  /** One account for all names, its key made once and kept. */
  async #account(): Promise<acme.Client> {
    // Whoever removed it wants another account.
    if ((await this.#options.store.read(ACCOUNT)) !== this.#accountKey) this.#client = undefined;
    this.#client ??= this.#connect();
    return await this.#client;
  }

  async #connect(): Promise<acme.Client> {
    const { directory, email, store } = this.#options;
    // Empty: left by a full disk.
    const accountKey =
      (await store.read(ACCOUNT)) || (await store.add(ACCOUNT, (await acme.crypto.createPrivateEcdsaKey()).toString()));
    this.#accountKey = accountKey;
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

/** A new CSR of the same key is the same request. */
async function finalized(client: acme.Client, order: acme.Order, name: string, key: string): Promise<acme.Order> {
  if (order.status !== 'pending' && order.status !== 'ready') return order;
  // The subject stays empty: a common name ends at 64 characters, and nobody reads it any more (RFC 9525).
  const [, csr] = await acme.crypto.createCsr({ altNames: [name] }, key);
  return await client.finalizeOrder(order, csr);
}

/** @returns undefined where it is another authority's, or old */
function keptOrder(text: string | undefined, directory: string): Kept | undefined {
  if (text === undefined) return undefined;
  const { data } = keptShape.safeParse(JSON.parse(text));
  return data && data.directory === directory && Math.abs(Date.now() - data.at) < ORDER_MS ? data : undefined;
}

/** A certificate that would not serve its name. Its order leads to no other. */
class Unservable extends AuthorityError {}

/**
 * Key and chain in one text.
 * @throws Unservable where the authority's answer would not serve the name: the certificate it replaces may
 */
function servable(name: string, key: string, chain: string): string {
  let certificate: X509Certificate;
  try {
    certificate = new X509Certificate(chain);
  } catch (error) {
    throw new Unservable('The authority answered with something that is no certificate.', 0, { cause: error });
  }
  if (!certificate.checkPrivateKey(createPrivateKey(key))) {
    throw new Unservable('The authority answered with a certificate for another key.');
  }
  if (!certificate.checkHost(name.replace(/^\*\./, 'any-name.'))) {
    throw new Unservable(`The authority answered with a certificate that does not cover ${name}.`);
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
