/**
 * A wallet on disk: one key in a JSON file of mode 0600, by default in `~/.config/turnpike/wallet.json`.
 * A file that others may read is refused: a key that leaked is no key.
 */
import { chmod, mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Address, Hex } from 'viem';
import { Failure } from '../terminal/failure.ts';
import type { Terminal } from '../terminal/terminal.ts';

export interface StoredWallet {
  address: Address;
  privateKey: Hex;
}

/** `$XDG_CONFIG_HOME/turnpike/wallet.json`, or below `~/.config`. */
export function defaultWalletPath({ env, home }: Pick<Terminal, 'env' | 'home'>): string {
  return join(env.XDG_CONFIG_HOME || join(home, '.config'), 'turnpike', 'wallet.json');
}

/** @throws Failure `usage` when it is no private key */
export async function parsePrivateKey(text: string, source: string): Promise<StoredWallet> {
  const digits = text.trim().replace(/^0x/i, '');
  if (!/^[0-9a-fA-F]{64}$/.test(digits)) {
    throw new Failure('usage', `${source} does not hold a private key: expected 64 hexadecimal digits.`);
  }
  const privateKey: Hex = `0x${digits.toLowerCase()}`;
  const { privateKeyToAccount } = await import('viem/accounts');
  try {
    return { address: privateKeyToAccount(privateKey).address, privateKey };
  } catch {
    throw new Failure('usage', `${source} does not hold a valid private key.`);
  }
}

/**
 * Reads a wallet file: our JSON, or a file that holds just the key.
 * @returns undefined when there is no such file
 * @throws Failure `usage` when others may read it, or it holds no key
 */
export async function readWallet(path: string): Promise<StoredWallet | undefined> {
  let text: string;
  try {
    const { mode } = await stat(path);
    if (process.platform !== 'win32' && (mode & 0o077) !== 0) {
      throw new Failure('usage', `${path} may be read by others: run chmod 600 ${path}`);
    }
    text = await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return parsePrivateKey(keyIn(text), path);
}

/** @throws Failure `usage` when the file is there already: overwriting a key would lose money */
export async function writeWallet(path: string, wallet: StoredWallet): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  try {
    await writeFile(path, `${JSON.stringify(wallet, null, 2)}\n`, { mode: 0o600, flag: 'wx' });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    throw new Failure('usage', `${path} holds a wallet already. Move it away first, or name another file.`);
  }
  await chmod(path, 0o600);
}

function keyIn(text: string): string {
  try {
    const { privateKey } = JSON.parse(text) as { privateKey?: unknown };
    if (typeof privateKey === 'string') return privateKey;
  } catch {
    // Not JSON: a bare key.
  }
  return text;
}
