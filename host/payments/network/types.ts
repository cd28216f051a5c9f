/**
 * What the rest of the host knows of payment networks: one shape for the embedded chain, Tempo and Base.
 * The rails (MPP, x402) are built from it; nothing outside this folder starts a chain or reads a key file.
 */
import type { Account, Address, Chain, Client, PrivateKeyAccount, PublicActions, Transport, WalletActions } from 'viem';
import type { TestWallet } from '../../local-network/index.ts';

export type { TestWallet };

/** Keys that the host signs with. Kept in `<data>/network-keys.json`, mode 0600, never printed. */
export interface HostAccounts {
  /** Sends x402 settlements. Carries viem's nonce manager: concurrent settlements through one client are safe. */
  facilitator: PrivateKeyAccount;
  /** Settles and closes MPP sessions: the `operator` (or payee) of channels. */
  settler: PrivateKeyAccount;
  /** Pays Tempo fees for others, where sponsoring is on. */
  feePayer: PrivateKeyAccount;
  /** Receives deploys and renewals on the local network; elsewhere the recipient is configured and this is unused. */
  operator: PrivateKeyAccount;
}

/** The Tempo side: TIP-20 transfers, zero-amount proofs, sessions. */
export interface MppNetwork {
  chain: Chain;
  rpcUrl: string;
  /** TIP-20 token that prices are in. */
  currency: Address;
  /** Decimals of `currency`. */
  decimals: number;
  /** Wallet that receives deploys and renewals, checksummed. */
  recipient: Address;
  /** Signatures of vouchers that the channel escrow takes: the local stand-in knows ECDSA alone. */
  voucherSignatures: 'ecdsa' | 'primitive';
  /** A client for mppx's `getClient`; pass the account that signs, or none for reading. */
  getClient(account?: Account): Client<Transport, Chain, Account | undefined>;
}

export type X402Client = Client<Transport, Chain, Account | undefined> &
  PublicActions<Transport, Chain, Account | undefined> &
  WalletActions<Chain, Account | undefined>;

/** A chain as EIP-3085 adds it to a wallet. */
export interface WalletChain {
  name: string;
  nativeCurrency: { name: string; symbol: string; decimals: number };
  rpcUrl: string;
}

/** The x402 side: EIP-3009 transfers and Permit2. */
export interface X402Network {
  /** The network that payers sign for. On the local network that is Base Sepolia, which their clients know. */
  network: `eip155:${number}`;
  /** The chain that payments are on. */
  chain: Chain;
  rpcUrl: string;
  /** The network that payers sign for, as a wallet is told of it: anybody may see it, and the operator's own RPC URL may hold a key. */
  walletChain: WalletChain;
  token: Address;
  /** EIP-712 name and version of the token, read from the token. */
  name: string;
  version: string;
  decimals: number;
  /** Wallet that receives deploys and renewals, checksummed. */
  recipient: Address;
  /** A viem client with public and wallet actions, such as x402's facilitator signer needs. */
  getClient(account?: Account): X402Client;
}

/** Solana, where payments are transactions that payers sign and the host pays the fee of. */
export interface SolanaNetwork {
  /** `solana`, or `solana-devnet`. */
  name: string;
  /** CAIP-2. */
  network: `solana:${string}`;
  /** Mint of USDC. */
  token: string;
  /** Wallet that receives for routes that pay the operator. */
  recipient: string;
  /** Addresses of the operator on other networks, in lower case: routes that pay them are the operator's. */
  operators: readonly string[];
  /** Address that pays the fees. */
  feePayer: string;
  /** Signs as who pays the fee. */
  sign(message: Uint8Array): Promise<Uint8Array>;
  /** Calls the node. @throws Error with the node's `code`, or without one where it does not answer */
  ask<T>(method: string, params: readonly unknown[]): Promise<T>;
  healthy(): Promise<NetworkHealth>;
}

export interface NetworkHealth {
  ok: boolean;
  /** One line for `/healthz` and `turnpike doctor`; never holds keys. */
  detail: string;
}

export interface Network {
  name: 'local' | 'tempo' | 'tempo-testnet' | 'none';
  /** True when nothing paid here is worth anything: say so wherever a price is shown. */
  testMoney: boolean;
  /** The first ones, which pages and examples name. */
  mpp?: MppNetwork;
  x402?: X402Network;
  /** Further ones: each has its own token, recipient, and books. */
  also?: { mpp: readonly MppNetwork[]; x402: readonly X402Network[] };
  /** At most one. */
  solana?: readonly SolanaNetwork[];
  hostAccounts: HostAccounts;
  /** Funded wallets of the local network; absent elsewhere. */
  wallets?: TestWallet[];
  /** Asks the chains for their id; answers within about two seconds. */
  healthy(): Promise<NetworkHealth>;
  /** Saves and stops the embedded chain; nothing to do elsewhere. Idempotent. */
  close(): Promise<void>;
}

/** All networks of MPP, in the order in which they are offered. */
export function mppNetworks({ mpp, also }: Pick<Network, 'mpp' | 'also'>): MppNetwork[] {
  return [...(mpp ? [mpp] : []), ...(also?.mpp ?? [])];
}

/** All networks of x402, in the order in which they are offered. */
export function x402Networks({ x402, also }: Pick<Network, 'x402' | 'also'>): X402Network[] {
  return [...(x402 ? [x402] : []), ...(also?.x402 ?? [])];
}
