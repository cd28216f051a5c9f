/** Solana as a network of payments: its node, its USDC, and the host's key that pays the fees of what payers sign. */
import { createKeyPairSignerFromBytes, generateKeyPair, signBytes } from '@solana/kit';
import { USDC_DEVNET_ADDRESS, USDC_MAINNET_ADDRESS } from '@x402/svm';
import type { KeyFiles } from '../../registry/key-file.ts';
import { Problem } from '../../shared/problem.ts';
import { rpcTransport } from './rpc-transport.ts';
import type { SolanaNetwork } from './types.ts';

/** As CAIP-2 names them: the first 32 characters of the hash of the first block. */
const NETWORKS = {
  solana: {
    network: 'solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp',
    token: USDC_MAINNET_ADDRESS,
    rpcUrl: 'https://api.mainnet-beta.solana.com',
  },
  'solana-devnet': {
    network: 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1',
    token: USDC_DEVNET_ADDRESS,
    rpcUrl: 'https://api.devnet.solana.com',
  },
} as const;

const TIMEOUT_MS = 10_000;
const KEY_BYTES = 64;

export interface SolanaOptions {
  settings: { network: keyof typeof NETWORKS; rpcUrl: string; recipient: string };
  /** The operator's addresses on other networks, lower case. */
  operators: readonly string[];
  keyFiles: KeyFiles;
}

/** @throws Problem `invalid_config` */
export async function openSolanaNetwork({ settings, operators, keyFiles }: SolanaOptions): Promise<SolanaNetwork> {
  const { network, token, rpcUrl } = NETWORKS[settings.network];
  const { address, keyPair } = await feePayer(keyFiles);
  const node = rpcTransport(settings.rpcUrl || rpcUrl, { timeout: TIMEOUT_MS, retryCount: 0 })({});
  const ask = <T>(method: string, params: readonly unknown[]) => node.request({ method, params }) as Promise<T>;
  return {
    name: settings.network,
    network,
    token,
    recipient: settings.recipient,
    operators,
    feePayer: address,
    sign: (message) => signBytes(keyPair.privateKey, message),
    ask,
    async healthy() {
      try {
        const genesis = await ask<string>('getGenesisHash', []);
        return genesis.startsWith(network.slice('solana:'.length))
          ? { ok: true, detail: `${settings.network} answers` }
          : { ok: false, detail: `${settings.network}: the RPC URL answers for another network` };
      } catch {
        return { ok: false, detail: `${settings.network} does not answer` };
      }
    },
  };
}

/**
 * The key is in `solana-fee-payer.json`, as Solana's own tools keep keys: 64 numbers.
 * @throws Problem `invalid_config` when the file is there but unusable: a new key would strand what the old one holds
 */
async function feePayer(keyFiles: KeyFiles) {
  const file = keyFiles('solana-fee-payer.json');
  const text = (await file.read()) ?? (await file.add(await freshKey()));
  try {
    const numbers = JSON.parse(text) as number[];
    if (numbers.length !== KEY_BYTES) throw new Error('not 64 numbers');
    return await createKeyPairSignerFromBytes(Uint8Array.from(numbers));
  } catch {
    // The cause could quote the key.
    throw new Problem(
      'invalid_config',
      `${file.name} is damaged: restore it from a backup, or move it away to get a new key.`,
    );
  }
}

async function freshKey(): Promise<string> {
  const { privateKey, publicKey } = await generateKeyPair(true);
  const [seed, point] = await Promise.all([
    crypto.subtle.exportKey('jwk', privateKey).then(({ d = '' }) => Buffer.from(d, 'base64url')),
    crypto.subtle.exportKey('raw', publicKey).then((bytes) => Buffer.from(bytes)),
  ]);
  return JSON.stringify([...seed, ...point]);
}
