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

type Holding = Pick<Asked, 'client' | 'token' | 'wallet'>;

/** @throws Problem payment_invalid when the network does not answer */
export function heldBy({ client, token, wallet }: Holding): Promise<bigint> {
  return readContract(client, { address: token, abi: erc20Abi, functionName: 'balanceOf', args: [wallet] }).catch(
    silent,
  );
}

/** What a contract may spend of it. @throws Problem payment_invalid when the network does not answer */
export function allowedTo(spender: Address, { client, token, wallet }: Holding): Promise<bigint> {
  const args = [wallet, spender] as const;
  return readContract(client, { address: token, abi: erc20Abi, functionName: 'allowance', args }).catch(silent);
}

function silent(cause: unknown): never {
  throw new Problem('payment_invalid', 'The network does not answer; try again in a moment.', { cause });
}
