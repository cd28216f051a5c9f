/** Whether the configured payment networks carry test money. Apart, because it is asked before their code is loaded. */
import type { Config } from '../../shared/config.ts';

export function usesTestMoney({ network, x402 }: Config['payments']): boolean {
  return network === 'local' || network === 'tempo-testnet' || x402.network === 'base-sepolia';
}
