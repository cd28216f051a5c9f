/**
 * A fetch that pays by x402 v2 with a key in the page. The stock client would do the same and is four times as large.
 */
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { PAYMENT_COOKIE } from '../../kit/payment-cookie.ts';
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
  return async (url, init) => {
    const unpaid = await fetch(url, init);
    const required = unpaid.headers.get('payment-required');
    if (unpaid.status !== 402 || required === null) return unpaid;
    const headers = new Headers(init.headers);
    headers.set('payment-signature', await signed(key, required));
    return await fetch(url, { ...init, headers });
  };
}

/**
 * A WebSocket whose handshake is paid. Browsers send no header with it, but a cookie of its path, which the host takes
 * for the header that it stands for (builtin-tenants/kit/payment-cookie.ts).
 * @throws Error as `payingFetch`, or when no socket was opened
 */
export function payingSocket(key: Hex): (url: string) => Promise<WebSocket> {
  return async (url) => {
    const unpaid = await fetch(url, { headers: { accept: 'application/json' } });
    const required = unpaid.headers.get('payment-required');
    if (unpaid.status !== 402 || required === null) throw new Error('Live transcription is not for sale here now.');
    const keep = keeper(new URL(url));
    keep(await signed(key, required), 60);
    try {
      const socket = new WebSocket(url.replace(/^http/, 'ws'));
      socket.binaryType = 'arraybuffer';
      await new Promise((resolve, reject) => {
        socket.addEventListener('open', resolve);
        socket.addEventListener('error', () =>
          reject(new Error('The service opened no live stream; nothing was paid.')),
        );
      });
      return socket;
    } finally {
      keep('', 0);
    }
  };
}

function keeper({ pathname, protocol }: URL): (payment: string, seconds: number) => void {
  const secure = protocol === 'https:' ? '; secure' : '';
  return (payment, seconds) => {
    // biome-ignore lint/suspicious/noDocumentCookie: the cookie store is for https alone
    document.cookie = `${PAYMENT_COOKIE}=${payment}; path=${pathname}; max-age=${seconds}; samesite=strict${secure}`;
  };
}

/** @param required the header of a 402 @returns the header that pays it */
async function signed(key: Hex, required: string): Promise<string> {
  const { resource, accepts } = JSON.parse(atob(required)) as PaymentRequired;
  for (const [scheme, sign] of Object.entries(SCHEMES)) {
    const accepted = accepts.find((offer) => offer.scheme === scheme && BigInt(offer.amount) <= MOST);
    if (accepted === undefined) continue;
    const now = Math.floor(Date.now() / 1000);
    const payload = await sign(privateKeyToAccount(key), accepted, { now, nonce: randomNonce() });
    return btoa(JSON.stringify({ x402Version: 2, resource, accepted, payload }));
  }
  throw new Error('This page pays by x402 only, at most 0.05 a call.');
}

function randomNonce(): Hex {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
