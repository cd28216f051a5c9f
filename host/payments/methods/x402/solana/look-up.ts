/** What Solana says of a transaction: whether it happened, and whether it never will. */
import { setTimeout as delay } from 'node:timers/promises';
import { Problem } from '../../../../shared/problem.ts';
import type { SolanaNetwork } from '../../../network/types.ts';
import type { SettleResult } from '../../../terms.ts';

type Ask = SolanaNetwork['ask'];

/** Clients poll as often; a slot takes 400 ms. */
export const POLL_MS = 250;
const CONFIRM_MS = 20_000;
/** A transaction lives for about a minute: nodes that lag behind may take an expired one for younger than it is. */
export const LONGEST_LIFE_MS = 180_000;

interface Status {
  err: unknown;
  confirmationStatus: 'processed' | 'confirmed' | 'finalized' | null;
}

export const SILENT: SettleResult = { status: 'unknown', reason: 'the network does not answer' };

/** @returns undefined: the node does not know it */
export async function outcome(ask: Ask, signature: string): Promise<SettleResult | undefined> {
  let status: Status | null | undefined;
  try {
    const how = { searchTransactionHistory: true };
    const { value } = await ask<{ value: (Status | null)[] }>('getSignatureStatuses', [[signature], how]);
    [status] = value;
  } catch {
    return SILENT;
  }
  if (!status) return undefined;
  if (status.confirmationStatus !== 'confirmed' && status.confirmationStatus !== 'finalized')
    return { status: 'unknown', reason: 'the network has not confirmed it yet' };
  return status.err === null
    ? { status: 'settled', reference: signature }
    : { status: 'failed', reason: 'the transaction failed on the network' };
}

/** Waits for what has been sent. */
export async function confirmed(ask: Ask, signature: string): Promise<SettleResult> {
  const end = performance.now() + CONFIRM_MS;
  for (;;) {
    const found = await outcome(ask, signature);
    if (found && found.status !== 'unknown') return found;
    if (performance.now() > end) return { status: 'unknown', reason: 'the network did not confirm in time' };
    await delay(POLL_MS);
  }
}

/**
 * Whether a transaction can happen no more, and would be found if it had: the node knows its block no longer, and has
 * kept what happened since the payment began.
 */
export async function isOver(ask: Ask, blockhash: string, since: number): Promise<boolean> {
  if (Date.now() < since + LONGEST_LIFE_MS) return false;
  try {
    const how = { commitment: 'finalized' };
    const { value: isValid } = await ask<{ value: boolean }>('isBlockhashValid', [blockhash, how]);
    if (isValid) return false;
    const first = await ask<number>('getFirstAvailableBlock', []);
    const seconds = await ask<number | null>('getBlockTime', [first]);
    return seconds !== null && seconds * 1000 < since;
  } catch {
    return false;
  }
}

/** What an account of the token holds. @throws Problem `payment_invalid` where the node does not answer */
export async function heldIn(ask: Ask, account: string): Promise<bigint> {
  try {
    const how = { commitment: 'confirmed' };
    const { value } = await ask<{ value: { amount: string } }>('getTokenAccountBalance', [account, how]);
    return BigInt(value.amount);
  } catch (cause) {
    throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause });
  }
}
