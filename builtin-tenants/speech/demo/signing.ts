/**
 * Signs x402 v2 payments: `upto` by Permit2 with a witness, `exact` by EIP-3009. No chain access is needed.
 * Wire facts: https://github.com/coinbase/x402/tree/main/specs/schemes, compared with @x402/evm in a test.
 */
import type { Hex } from 'viem';
import type { PrivateKeyAccount } from 'viem/accounts';

export interface Requirements {
  scheme: string;
  /** CAIP-2, such as `eip155:1337`. */
  network: string;
  asset: Hex;
  /** Atomic units. */
  amount: string;
  payTo: Hex;
  maxTimeoutSeconds: number;
  extra: { name: string; version: string; facilitatorAddress?: Hex };
}

/** What signing depends on beside the requirements. */
export interface Moment {
  /** Seconds since the epoch. */
  now: number;
  /** 32 random bytes. */
  nonce: Hex;
}

export const PERMIT2: Hex = '0x000000000022D473030F116dDEE9F6B43aC78BA3';
export const UPTO_PROXY: Hex = '0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002';

export const UPTO_TYPES = {
  PermitWitnessTransferFrom: [
    { name: 'permitted', type: 'TokenPermissions' },
    { name: 'spender', type: 'address' },
    { name: 'nonce', type: 'uint256' },
    { name: 'deadline', type: 'uint256' },
    { name: 'witness', type: 'Witness' },
  ],
  TokenPermissions: [
    { name: 'token', type: 'address' },
    { name: 'amount', type: 'uint256' },
  ],
  Witness: [
    { name: 'to', type: 'address' },
    { name: 'facilitator', type: 'address' },
    { name: 'validAfter', type: 'uint256' },
  ],
} as const;

export const EXACT_TYPES = {
  TransferWithAuthorization: [
    { name: 'from', type: 'address' },
    { name: 'to', type: 'address' },
    { name: 'value', type: 'uint256' },
    { name: 'validAfter', type: 'uint256' },
    { name: 'validBefore', type: 'uint256' },
    { name: 'nonce', type: 'bytes32' },
  ],
} as const;

export async function signUpto(
  account: PrivateKeyAccount,
  offer: Requirements,
  { now, nonce }: Moment,
): Promise<object> {
  const facilitator = offer.extra.facilitatorAddress;
  if (facilitator === undefined) throw new Error('The offer names no facilitator.');
  const deadline = now + offer.maxTimeoutSeconds;
  const permitted = { token: offer.asset, amount: offer.amount };
  const witness = { to: offer.payTo, facilitator, validAfter: '0' };
  const number = BigInt(nonce);
  const signature = await account.signTypedData({
    domain: { name: 'Permit2', chainId: chainOf(offer), verifyingContract: PERMIT2 },
    types: UPTO_TYPES,
    primaryType: 'PermitWitnessTransferFrom',
    message: {
      permitted: { token: offer.asset, amount: BigInt(offer.amount) },
      spender: UPTO_PROXY,
      nonce: number,
      deadline: BigInt(deadline),
      witness: { to: offer.payTo, facilitator, validAfter: 0n },
    },
  });
  const permit2Authorization = {
    from: account.address,
    permitted,
    spender: UPTO_PROXY,
    nonce: number.toString(),
    deadline: String(deadline),
    witness,
  };
  return { signature, permit2Authorization };
}

export async function signExact(
  account: PrivateKeyAccount,
  offer: Requirements,
  { now, nonce }: Moment,
): Promise<object> {
  const validBefore = now + offer.maxTimeoutSeconds;
  const signature = await account.signTypedData({
    domain: {
      name: offer.extra.name,
      version: offer.extra.version,
      chainId: chainOf(offer),
      verifyingContract: offer.asset,
    },
    types: EXACT_TYPES,
    primaryType: 'TransferWithAuthorization',
    message: {
      from: account.address,
      to: offer.payTo,
      value: BigInt(offer.amount),
      validAfter: 0n,
      validBefore: BigInt(validBefore),
      nonce,
    },
  });
  const authorization = {
    from: account.address,
    to: offer.payTo,
    value: offer.amount,
    validAfter: '0',
    validBefore: String(validBefore),
    nonce,
  };
  return { signature, authorization };
}

function chainOf({ network }: Requirements): number {
  return Number(network.split(':')[1]);
}
