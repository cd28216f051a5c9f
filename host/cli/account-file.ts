/**
 * The credential of an account on a host's pay platform: one file per host in the user's configuration folder, 0600.
 * Whoever has it spends the account's credit, so it is never printed.
 */
import { createHash } from 'node:crypto';
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { Failure } from './terminal/failure.ts';
import type { Terminal } from './terminal/terminal.ts';
import { defaultWalletPath } from './wallet/wallet-file.ts';

const schema = z.object({ host: z.string(), accountId: z.string(), credential: z.string() });

export type StoredAccount = z.infer<typeof schema>;

export function accountPath(terminal: Pick<Terminal, 'env' | 'home'>, host: URL): string {
  const name = `${host.hostname.replace(/[^a-z0-9.-]/gi, '_')}-${createHash('sha256').update(host.origin).digest('hex').slice(0, 8)}`;
  return join(dirname(defaultWalletPath(terminal)), 'accounts', `${name}.json`);
}

/** @throws Failure `usage` when there is no account for this host yet */
export async function readAccount(terminal: Pick<Terminal, 'env' | 'home'>, host: URL): Promise<StoredAccount> {
  const text = await readFile(accountPath(terminal, host), 'utf8').catch(() => undefined);
  if (text === undefined) {
    throw new Failure(
      'usage',
      `There is no account on ${host.origin} yet: run turnpike account register --host-url ${host.origin}, or login.`,
    );
  }
  const stored = parse(text);
  if (!stored) throw new Failure('usage', `${accountPath(terminal, host)} is damaged: move it away and log in again.`);
  return stored;
}

/** @throws Failure `usage` when a new account would take the place of one: its credit would be lost with its credential */
export async function refuseSecondAccount(terminal: Pick<Terminal, 'env' | 'home'>, host: URL): Promise<void> {
  const path = accountPath(terminal, host);
  const text = await readFile(path, 'utf8').catch(() => undefined);
  if (text === undefined) return;
  const name = parse(text)?.accountId ?? 'one';
  throw new Failure('usage', `There is an account on ${host.origin} already: ${name}, in ${path}. Move it away first.`);
}

function parse(text: string): StoredAccount | undefined {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    return undefined;
  }
}

export async function writeAccount(
  terminal: Pick<Terminal, 'env' | 'home'>,
  host: URL,
  account: StoredAccount,
): Promise<string> {
  const path = accountPath(terminal, host);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await writeFile(`${path}.tmp`, `${JSON.stringify(account, null, 2)}\n`, { mode: 0o600 });
  await rename(`${path}.tmp`, path);
  return path;
}
