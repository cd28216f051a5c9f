/**
 * The contracts of the local network: what each stands in for, and where it lives.
 * On public networks none of this is deployed by us: the addresses belong to the real thing.
 */
import type { Address } from 'viem';

export { localBatchSettlement } from './generated/local-batch-settlement.ts';
export { localChannelReserve } from './generated/local-channel-reserve.ts';
export { localDepositCollector } from './generated/local-deposit-collector.ts';
export { localUsdc } from './generated/local-usdc.ts';
export { x402Permit2Proxies } from './generated/x402-permit2-proxies.ts';

/**
 * x402's clients know Base Sepolia and its USDC, and pay there without being told: the stand-in lives at the same address,
 * and takes what is signed for that chain. What is signed for it is good on the real Base Sepolia too: test money there
 * as well, of whoever takes a key of that network to this one.
 */
export const BASE_SEPOLIA_ID = 84532;
/** USDC's address on Base Sepolia. */
export const USDC_ADDRESS: Address = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';

/** The contract of x402's scheme `batch-settlement`, and what takes its deposits by EIP-3009: the same on every chain. */
export const BATCH_SETTLEMENT_ADDRESS: Address = '0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003';
export const DEPOSIT_COLLECTOR_ADDRESS: Address = '0x4020806089470a89826cB9fB1f4059150b550004';

/** Tempo's pathUSD, a precompile of every Tempo chain. https://docs.tempo.xyz/protocol/tip20/overview */
export const PATH_USD_ADDRESS: Address = '0x20c0000000000000000000000000000000000000';

/** Uniswap's Permit2; part of a Tempo chain's genesis. */
export const PERMIT2_ADDRESS: Address = '0x000000000022D473030F116dDEE9F6B43aC78BA3';

/** The deterministic CREATE2 deployer; part of a Tempo chain's genesis. */
export const CREATE2_DEPLOYER_ADDRESS: Address = '0x4e59b44847b379578588920cA78FbF26c0B4956C';
