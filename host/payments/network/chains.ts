/**
 * The chains that payments happen on, as viem knows them, with their dollar tokens. Also used by the command line.
 * Sources: mppx 0.11 tempo/internal/defaults; https://developers.circle.com/stablecoins/usdc-contract-addresses
 */
import { type Chain, defineChain } from 'viem';
import { base, baseSepolia, tempo, tempoLocalnet, tempoModerato } from 'viem/chains';
import type { WalletChain } from './types.ts';

export const TEMPO_NETWORKS = {
  tempo: { chain: tempo as unknown as Chain, currency: '0x20C000000000000000000000b9537d11c60E8b50' },
  'tempo-testnet': { chain: tempoModerato as unknown as Chain, currency: '0x20c0000000000000000000000000000000000000' },
} as const;

/** `name` and `version` go into what payers sign; they are read from the token, and these stand in while it is silent. */
export const X402_NETWORKS = {
  base: {
    chain: base as unknown as Chain,
    token: '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913',
    name: 'USD Coin',
    version: '2',
  },
  'base-sepolia': {
    chain: baseSepolia as unknown as Chain,
    token: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    name: 'USDC',
    version: '2',
  },
} as const;

/** The embedded chain as Tempo's clients see it. */
export function localTempoChain(chainId: number, rpcUrl: string): Chain {
  return { ...tempoLocalnet, id: chainId, name: 'Turnpike local', rpcUrls: { default: { http: [rpcUrl] } } };
}

/** The embedded chain as ordinary EVM clients see it. */
export function localEvmChain(chainId: number, rpcUrl: string): Chain {
  return defineChain({
    id: chainId,
    name: 'Turnpike local',
    nativeCurrency: { name: 'USD', symbol: 'USD', decimals: 18 },
    rpcUrls: { default: { http: [rpcUrl] } },
    testnet: true,
  });
}

/** What a wallet is told of a chain that it does not know. */
export function walletChain({ name, nativeCurrency, rpcUrls }: Chain): WalletChain {
  return { name, nativeCurrency, rpcUrl: rpcUrls.default.http[0] ?? '' };
}

/** A chain under another RPC URL; empty: its public one. */
export function withRpc(chain: Chain, rpcUrl: string): Chain {
  return rpcUrl === '' ? chain : { ...chain, rpcUrls: { default: { http: [rpcUrl] } } };
}
