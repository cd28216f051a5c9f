/**
 * What the simulation of a transaction does not look at: that it ends, that its turn has come, and that the chain takes
 * so much gas. One that never ends and never comes to its turn would be waited for without end, and a handler would have
 * worked for it.
 */
import type { Client, Hex } from 'viem';
import { getTransactionCount } from 'viem/actions';
import { Actions } from 'viem/tempo';
import { Problem } from '../../../shared/problem.ts';

/** Of one transaction, on Tempo since T1. */
const MOST_GAS = 30_000_000n;
/** Its transactions come in any order, and within half a minute: the chain sees to that. */
const EXPIRING = (1n << 256n) - 1n;

export interface SignedTransaction {
  /** Recovered from the signature. */
  from?: Hex;
  gas?: bigint;
  nonce?: number | bigint;
  nonceKey?: bigint;
  /** Seconds since 1970. */
  validBefore?: number;
}

/**
 * @param latest until when it may be valid, ms since the Unix epoch
 * @throws Problem `payment_invalid`
 */
export async function assertSendable(client: Client, transaction: SignedTransaction, latest: number): Promise<void> {
  const { from, gas = 0n, nonce = 0, nonceKey = 0n, validBefore } = transaction;
  if (validBefore === undefined || validBefore * 1000 > latest)
    throw refused('It must end with the challenge (validBefore), at the latest');
  if (gas > MOST_GAS) throw refused(`The network takes at most ${MOST_GAS} gas`);
  if (nonceKey === EXPIRING || from === undefined) return;
  const next = await nextNonce(client, from, nonceKey).catch((error) => {
    throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause: error });
  });
  if (BigInt(nonce) !== next) throw refused(`The next nonce of the wallet is ${next}`);
}

async function nextNonce(client: Client, account: Hex, nonceKey: bigint): Promise<bigint> {
  return nonceKey === 0n
    ? BigInt(await getTransactionCount(client, { address: account, blockTag: 'latest' }))
    : Actions.nonce.getNonce(client as never, { account, nonceKey });
}

function refused(detail: string): Problem {
  return new Problem('payment_invalid', `${detail}; sign a new transaction. Nothing was charged.`);
}
