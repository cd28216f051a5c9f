// Wallets in this browser (EIP-1193, found by EIP-6963): signing in, and paying by x402 `exact` (EIP-3009).
import { ApiError, session } from './api.js';
import { account, amount, assertFunded, request, signTransfer, useChain } from './x402-exact.js';

export { account } from './x402-exact.js';

const found = new Map();
const listeners = new Set();
let chosen;

addEventListener('eip6963:announceProvider', ({ detail }) => {
  if (typeof detail?.provider?.request !== 'function' || found.size >= 12) return;
  found.set(detail.provider, String(detail.info?.name ?? 'your wallet').slice(0, 40));
  for (const listener of listeners) listener();
});

dispatchEvent(new Event('eip6963:requestProvider'));

/** Calls back with `[{name, provider}]`, now and when more announce themselves. @returns ends that */
export function watchWallets(callback) {
  const tell = () => callback([...found].map(([provider, name]) => ({ name, provider })));
  listeners.add(tell);
  dispatchEvent(new Event('eip6963:requestProvider'));
  // Older wallets do not announce themselves.
  const timer = setTimeout(() => {
    if (found.size === 0 && typeof window.ethereum?.request === 'function') found.set(window.ethereum, 'your wallet');
    tell();
  }, 300);
  return () => {
    clearTimeout(timer);
    listeners.delete(tell);
  };
}

export function chooseWallet(provider) {
  chosen = provider;
}

/** The one that was chosen, or the one with the account that is signed in, without asking for it. */
async function anyWallet() {
  if (chosen) return chosen;
  const all = [...found.keys()];
  if (all.length === 0 && typeof window.ethereum?.request === 'function') all.push(window.ethereum);
  if (all.length === 0)
    throw new Error('No wallet was found in this browser. Install one, or use the turnpike command.');
  for (const provider of all) {
    const accounts = await provider.request({ method: 'eth_accounts' }).catch(() => []);
    if (
      Array.isArray(accounts) &&
      accounts.some((one) => String(one).toLowerCase() === session?.address?.toLowerCase())
    )
      return provider;
  }
  return all[0];
}

export async function signText(provider, address, text) {
  const hex = `0x${[...new TextEncoder().encode(text)].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
  return request(provider, 'personal_sign', [hex, address]);
}

const encoded = (value) => btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value))));
const decoded = (text) => JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text), (one) => one.charCodeAt(0))));

/**
 * Calls what costs money, and pays for it. @param body JSON text @param most USD that the page has named
 * @param tell what is going on, for people
 */
export async function pay(path, body, most, chain, tell) {
  const headers = { accept: 'application/json', 'content-type': 'application/json' };
  const call = (more) =>
    fetch(path, { method: 'POST', body, credentials: 'omit', redirect: 'error', headers: { ...headers, ...more } });
  const answerOf = async (response) => {
    const document = await response.json().catch(() => ({}));
    if (!response.ok) throw new ApiError(response.status, document);
    return document;
  };
  const unpaid = await call({});
  if (unpaid.status !== 402) return await answerOf(unpaid);
  const required = unpaid.headers.get('payment-required');
  const { resource, accepts = [] } = required ? decoded(required) : {};
  const offer = accepts.find(
    ({ scheme, network, extra }) =>
      scheme === 'exact' && network === chain?.network && extra?.assetTransferMethod !== 'permit2',
  );
  if (!offer)
    throw new Error('This host takes no payment that a wallet in a browser can sign. Use the turnpike command.');
  if (BigInt(offer.amount) > BigInt(Math.round(Number(most) * 1e6)))
    throw new Error(
      `The price is ${amount(offer.amount, offer.extra.name)} now, not ${most} USD. Load this page again.`,
    );
  const provider = await anyWallet();
  tell('Choose your account in the wallet …');
  const from = await account(provider);
  if (session?.address && from.toLowerCase() !== session.address.toLowerCase())
    throw new Error(
      `Your wallet is at ${from}, and you are signed in as ${session.address}. Choose that account in the wallet.`,
    );
  await useChain(provider, chain, tell);
  await assertFunded(provider, from, offer);
  tell(`Confirm in your wallet: ${amount(offer.amount, offer.extra.name)} to ${offer.payTo}.`);
  const hostSeconds = Math.floor((Date.parse(unpaid.headers.get('date') ?? '') || Date.now()) / 1000);
  const payload = await signTransfer(provider, from, offer, hostSeconds);
  tell('Signed. The host is at work …');
  const payment = {
    'payment-signature': encoded({ x402Version: 2, resource: { url: resource.url }, accepted: offer, payload }),
  };
  // Sent again when the answer was lost: it pays once.
  const paid = await call(payment).catch(() => call(payment));
  return await answerOf(paid);
}
