/** What a payer is told whose wallet holds too little. */
import { type Address, erc20Abi } from 'viem';
import { readContract } from 'viem/actions';
import { formatUsd, micro } from '../../../shared/money.ts';
import { Problem } from '../../../shared/problem.ts';

export interface Asked {
  client: Parameters<typeof readContract>[0];
  chain: { id: number; name: string };
  /** Of six decimals: its unit is the micro-USD. */
  token: Address;
  wallet: Address;
  microUsd: bigint;
}

/**
 * @returns what the wallet holds
 * @throws Problem payment_invalid when that is too little of the token, or the network does not answer
 */
export async function assertFunded({ client, chain, token, wallet, microUsd }: Asked): Promise<bigint> {
  const held = await heldBy({ client, token, wallet });
  if (held >= microUsd) return held;
  throw new Problem(
    'payment_invalid',
    `The wallet ${wallet} holds ${formatUsd(micro(held))} of the ${formatUsd(micro(microUsd))} USD needed, in token ${token} on chain ${chain.id} (${chain.name}). Send it the rest, or pay with another wallet.`,
  );
}

/** @throws Problem payment_invalid when the network does not answer */
export async function heldBy({ client, token, wallet }: Pick<Asked, 'client' | 'token' | 'wallet'>): Promise<bigint> {
  try {
    return await readContract(client, { address: token, abi: erc20Abi, functionName: 'balanceOf', args: [wallet] });
  } catch (error) {
    throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause: error });
  }
}
