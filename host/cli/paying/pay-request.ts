/**
 * Sends a request; when the answer is a 402, decides, asks, signs, and sends it once more with the payment.
 * A payment never follows a redirect, and one request is paid at most once.
 */
import { formatUsd, micro } from '../../shared/money.ts';
import { readJson } from '../answer.ts';
import { Failure } from '../terminal/failure.ts';
import type { Signer } from './credentials.ts';
import type { Choice, Offer, PaymentPolicy } from './offers.ts';

export interface PayableRequest {
  url: URL;
  method: string;
  headers: Record<string, string>;
  body: string | Uint8Array<ArrayBuffer> | undefined;
  signal?: AbortSignal;
}

export interface PaidWith {
  protocol: Offer['protocol'];
  intent: Offer['intent'];
  chainId: number;
  token: string;
  /** The most that this payment allows, USD. */
  amount: string;
  testMoney: boolean;
}

export interface PaidAnswer {
  response: Response;
  /** Undefined: nothing was asked, or only a proof. */
  paid: PaidWith | undefined;
}

export interface PayOptions {
  policy: PaymentPolicy;
  signer: Signer;
  /** Called before money is promised; answers whether to go on. */
  approve(price: { usd: string; microUsd: bigint; offer: Offer; symbol: string; testMoney: boolean }): Promise<boolean>;
  /**
   * The API of a Turnpike host: it asks for a payment before it looks at the body, so that code and secrets go with the
   * payment only, and only to the host that the challenge is of.
   */
  ownHost?: boolean;
  /** Whether nobody looks at the price, and no limit was given: `--yes` alone. */
  unasked?: boolean;
  /** Our own host answers a repeated credential with the stored answer: a lost answer may be asked for again. */
  repeatable: boolean;
  fetch: typeof fetch;
}

const REPEATS = 4;
const REPEAT_AFTER_MS = 500;

/** @throws Failure `payment` | `cancelled` | `unreachable` */
export async function payRequest(request: PayableRequest, options: PayOptions): Promise<PaidAnswer> {
  const first = options.ownHost ? await ask(request, options.fetch) : await send(request, {}, options.fetch);
  if (first.status !== 402) return { response: first, paid: undefined };
  const { chooseOffer, readOffers, realmOf } = await import('./offers.ts');
  const offers = readOffers(first.headers);
  if (options.ownHost) for (const offer of offers) requireRealm(realmOf(offer), request.url);
  const choice = chooseOffer(offers, options.policy);
  if (choice.kind !== 'pay') throw refusal(choice, options.policy);
  const { offer, asset, microUsd } = choice;
  await first.body?.cancel();
  const usd = formatUsd(micro(microUsd));
  const agreed = await options.approve({ usd, microUsd, offer, symbol: asset.symbol, testMoney: asset.test });
  if (!agreed) throw new Failure('cancelled', 'Nothing was paid.');
  // The payment libraries take a second to load: only who pays waits for them.
  const { createCredential } = await import('./credentials.ts');
  const credential = await createCredential(offer, options.signer);
  const response = await sendPaid(request, credential, options);
  if (response.status === 402) throw await paymentRefused(response);
  return {
    response,
    paid: {
      protocol: offer.protocol,
      intent: offer.intent,
      chainId: offer.chainId,
      token: offer.token,
      amount: usd,
      testMoney: asset.test,
    },
  };
}

/**
 * Sends a request that needs a proof of the owner's wallet: a zero-amount challenge, and never a payment.
 * @throws Failure `payment` when the host asks for money instead, or the challenge is not its own
 */
export async function proveRequest(
  request: PayableRequest,
  options: Pick<PayOptions, 'signer' | 'fetch'>,
): Promise<Response> {
  const first = await ask(request, options.fetch);
  if (first.status !== 402) return first;
  const { findProof, readOffers } = await import('./offers.ts');
  const proof = findProof(readOffers(first.headers));
  if (!proof) throw new Failure('payment', 'The host asks for money where a proof of ownership was expected.');
  requireRealm(proof.challenge.realm, request.url);
  await first.body?.cancel();
  const { createCredential } = await import('./credentials.ts');
  const response = await send(request, await createCredential(proof, options.signer), options.fetch);
  if (response.status === 402) throw await paymentRefused(response);
  return response;
}

