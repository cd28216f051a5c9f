/** What a wallet is told that the operator has blocked. */
import { Problem } from './problem.ts';

export function blockedWallet(wallet: string): Problem {
  return new Problem(
    'blocked',
    `The operator of this host has blocked the wallet ${wallet}. Nothing was changed or charged; ask the operator.`,
  );
}
