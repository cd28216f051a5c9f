// Wallets in this browser (EIP-1193, found by EIP-6963): signing in, and paying by x402 `exact` (EIP-3009).
import { ApiError, session } from './api.js';

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

function explained(error) {
  if (error?.code === 4001) return new Error('You declined in the wallet. Nothing was signed.');
  if (error?.code === -32002)
    return new Error('Your wallet has a request open already: answer it there, then try again.');
  if (error instanceof Error) return error;
  return new Error(`The wallet refused: ${String(error?.message ?? error).slice(0, 300)}`);
}

async function request(provider, method, params) {
  try {
    return await provider.request({ method, ...(params ? { params } : {}) });
  } catch (error) {
    throw explained(error);
  }
}

export async function account(provider) {
  const [address] = await request(provider, 'eth_requestAccounts');
  if (!/^0x[0-9a-f]{40}$/i.test(address ?? '')) throw new Error('Your wallet gave no account.');
  return address;
}

export async function signText(provider, address, text) {
  const hex = `0x${[...new TextEncoder().encode(text)].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`;
  return request(provider, 'personal_sign', [hex, address]);
}

async function useChain(provider, chain) {
  const id = Number(chain.network.split(':')[1]);
  const isThere = async () => Number(await request(provider, 'eth_chainId')) === id;
  if (await isThere()) return;
  const chainId = `0x${id.toString(16)}`;
  try {
    await provider.request({ method: 'wallet_switchEthereumChain', params: [{ chainId }] });
  } catch (error) {
    if (error.code === 4001) throw explained(error);
    const { name: chainName, nativeCurrency, rpcUrl } = chain;
    await request(provider, 'wallet_addEthereumChain', [{ chainId, chainName, nativeCurrency, rpcUrls: [rpcUrl] }]);
  }
  if (!(await isThere()))
    throw new Error(`Your wallet is on another chain. Switch it to ${chain.name}, then try again.`);
}

export function amount(atomic, name) {
  const digits = String(atomic).padStart(7, '0');
  return `${digits.slice(0, -6)}.${digits.slice(-6).replace(/0{1,4}$/, '')} ${name}`;
}

async function assertFunded(provider, from, offer) {
  const data = `0x70a08231${from.slice(2).toLowerCase().padStart(64, '0')}`;
  const call = { method: 'eth_call', params: [{ to: offer.asset, data }, 'latest'] };
  // A wallet that cannot say is no reason not to try.
  const balance = await provider.request(call).catch(() => undefined);
  if (typeof balance !== 'string' || !/^0x[0-9a-f]{1,64}$/i.test(balance)) return;
  if (BigInt(balance) < BigInt(offer.amount))
    throw new Error(
      `${from} has ${amount(BigInt(balance), offer.extra.name)}; this costs ${amount(offer.amount, offer.extra.name)}. Nothing was signed.`,
    );
}

const fields = (...texts) => texts.map((text) => ({ type: text.split(' ')[0], name: text.split(' ')[1] }));

async function sign(provider, from, offer, nowSeconds) {
  const random = crypto.getRandomValues(new Uint8Array(32));
  const message = {
    from,
    to: offer.payTo,
    value: offer.amount,
    validAfter: '0',
    validBefore: String(nowSeconds + offer.maxTimeoutSeconds),
    nonce: `0x${[...random].map((byte) => byte.toString(16).padStart(2, '0')).join('')}`,
  };
  const typed = {
    types: {
      EIP712Domain: fields('string name', 'string version', 'uint256 chainId', 'address verifyingContract'),
      TransferWithAuthorization: fields(
        'address from',
        'address to',
        'uint256 value',
        'uint256 validAfter',
        'uint256 validBefore',
        'bytes32 nonce',
      ),
    },
    domain: {
      name: offer.extra.name,
      version: offer.extra.version,
      chainId: Number(offer.network.split(':')[1]),
      verifyingContract: offer.asset,
    },
    primaryType: 'TransferWithAuthorization',
    message,
  };
  const signature = await request(provider, 'eth_signTypedData_v4', [from, JSON.stringify(typed)]);
  return { signature, authorization: message };
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
  await useChain(provider, chain);
  await assertFunded(provider, from, offer);
  tell(`Confirm in your wallet: ${amount(offer.amount, offer.extra.name)} to ${offer.payTo}.`);
  const hostSeconds = Math.floor((Date.parse(unpaid.headers.get('date') ?? '') || Date.now()) / 1000);
  const payload = await sign(provider, from, offer, hostSeconds);
  tell('Signed. The host is at work …');
  const payment = {
    'payment-signature': encoded({ x402Version: 2, resource: { url: resource.url }, accepted: offer, payload }),
  };
  // Sent again when the answer was lost: it pays once.
  const paid = await call(payment).catch(() => call(payment));
  return await answerOf(paid);
}