/** Asks for the challenge, with nothing in it that is worth having: neither the body nor a key that finds the answer. */
async function ask(request: PayableRequest, fetchIt: typeof fetch): Promise<Response> {
  if (request.body === undefined) return send(request, {}, fetchIt);
  const { 'content-type': _, 'idempotency-key': __, ...headers } = request.headers;
  const response = await send({ ...request, headers, body: undefined }, {}, fetchIt);
  if (response.ok || (response.status >= 300 && response.status < 400)) {
    await response.body?.cancel();
    throw new Failure(
      'refused',
      `${request.url.origin} answered ${response.status} where a Turnpike host asks for a payment or a proof. Nothing was sent to it.`,
    );
  }
  return response;
}

/** @throws Failure `payment` for the challenge of another host: signed, it would pay or prove there */
function requireRealm(realm: string | undefined, url: URL): void {
  if (realm === undefined || realmMatches(realm, url)) return;
  throw new Failure(
    'payment',
    `The challenge is for ${realm}, not for ${url.host}. Use the host's public address with --host-url.`,
  );
}

/** The realm is the host name of the public origin, with or without its port; loopback's names are one. */
export function realmMatches(realm: string, url: URL): boolean {
  const loopback = /^(localhost|127\.0\.0\.1|\[::1\])(?=:|$)/i;
  const same = (text: string) =>
    text
      .toLowerCase()
      .replace(/^https?:\/\//, '')
      .replace(loopback, 'localhost');
  return same(realm) === same(url.host) || same(realm) === same(url.hostname);
}

async function sendPaid(request: PayableRequest, credential: Record<string, string>, options: PayOptions) {
  for (let attempt = 1; ; attempt++) {
    try {
      const response = await send(request, credential, options.fetch);
      if (response.status !== 503 || !options.repeatable || attempt === REPEATS) return response;
      await response.body?.cancel();
    } catch (error) {
      if (error instanceof Failure && error.exit === 'usage') throw error;
      if (options.repeatable && attempt < REPEATS && !request.signal?.aborted) {
        await new Promise((resolve) => setTimeout(resolve, REPEAT_AFTER_MS * attempt));
        continue;
      }
      throw new Failure(
        'unreachable',
        `The answer was lost after the payment was sent; it may have been taken. ${String((error as Error).message)}`,
      );
    }
    await new Promise((resolve) => setTimeout(resolve, REPEAT_AFTER_MS * attempt));
  }
}

export async function send(
  request: PayableRequest,
  extra: Record<string, string>,
  fetchIt: typeof fetch,
): Promise<Response> {
  try {
    return await fetchIt(request.url, {
      method: request.method,
      headers: { ...request.headers, ...extra },
      redirect: 'manual',
      ...(request.body === undefined ? {} : { body: request.body }),
      ...(request.signal ? { signal: request.signal } : {}),
    });
  } catch (error) {
    if (error instanceof Failure) throw error;
    if (request.signal?.aborted) throw new Failure('cancelled', 'Cancelled.');
    const { cause } = error as { cause?: { code?: string } };
    throw new Failure('unreachable', `${request.url.origin} does not answer${cause?.code ? ` (${cause.code})` : ''}.`);
  }
}

function refusal(choice: Exclude<Choice, { kind: 'pay' }>, policy: PaymentPolicy): Failure {
  switch (choice.kind) {
    case 'over':
      return new Failure(
        'payment',
        `It costs ${formatUsd(micro(choice.cheapest))} USD, more than the limit of ${formatUsd(micro(policy.maxMicroUsd ?? 0n))}.`,
      );
    case 'unknown-assets': {
      const names = choice.offers.map(({ chainId, token }) => `${chainId}:${token}`);
      return new Failure(
        'payment',
        `It asks for a token that is not known here (${[...new Set(names)].join(', ')}). If you trust it: --allow-asset <chain id>:<token>:<decimals>.`,
      );
    }
    case 'proof':
      return new Failure(
        'payment',
        'It asks for a proof of who owns the wallet, not for money. Commands for your deployments give one, this one does not: whoever had it could act as you.',
      );
    case 'none':
      return new Failure(
        'payment',
        `It asks for a payment in no way that this command can pay${policy.protocol ? ` by ${policy.protocol}` : ''}.`,
      );
  }
}

export async function paymentRefused(response: Response): Promise<Failure> {
  const document = (await readJson(response).catch(() => ({}))) as { detail?: unknown } | null;
  const detail = typeof document?.detail === 'string' ? document.detail : 'no reason was given';
  return new Failure('payment', `The payment was refused: ${detail}`, { detail });
}
