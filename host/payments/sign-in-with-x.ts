/**
 * Proof of ownership by x402's `sign-in-with-x` (x402 specification, specs/extensions/sign-in-with-x.md): the 402 carries
 * a message of EIP-4361, and the wallet's signature comes back in a header. Clients sign only what names the host that
 * they called, so that nobody else can have it signed; what is signed is good for one request to one address.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { recoverMessageAddress } from 'viem';
import { z } from 'zod';
import { networkOf } from '../shared/network-of.ts';
import { Problem } from '../shared/problem.ts';
import { signInMessage } from './sign-in.ts';
import { lower, payerDid } from './terms.ts';
import type { Payer } from './types.ts';

const NAME = 'sign-in-with-x';
const LIFE_MS = 5 * 60_000;
const MAX_HEADER = 8_192;
const NONCE = /^([0-9a-f]{12})([0-9a-f]{24})([0-9a-f]{32})$/;

/** Of a client's answer, what is not known here already. */
const answer = z.object({
  address: z.string().regex(/^0x[0-9a-fA-F]{40}$/),
  chainId: z.string(),
  nonce: z.string().max(128),
  requestId: z.string().max(128).optional(),
  signature: z.string().regex(/^0x[0-9a-fA-F]{130}$/, 'is no signature of a plain wallet'),
});

/** The members that clients check or show (x402 specification). */
const SCHEMA = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  properties: Object.fromEntries(
    ['domain', 'address', 'statement', 'uri', 'version', 'chainId', 'type', 'nonce', 'issuedAt', 'expirationTime']
      .concat('requestId', 'signature')
      .map((name) => [name, { type: 'string' }]),
  ),
  required: ['domain', 'address', 'uri', 'version', 'chainId', 'type', 'nonce', 'issuedAt', 'signature'],
};

/** The request that a signature is asked for. */
export interface Asking {
  /** Address of the caller. */
  caller: string;
  /** What may be done with it. */
  scope: string;
  description: string;
  method: string;
  /** Path and query. */
  path: string;
  /** `sha-256=<base64>` of the body, where it is known. */
  digest: string | undefined;
}

export interface SignInWithXOptions {
  /** Public origin of the host: the only one that a message may name, whatever name the caller used. */
  publicUrl: string;
  chainId: number;
  key: string;
  /** Notes that a nonce was used, until then (ms). @returns false where it was used before */
  claim(name: string, until: number): Promise<boolean>;
}

export class SignInWithX {
  readonly #options: SignInWithXOptions;

  constructor(options: SignInWithXOptions) {
    this.#options = options;
  }

  /** The header by which a 402 asks for a signature. */
  announce(asking: Asking, problem: Problem | undefined): Record<string, string> {
    const issuedAt = Date.now();
    const start = `${issuedAt.toString(16).padStart(12, '0')}${randomBytes(12).toString('hex')}`;
    const nonce = start + this.#mac(start, asking, asking.digest && requestId(asking.digest));
    const { host, statement, uri, chainId, resources } = this.#message(asking, issuedAt);
    const info = {
      domain: host,
      uri,
      version: '1',
      statement,
      nonce,
      issuedAt: new Date(issuedAt).toISOString(),
      expirationTime: new Date(issuedAt + LIFE_MS).toISOString(),
      ...(asking.digest === undefined ? {} : { requestId: requestId(asking.digest) }),
      resources,
    };
    const required = {
      x402Version: 2,
      error: problem?.message ?? `Sign in with the owner’s wallet: ${NAME.toUpperCase()} header is required`,
      resource: { url: uri, description: asking.description },
      accepts: [],
      extensions: {
        [NAME]: { info, supportedChains: [{ chainId: `eip155:${chainId}`, type: 'eip191' }], schema: SCHEMA },
      },
    };
    return { 'payment-required': Buffer.from(JSON.stringify(required)).toString('base64') };
  }

  /**
   * @returns undefined where the caller sent no signature
   * @throws Problem `payment_invalid`
   */
  async verify(headers: Headers, asking: Asking): Promise<{ payer: Payer; claim(): Promise<void> } | undefined> {
    const header = headers.get(NAME);
    if (header === null) return undefined;
    const given = read(header);
    const { chainId, claim } = this.#options;
    if (given.chainId !== `eip155:${chainId}`)
      throw refused(`it is for ${given.chainId}, and not for eip155:${chainId}`);
    const [, issued = '', random = '', proof = ''] = NONCE.exec(given.nonce) ?? [];
    const mac = this.#mac(issued + random, asking, given.requestId);
    if (proof === '' || !timingSafeEqual(Buffer.from(proof), Buffer.from(mac)))
      throw refused('this host asked for no such signature for this request and this caller’s network');
    const issuedAt = Number.parseInt(issued, 16);
    if (Date.now() >= issuedAt + LIFE_MS) throw refused('it has expired');
    if (given.requestId !== undefined && given.requestId !== (asking.digest && requestId(asking.digest)))
      throw refused('it is for another body');
    const message = signInMessage({ ...this.#message(asking, issuedAt), ...given, chainId });
    const signer = await recoverMessageAddress({ message, signature: given.signature as `0x${string}` }).catch(
      () => undefined,
    );
    const address = lower(given.address);
    if (signer === undefined || lower(signer) !== address) throw refused('another wallet signed, or another message');
    return {
      payer: { address, did: payerDid(chainId, address) },
      claim: async () => {
        if (!(await claim(`proof:${given.nonce}`, issuedAt + LIFE_MS))) throw refused('it was used before');
      },
    };
  }

  #message({ description, method, path }: Asking, issuedAt: number) {
    const { publicUrl, chainId } = this.#options;
    const { host, origin } = new URL(publicUrl);
    // Not resolved: a path such as //name/ would name another host.
    const href = origin + path;
    return {
      host,
      statement: `${description} (${method}, once). It moves no money.`,
      uri: href,
      chainId,
      issuedAt,
      expiresAt: issuedAt + LIFE_MS,
      resources: [href],
    };
  }

  /**
   * The network is a part of it: a client that follows a redirect to this host signs here, and shows its answer to the
   * server that sent it here.
   */
  #mac(start: string, { scope, method, path, caller }: Asking, id: string | undefined): string {
    const text = JSON.stringify([NAME, start, scope, method, path, id ?? null, networkOf(caller)]);
    return createHmac('sha256', this.#options.key).update(text).digest('hex').slice(0, 32);
  }
}

/** The digest in letters that the message takes (EIP-4361: no `/`). */
function requestId(digest: string): string {
  return Buffer.from(digest.slice(digest.indexOf('=') + 1), 'base64').toString('hex');
}

/** @throws Problem `payment_invalid` */
function read(header: string): z.infer<typeof answer> {
  try {
    if (header.length > MAX_HEADER) throw new Error('too long');
    return answer.parse(JSON.parse(Buffer.from(header, 'base64').toString()));
  } catch (error) {
    throw new Problem('payment_invalid', `${NAME.toUpperCase()} is not readable; sign the message of this answer.`, {
      cause: error,
    });
  }
}

function refused(why: string): Problem {
  return new Problem('payment_invalid', `The signature does not count: ${why}. Sign the message of this answer.`);
}
