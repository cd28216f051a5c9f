/** The contracts of `batch-settlement`, which have the same addresses on every chain that has them. */
import { BATCH_SETTLEMENT_ADDRESS, ERC3009_DEPOSIT_COLLECTOR_ADDRESS } from '@x402/evm';
import type { Hex } from 'viem';
import type { X402Network } from '../../../network/types.ts';

/** @returns those that a chain has not; undefined where it does not answer */
export async function missingContracts({ getClient }: Pick<X402Network, 'getClient'>): Promise<Hex[] | undefined> {
  const addresses = [BATCH_SETTLEMENT_ADDRESS, ERC3009_DEPOSIT_COLLECTOR_ADDRESS] as Hex[];
  const client = getClient();
  try {
    const codes = await Promise.all(addresses.map((address) => client.getCode({ address })));
    return addresses.filter((_, index) => codes[index] === undefined || codes[index] === '0x');
  } catch {
    return undefined;
  }
}
