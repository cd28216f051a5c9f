/** The most that a transaction of a payer may cost the host, which pays its fee: in lamports, in USD, and of what it has. */
import { type Money, micro } from '../../../../shared/money.ts';

/** Of who pays the fee, and of the payer. */
export const MOST_SIGNATURES = 2;
export const MOST_COMPUTE_UNITS = 100_000;
/** Millionths of a lamport, for each compute unit. */
export const MOST_PRIORITY_FEE = 50_000;

/** How many settlements a wallet should have coins for. */
export const LEAST_SETTLEMENTS = 100;

const LAMPORTS_PER_SIGNATURE = 5_000;
export const MOST_LAMPORTS = MOST_SIGNATURES * LAMPORTS_PER_SIGNATURE + (MOST_COMPUTE_UNITS * MOST_PRIORITY_FEE) / 1e6;

/** @param coinUsd price of SOL. @returns what a settlement costs at most */
export function solanaCost(coinUsd: number): Money {
  return micro(BigInt(Math.ceil((MOST_LAMPORTS * coinUsd) / 1e3)));
}

/**
 * @param lamports of who pays the fees
 * @param rent what an account keeps at least: a transaction that leaves less is not taken
 * @returns for how many settlements that is enough
 */
export function settlementsLeft(lamports: number, rent: number): number {
  return Math.max(0, Math.floor((lamports - rent) / MOST_LAMPORTS));
}
