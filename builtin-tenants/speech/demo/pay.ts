/**
 * A fetch that pays by x402 v2 with a key in the page. The stock client would do the same and is four times as large.
 */
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { type Requirements, signExact, signUpto } from './signing.ts';

interface PaymentRequired {
  resource?: unknown;
  accepts: Requirements[];
}

/** The most that one click may hold, atomic units of a token with six decimals. */
const MOST = 50_000n;
/** In order of preference: of `upto` only what was used is taken. */
const SCHEMES = { upto: signUpto, exact: signExact };

/**
 * @param key private key of the wallet that pays; for `upto` it has allowed Permit2 to move its tokens
 * @throws Error when the answer asks for what this wallet does not pay
 */
export function payingFetch(key: Hex): (url: string, init: RequestInit) => Promise<Response> {
  const account = privateKeyToAccount(key);
  return async (url, init) => {
    const unpaid = await fetch(url, init);
    const required = unpaid.headers.get('payment-required');
    if (unpaid.status !== 402 || required === null) return unpaid;
    const { resource, accepts } = JSON.parse(atob(required)) as PaymentRequired;
    for (const [scheme, sign] of Object.entries(SCHEMES)) {
      const accepted = accepts.find((offer) => offer.scheme === scheme && BigInt(offer.amount) <= MOST);
      if (accepted === undefined) continue;
      const payload = await sign(account, accepted, { now: Math.floor(Date.now() / 1000), nonce: randomNonce() });
      const headers = new Headers(init.headers);
      headers.set('payment-signature', btoa(JSON.stringify({ x402Version: 2, resource, accepted, payload })));
      return await fetch(url, { ...init, headers });
    }
    throw new Error('This page pays by x402 only, at most 0.05 a call.');
  };
}

function randomNonce(): Hex {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
