/**
 * The boundary for priced requests: only the pay platform's gateway may call them, and it signs every request
 * (RFC 9421, Ed25519, tag pay-gateway; digests by RFC 9530). Whatever is wrong is 401.
 */
import { type RequestDescriptor, SignatureError, verifySignature, webcrypto } from 'http-message-sig';
import { baseUrl, type Env } from '../environment.ts';
import { Problem } from '../problem.ts';

/** What the gateway says about the caller, once it is believed. */
export interface Signed {
  /** `acc_…`, a wallet's `did:pkh:…`, or undefined. */
  account: string | undefined;
  /** The same for every forward of one call. */
  requestId: string;
  /** What was paid for; undefined where nothing was. */
  usage: UsageLine[] | undefined;
  body: Uint8Array<ArrayBuffer>;
}

export interface UsageLine {
  meterSlug: string;
  quantity: number;
}

const COMPONENTS = ['@method', '@target-uri', 'content-digest', 'x-pay-account', 'x-pay-request-id', 'x-pay-usage'];
const LABEL = 'pay';
const TAG = 'pay-gateway';
const SKEW_S = 5;
const LONGEST_LIFE_S = 300;
const KEEP_NONCE_S = 60;
const MAX_BODY_BYTES = 65_536;

/** @throws Problem unauthorized, too_large */
export async function verifyGateway(request: Request, env: Env, keys: GatewayKeys): Promise<Signed> {
  const body = await readBody(request);
  const url = new URL(request.url);
  const targetUri = `${baseUrl(env)}${url.pathname}${url.search}`;
  const input = request.headers.get('signature-input');
  if (!input || !request.headers.get('signature'))
    throw refused('Call it through the pay platform: it signs what it forwards.');
  const message = {
    kind: 'request' as const,
    method: request.method,
    targetUri,
    fields: [...request.headers].map(([name, value]) => ({ name, value })),
  };
  const { at: expires, nonce } = await verified(message, keys);
  const digest = base64(new Uint8Array(await crypto.subtle.digest('SHA-256', body)));
  if (request.headers.get('content-digest') !== `sha-256=:${digest}:`)
    throw refused('The body is not the one that was signed.');
  // After everything else: a nonce is only used up by a request that was good.
  const inserted = await env.DB.prepare('INSERT OR IGNORE INTO nonces (nonce, forget_at) VALUES (?, ?)')
    .bind(nonce, (expires + KEEP_NONCE_S) * 1_000)
    .run();
  if (inserted.meta.changes === 0) throw refused('The signature was used before.');
  const account = request.headers.get('x-pay-account') ?? 'none';
  return {
    account: account === 'none' ? undefined : account,
    requestId: request.headers.get('x-pay-request-id') ?? '',
    usage: readUsage(request.headers.get('x-pay-usage') ?? 'none'),
    body,
  };
}

/** @returns the nonce and the end of the signature's life, seconds */
async function verified(message: RequestDescriptor, keys: GatewayKeys): Promise<{ at: number; nonce: string }> {
  try {
    const { parameters } = await verifySignature(message, {
      label: LABEL,
      policy: {
        algorithms: ['ed25519'],
        requiredComponents: COMPONENTS,
        requiredParameters: ['created', 'expires', 'nonce', 'keyid', 'tag'],
        maxAge: LONGEST_LIFE_S,
        clockSkew: SKEW_S,
        validate: (signature) =>
          signature.parameters.tag === TAG &&
          (signature.parameters.expires ?? 0) + SKEW_S > Date.now() / 1_000 &&
          JSON.stringify(signature.components.map(({ name }) => name)) === JSON.stringify(COMPONENTS),
      },
      async resolveVerifier({ parameters: { keyid } }) {
        const key = await keys.find(keyid ?? '');
        if (!key) throw new Error('the key is not known');
        return webcrypto.verifier(key);
      },
    });
    return { at: parameters.expires ?? 0, nonce: parameters.nonce ?? '' };
  } catch (error) {
    if (error instanceof SignatureError && error.cause instanceof Problem) throw error.cause;
    const why = error instanceof SignatureError ? error.code : 'unreadable';
    throw refused(`The signature was refused (${why}).`);
  }
}

/** The usage that was paid for. @throws Problem unauthorized where it is not readable */
function readUsage(text: string): UsageLine[] | undefined {
  if (text === 'none') return undefined;
  try {
    return (JSON.parse(text) as UsageLine[]).map(({ meterSlug, quantity }) => ({
      meterSlug: String(meterSlug),
      quantity: Number(quantity),
    }));
  } catch {
    throw refused('The usage is not readable.');
  }
}

/** What WebCrypto calls a CryptoKey; Node's types have it as a value only. */
type CryptoKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** The gateway's public keys, kept for five minutes; an unknown one is looked for at most once in ten seconds. */
export class GatewayKeys {
  readonly #env: Env;
  #keys = new Map<string, CryptoKey>();
  #fetchedAt = 0;

  constructor(env: Env) {
    this.#env = env;
  }

  async find(keyid: string): Promise<CryptoKey | undefined> {
    const age = Date.now() - this.#fetchedAt;
    // Negative: the clock was ahead when they were read.
    if (age < 0 || age > 300_000 || (!this.#keys.has(keyid) && age > 10_000)) await this.#fetch();
    return this.#keys.get(keyid);
  }

  async #fetch(): Promise<void> {
    const answer = await fetch(`${this.#env.APP_URL}/pay/.well-known/http-message-signatures-directory`).catch(
      () => undefined,
    );
    if (!answer?.ok) {
      await answer?.body?.cancel();
      // Known keys go on being good for a while when the platform is away.
      if (this.#keys.size === 0)
        throw new Problem('not_ready', 'The keys of the pay platform cannot be read now; try again.');
      return;
    }
    const { keys } = (await answer.json()) as {
      keys: { kty: string; crv: string; kid: string; x: string; nbf?: number; exp?: number }[];
    };
    const now = Date.now() / 1_000;
    const fresh = new Map<string, CryptoKey>();
    for (const { kty, crv, kid, x, exp } of keys) {
      if (kty !== 'OKP' || crv !== 'Ed25519' || (exp !== undefined && exp < now)) continue;
      fresh.set(kid, await crypto.subtle.importKey('jwk', { kty, crv, x }, { name: 'Ed25519' }, false, ['verify']));
    }
    this.#keys = fresh;
    this.#fetchedAt = Date.now();
  }
}

async function readBody(request: Request): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(await request.arrayBuffer());
  if (bytes.byteLength > MAX_BODY_BYTES)
    throw new Problem('too_large', `The body is larger than ${MAX_BODY_BYTES} bytes, the most that is taken here.`);
  return bytes;
}

function refused(detail: string): Problem {
  return new Problem('unauthorized', detail);
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}
