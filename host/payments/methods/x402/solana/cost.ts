/** The most that a transaction of a payer may cost the host, which pays its fee, and what that is in USD. */
import { type Money, micro } from '../../../../shared/money.ts';

/** Of who pays the fee, and of the payer. */
export const MOST_SIGNATURES = 2;
export const MOST_COMPUTE_UNITS = 100_000;
/** Millionths of a lamport, for each compute unit. */
export const MOST_PRIORITY_FEE = 50_000;

const LAMPORTS_PER_SIGNATURE = 5_000;
export const MOST_LAMPORTS = MOST_SIGNATURES * LAMPORTS_PER_SIGNATURE + (MOST_COMPUTE_UNITS * MOST_PRIORITY_FEE) / 1e6;

/** @param coinUsd price of SOL. @returns what a settlement costs at most */
export function solanaCost(coinUsd: number): Money {
  return micro(BigInt(Math.ceil((MOST_LAMPORTS * coinUsd) / 1e3)));
}
