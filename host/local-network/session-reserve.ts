/**
 * Makes the stand-in contract behave like Tempo's session precompile (TIP-1034): says which transactions open or top up
 * a channel, what hash the opening one has, and gives the reserve the allowance that the precompile does not need.
 */

import { TxEnvelopeTempo } from 'ox/tempo';
import { type Address, decodeFunctionData, encodeFunctionData, erc20Abi, type Hex, keccak256, maxUint256 } from 'viem';
import { Addresses, Transaction } from 'viem/tempo';
import { concatHex } from 'viem/utils';
import { localChannelReserve } from './contracts/index.ts';
import type { JsonRpcSocket } from './json-rpc-socket.ts';
import { leftPool } from './pool.ts';

export const RESERVE_ADDRESS = Addresses.tip20ChannelReserve as Address;

/** Storage slot of the contract's `openingHash`. */
const OPENING_HASH_SLOT = `0x${'0'.repeat(64)}`;

export interface ReserveDeposit {
  payer: Address;
  token: Address;
}

/** What a signed transaction does with the reserve; undefined when it does not touch it. */
export interface ReserveCall {
  /** TIP-1034's `expiringNonceHash` of this transaction. */
  openingHash: Hex;
  deposit: ReserveDeposit | undefined;
}

/** @param raw a signed transaction as it was sent to us: anything at all */
export function reserveCallOf(raw: string): ReserveCall | undefined {
  if (!/^0x7[68][0-9a-fA-F]*$/.test(raw)) return undefined;
  // Whoever is called stands in it as it is (RLP); to take it apart recovers its signer, which takes milliseconds.
  if (!raw.toLowerCase().includes(RESERVE_ADDRESS.slice(2).toLowerCase())) return undefined;
  try {
    const transaction = Transaction.deserialize(
      raw as Parameters<typeof Transaction.deserialize>[0],
    ) as TempoTransaction;
    const call = transaction.calls?.find(({ to }) => isReserve(to));
    const payer = transaction.from;
    if (!call || payer === undefined) return undefined;
    // A sponsor signs after the payer did, so the hash leaves its signature out.
    const body =
      transaction.feePayerSignature === undefined ? transaction : { ...transaction, feePayerSignature: null };
    const signing = TxEnvelopeTempo.encodeForSigning(body as unknown as TxEnvelopeTempo.TxEnvelopeTempo);
    return { openingHash: keccak256(concatHex([signing, payer])), deposit: depositOf(payer, call.data) };
  } catch {
    // Not a transaction at all: the chain refuses it with a better message than ours.
    return undefined;
  }
}

/** The deposit that an unsigned call (`eth_estimateGas`, `eth_fillTransaction`, ...) would make. */
export function simulatedDeposit(request: unknown): { touches: boolean; deposit: ReserveDeposit | undefined } {
  const { from, calls, to, data, input } = (request ?? {}) as Simulated;
  const call = (Array.isArray(calls) ? calls : [{ to, data: data ?? input }]).find((one) => isReserve(one?.to));
  if (!call) return { touches: false, deposit: undefined };
  return {
    touches: true,
    deposit: typeof from === 'string' ? depositOf(from as Address, call.data ?? call.input) : undefined,
  };
}

/** Lets the reserve pull the payer's tokens, as the precompile may. Leaves the payer's nonce as it was. */
export async function allowDeposit(chain: JsonRpcSocket, { payer, token }: ReserveDeposit): Promise<void> {
  const allowance = await chain.request<Hex>('eth_call', [
    {
      to: token,
      data: encodeFunctionData({ abi: erc20Abi, functionName: 'allowance', args: [payer, RESERVE_ADDRESS] }),
    },
    'latest',
  ]);
  if (BigInt(allowance) > maxUint256 / 2n) return;
  const nonce = await chain.request<Hex>('eth_getTransactionCount', [payer, 'latest']);
  await chain.request('anvil_impersonateAccount', [payer]);
  try {
    const data = encodeFunctionData({ abi: erc20Abi, functionName: 'approve', args: [RESERVE_ADDRESS, maxUint256] });
    const hash = await chain.request<Hex>('eth_sendTransaction', [
      { from: payer, to: token, data, gas: '0x4c4b40', gasPrice: '0x0' },
    ]);
    await leftPool(chain, hash);
  } finally {
    await chain.request('anvil_stopImpersonatingAccount', [payer]);
  }
  await chain.request('anvil_setNonce', [payer, nonce]);
}

/** Tells the contract the hash of the transaction that comes next. */
export async function announceOpening(chain: JsonRpcSocket, openingHash: Hex): Promise<void> {
  await chain.request('anvil_setStorageAt', [RESERVE_ADDRESS, OPENING_HASH_SLOT, openingHash]);
}

interface TempoTransaction {
  from?: Address;
  calls?: { to?: Address; data?: Hex }[];
  feePayerSignature?: unknown;
}

interface Simulated {
  from?: unknown;
  to?: unknown;
  data?: unknown;
  input?: unknown;
  calls?: ({ to?: unknown; data?: unknown; input?: unknown } | null)[];
}

function isReserve(to: unknown): boolean {
  return typeof to === 'string' && to.toLowerCase() === RESERVE_ADDRESS.toLowerCase();
}

function depositOf(payer: Address, data: unknown): ReserveDeposit | undefined {
  if (typeof data !== 'string') return undefined;
  try {
    const call = decodeFunctionData({ abi: localChannelReserve.abi, data: data as Hex });
    if (call.functionName === 'open') return { payer, token: call.args[2] };
    if (call.functionName === 'topUp') return { payer, token: call.args[0].token };
  } catch {
    // Unknown calls revert in the contract.
  }
  return undefined;
}
