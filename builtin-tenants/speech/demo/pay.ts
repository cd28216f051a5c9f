/**
 * A fetch that pays one kind of offer: x402 v2 `exact` by EIP-3009, which needs a signature and no chain access.
 * Wire facts: https://github.com/coinbase/x402/blob/main/specs/schemes/exact/scheme_exact_evm.md
 */
import type { Hex } from 'viem';
import { type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';

interface Requirements {
  scheme: string;
  /** CAIP-2, such as `eip155:1337`. */
  network: string;
  asset: Hex;
  /** Atomic units. */
  amount: string;
  payTo: Hex;
  maxTimeoutSeconds: number;
  extra: { name: string; version: string };
}

interface PaymentRequired {
  resource?: unknown;
  accepts: Requirements[];
}

/** The most that one click may cost, atomic units of a token with six decimals. */
const MOST = 50_000n;

/** @param key private key of the wallet that pays @throws Error when the answer asks for what this wallet does not pay */
export function payingFetch(key: Hex): (url: string, init: RequestInit) => Promise<Response> {
  const account = privateKeyToAccount(key);
  return async (url, init) => {
    const unpaid = await fetch(url, init);
    if (unpaid.status !== 402) return unpaid;
    const required = unpaid.headers.get('payment-required');
    if (required === null) return unpaid;
    const { resource, accepts } = JSON.parse(atob(required)) as PaymentRequired;
    const accepted = accepts.find(({ scheme, amount }) => scheme === 'exact' && BigInt(amount) <= MOST);
    if (accepted === undefined) throw new Error('This page pays by x402 exact only, at most 0.05 a call.');
    const payload = await authorize(account, accepted);
    const headers = new Headers(init.headers);
    headers.set('payment-signature', btoa(JSON.stringify({ x402Version: 2, resource, accepted, payload })));
    return await fetch(url, { ...init, headers });
  };
}

async function authorize(
  account: PrivateKeyAccount,
  { asset, network, amount, payTo, maxTimeoutSeconds, extra }: Requirements,
) {
  const authorization = {
    from: account.address,
    to: payTo,
    value: amount,
    validAfter: '0',
    validBefore: String(Math.floor(Date.now() / 1000) + maxTimeoutSeconds),
    nonce: randomNonce(),
  };
  const signature = await account.signTypedData({
    domain: {
      name: extra.name,
      version: extra.version,
      chainId: Number(network.split(':')[1]),
      verifyingContract: asset,
    },
    types: {
      TransferWithAuthorization: [
        { name: 'from', type: 'address' },
        { name: 'to', type: 'address' },
        { name: 'value', type: 'uint256' },
        { name: 'validAfter', type: 'uint256' },
        { name: 'validBefore', type: 'uint256' },
        { name: 'nonce', type: 'bytes32' },
      ],
    },
    primaryType: 'TransferWithAuthorization',
    message: {
      ...authorization,
      value: BigInt(amount),
      validAfter: 0n,
      validBefore: BigInt(authorization.validBefore),
    },
  });
  return { signature, authorization };
}

function randomNonce(): Hex {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
