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

/** @throws Problem payment_invalid when the wallet holds too little of the token, or the network does not answer */
export async function assertFunded({ client, chain, token, wallet, microUsd }: Asked): Promise<void> {
  let held: bigint;
  try {
    held = await readContract(client, { address: token, abi: erc20Abi, functionName: 'balanceOf', args: [wallet] });
  } catch (error) {
    throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause: error });
  }
  if (held >= microUsd) return;
  throw new Problem(
    'payment_invalid',
    `The wallet ${wallet} holds ${formatUsd(micro(held))} of the ${formatUsd(micro(microUsd))} USD needed, in token ${token} on chain ${chain.id} (${chain.name}). Send it the rest, or pay with another wallet.`,
  );
}
