/**
 * What the chain says of an x402 payment: whether its nonce is used, and by what. That it is used does not say that it
 * was paid: its payer may have spent it on somebody else, or taken it back, while the work was done.
 */
import { PERMIT2_ADDRESS, x402UptoPermit2ProxyABI, x402UptoPermit2ProxyAddress } from '@x402/evm';
import { decodeFunctionData, type Hex, parseAbi, parseAbiItem } from 'viem';
import type { PaymentRow } from '../../../registry/payments/schema.ts';
import type { Money } from '../../../shared/money.ts';
import type { X402Client } from '../../network/types.ts';
import { lower, type SettleResult } from '../../terms.ts';
import { searchBlocks } from '../chain/search-blocks.ts';
import { evmPayload, type X402Payload } from './credential.ts';

const TOKEN = parseAbi(['function authorizationState(address, bytes32) view returns (bool)']);
const PERMIT2 = parseAbi(['function nonceBitmap(address, uint256) view returns (uint256)']);
const USED = parseAbiItem('event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)');
const CANCELED = parseAbiItem('event AuthorizationCanceled(address indexed authorizer, bytes32 indexed nonce)');
const TRANSFER = parseAbiItem('event Transfer(address indexed from, address indexed to, uint256 value)');
const INVALIDATED = parseAbiItem('event UnorderedNonceInvalidation(address indexed owner, uint256 word, uint256 mask)');

type Authorization = Extract<X402Payload['payload'], { authorization: unknown }>['authorization'];
type Permit = Extract<X402Payload['payload'], { permit2Authorization: unknown }>['permit2Authorization'];

const CANCELLED: SettleResult = { status: 'failed', reason: 'the payer cancelled the authorization' };
const NOT_FOUND: SettleResult = { status: 'unknown', reason: 'the nonce is used, and by what was not found' };

export interface LookUpOptions {
  client: X402Client;
  token: Hex;
  /** Whether the chain was past the payment's end before it was asked. */
  expired: boolean;
}

/** @returns undefined: the nonce is not used */
export async function lookUp(
  options: LookUpOptions,
  presented: X402Payload,
  payment: PaymentRow,
  amount: Money,
): Promise<SettleResult | undefined> {
  const payload = evmPayload(presented);
  try {
    return 'authorization' in payload
      ? await ofAuthorization(options, payload.authorization, payment, amount)
      : await ofPermit(options, payload.permit2Authorization, payment, amount);
  } catch {
    return { status: 'unknown', reason: 'the network does not answer' };
  }
}

async function ofAuthorization(
  { client, token }: LookUpOptions,
  authorization: Authorization,
  payment: PaymentRow,
  amount: Money,
): Promise<SettleResult | undefined> {
  const [from, nonce] = [authorization.from as Hex, authorization.nonce as Hex];
  const functionName = 'authorizationState';
  const isUsed = await client.readContract({ address: token, abi: TOKEN, functionName, args: [from, nonce] });
  if (!isUsed) return undefined;
  const asked = { address: token, args: { authorizer: from, nonce } };
  const result = await searchBlocks(client, payment.createdAt, async (blocks): Promise<SettleResult | undefined> => {
    const [used] = await client.getLogs({ ...asked, event: USED, ...blocks });
    if (!used) {
      const [canceled] = await client.getLogs({ ...asked, event: CANCELED, ...blocks });
      return canceled && CANCELLED;
    }
    // USDC (FiatTokenV2) moves the money right after this event; the transaction may hold other transfers like it.
    const args = { from, to: payment.recipient as Hex };
    const transfers = await client.getLogs({ address: token, event: TRANSFER, args, blockHash: used.blockHash });
    const paid = transfers.some((log) => log.logIndex === used.logIndex + 1 && log.args.value === amount);
    return paid
      ? { status: 'settled', reference: used.transactionHash }
      : { status: 'failed', reason: 'the payer spent the authorization elsewhere' };
  });
  return result ?? NOT_FOUND;
}

async function ofPermit(
  { client, token, expired }: LookUpOptions,
  permit: Permit,
  payment: PaymentRow,
  amount: Money,
): Promise<SettleResult | undefined> {
  const from = permit.from as Hex;
  const nonce = BigInt(permit.nonce);
  const [word, bit] = [nonce >> 8n, 1n << (nonce & 255n)];
  const permit2 = PERMIT2_ADDRESS as Hex;
  const functionName = 'nonceBitmap';
  const bitmap = await client.readContract({ address: permit2, abi: PERMIT2, functionName, args: [from, word] });
  if ((bitmap & bit) === 0n) return undefined;
  const result = await searchBlocks(client, payment.createdAt, async (blocks): Promise<SettleResult | undefined> => {
    const args = { from, to: payment.recipient as Hex };
    for (const log of await client.getLogs({ address: token, event: TRANSFER, args, ...blocks })) {
      if (log.args.value !== amount) continue;
      const sent = await client.getTransaction({ hash: log.transactionHash });
      if (sent.to && lower(sent.to) === lower(x402UptoPermit2ProxyAddress) && nonceOf(sent.input) === nonce)
        return { status: 'settled', reference: log.transactionHash };
    }
    const asked = { address: permit2, event: INVALIDATED, args: { owner: from } };
    const taken = await client.getLogs({ ...asked, ...blocks });
    const isCancelled = taken.some((log) => log.args.word === word && ((log.args.mask ?? 0n) & bit) !== 0n);
    return isCancelled ? CANCELLED : undefined;
  });
  if (result) return result;
  // Spent elsewhere, which leaves no trace; or the node lags behind.
  return expired ? { status: 'failed', reason: 'the payer spent the permit elsewhere' } : NOT_FOUND;
}

/** The nonce of the permit that a call of x402's proxy settles. */
function nonceOf(input: Hex): bigint | undefined {
  const { args } = decodeFunctionData({ abi: x402UptoPermit2ProxyABI, data: input });
  for (const arg of args ?? []) if (typeof arg === 'object' && 'nonce' in arg) return arg.nonce;
  return undefined;
}
