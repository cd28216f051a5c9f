/** Solana as a network of payments: its node, its USDC, and the host's key that pays the fees of what payers sign. */
import { setTimeout as delay } from 'node:timers/promises';
import { createKeyPairSignerFromBytes, generateKeyPair, signBytes } from '@solana/kit';
import { USDC_DEVNET_ADDRESS, USDC_MAINNET_ADDRESS } from '@x402/svm';
import type { KeyFile, KeyFiles } from '../../registry/key-file.ts';
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
const HEALTH_TIMEOUT_MS = 2_000;
const KEY_BYTES = 64;
const KEY_FILE = 'solana-fee-payer.json';

interface Settings {
  network: keyof typeof NETWORKS;
  rpcUrl: string;
  recipient: string;
}

export interface SolanaOptions {
  settings: Settings;
  /** The operator's addresses on other networks, lower case. */
  operators: readonly string[];
  keyFiles: KeyFiles;
}

/** What the settings name, without the host's key. */
export type SolanaPlace = Pick<SolanaNetwork, 'name' | 'network' | 'token' | 'recipient' | 'ask'>;

export function solanaPlace({ network: name, rpcUrl: given, recipient }: Settings): SolanaPlace {
  const { network, token, rpcUrl } = NETWORKS[name];
  const node = rpcTransport(given || rpcUrl, { timeout: TIMEOUT_MS, retryCount: 0 })({});
  return { name, network, token, recipient, ask: (method, params) => node.request({ method, params }) as never };
}

/** @throws Problem `invalid_config` */
export async function openSolanaNetwork({ settings, operators, keyFiles }: SolanaOptions): Promise<SolanaNetwork> {
  const file = keyFiles(KEY_FILE);
  const { address, keyPair } = await keyIn(file, (await file.read()) ?? (await file.add(await freshKey())));
  const place = solanaPlace(settings);
  return {
    ...place,
    operators,
    feePayer: address,
    sign: (message) => signBytes(keyPair.privateKey, message),
    async healthy() {
      const { name } = place;
      const late = delay(HEALTH_TIMEOUT_MS, undefined, { ref: false });
      const isIt = await Promise.race([late, isNamed(place).catch(() => undefined)]);
      if (isIt) return { ok: true, detail: `${name} answers` };
      const detail = isIt === undefined ? ' does not answer' : ': the RPC URL answers for another network';
      return { ok: false, detail: name + detail };
    },
  };
}

/** Whether the node is of the network that is named. @throws Error where it does not answer */
export async function isNamed({ network, ask }: Pick<SolanaPlace, 'network' | 'ask'>): Promise<boolean> {
  const genesis: unknown = await ask('getGenesisHash', []);
  return String(genesis).startsWith(network.slice('solana:'.length));
}

/** @returns undefined before the first start. @throws Problem `invalid_config` */
export async function feePayerIn(keyFiles: KeyFiles): Promise<string | undefined> {
  const file = keyFiles(KEY_FILE);
  const text = await file.read();
  return text === undefined ? undefined : (await keyIn(file, text)).address;
}

/**
 * The key is in `solana-fee-payer.json`, as Solana's own tools keep keys: 64 numbers.
 * @throws Problem `invalid_config` when the file is there but unusable: a new key would strand what the old one holds
 */
async function keyIn(file: KeyFile, text: string) {
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
