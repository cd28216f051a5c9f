/**
 * viem clients for the chains of a network. Timeouts are short and polling is quick where the chain is our own.
 */
import {
  type Account,
  type Chain,
  type Client,
  createClient,
  publicActions,
  type Transport,
  walletActions,
} from 'viem';
import { rpcTransport } from './rpc-transport.ts';
import type { X402Client } from './types.ts';
import { watchedBlocks } from './watched-blocks.ts';

const TIMEOUT_MS = 10_000;
const RETRIES = 3;
const LOCAL_POLLING_MS = 20;
const PUBLIC_POLLING_MS = 500;

/** A client with Tempo's chain settings, as mppx's `getClient` wants it. */
export function tempoClient(chain: Chain, account?: Account): Client<Transport, Chain, Account | undefined> {
  return createClient({ ...settings(chain), ...(account ? { account } : {}) }).extend(watchedBlocks) as Client<
    Transport,
    Chain,
    Account | undefined
  >;
}

/** A client that reads and writes, as x402's signers want it. */
export function x402Client(chain: Chain, account?: Account): X402Client {
  const client = createClient({ ...settings(chain), ...(account ? { account } : {}) });
  // The actions call what was there before them.
  return client
    .extend(watchedBlocks)
    .extend(publicActions)
    .extend(walletActions)
    .extend(watchedBlocks) as unknown as X402Client;
}

/** The same client for the same account, as long as that lives: to make one takes longer than a call. */
export function eachOnce<T>(make: (account?: Account) => T): (account?: Account) => T {
  const known = new WeakMap<object, T>();
  const nobody = {};
  return (account) => {
    const client = known.get(account ?? nobody) ?? make(account);
    known.set(account ?? nobody, client);
    return client;
  };
}

function settings(chain: Chain) {
  const url = chain.rpcUrls.default.http[0] ?? '';
  const local = new URL(url).hostname === '127.0.0.1';
  return {
    chain,
    transport: rpcTransport(url, { timeout: TIMEOUT_MS, retryCount: RETRIES }),
    pollingInterval: local ? LOCAL_POLLING_MS : PUBLIC_POLLING_MS,
  };
}
