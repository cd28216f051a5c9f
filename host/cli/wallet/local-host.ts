/**
 * What the command knows of a host on this machine, from the host's data folder: that it runs, and its test network.
 */
import { existsSync, readFileSync } from 'node:fs';
import { lstat, readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import type { Terminal } from '../terminal/terminal.ts';

const address = z.string().regex(/^0x[0-9a-fA-F]{40}$/);
const localNetworkSchema = z.object({
  rpcUrl: z.url().refine((url) => isLoopback(new URL(url))),
  chainId: z.number().int().positive(),
  token: address,
  x402: z.object({ network: z.string(), token: address, name: z.string(), version: z.string() }),
  wallets: z.array(z.object({ address, privateKey: z.string().regex(/^0x[0-9a-fA-F]{64}$/) })),
});

export type LocalNetworkInfo = z.infer<typeof localNetworkSchema>;

export interface LocalHost {
  dataFolder: string;
  network: LocalNetworkInfo;
}

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]']);

/** Folders in which a host of this machine may keep its data, the likeliest first. */
export function dataFolders(terminal: Pick<Terminal, 'env' | 'cwd'>, given: string | undefined): string[] {
  if (given !== undefined) return [resolve(terminal.cwd, given)];
  const project = fileURLToPath(new URL('../../..', import.meta.url));
  return [
    ...new Set([
      ...(terminal.env.TURNPIKE_DATA ? [resolve(terminal.cwd, terminal.env.TURNPIKE_DATA)] : []),
      resolve(terminal.cwd, 'data'),
      join(project, 'data'),
    ]),
  ];
}

/** Any of them tells that a host has worked in a folder, or that one was restored or moved into a cluster there. */
const TRACES = ['registry.db', 'registry.db.moved', 'host.json'];

/** The first of these folders that is a host's: what is asked of "the host" is asked there. */
export function hostFolder(folders: string[]): string | undefined {
  return folders.find((folder) => TRACES.some((file) => existsSync(join(folder, file))));
}

/** The address that the host of one of these folders announced at its latest start. */
export function announcedUrl(folders: string[]): string | undefined {
  for (const dataFolder of folders) {
    try {
      const { port } = JSON.parse(readFileSync(join(dataFolder, 'host.json'), 'utf8')) as { port?: unknown };
      if (Number.isInteger(port)) return `http://localhost:${port}`;
    } catch {
      // No host was started on this folder.
    }
  }
  return undefined;
}

/** Whether the name of the URL is one of this machine. */
export function isLoopback({ hostname }: URL): boolean {
  return LOOPBACK.has(hostname) || hostname.endsWith('.localhost');
}

/**
 * The host at this URL, if it runs on this machine with a data folder we can read.
 * The folder must belong to that very port: another host's test wallets would be of no use.
 */
export async function findLocalHost(hostUrl: URL, folders: string[]): Promise<LocalHost | undefined> {
  if (!isLoopback(hostUrl)) return undefined;
  for (const dataFolder of folders) {
    const running = await readJson(join(dataFolder, 'host.json'));
    const { port } = (running ?? {}) as { port?: unknown };
    if (String(port) !== (hostUrl.port || '80') || !(await isHosts(dataFolder))) continue;
    const network = localNetworkSchema.safeParse(await readJson(join(dataFolder, 'local-network.json')));
    if (network.success) return { dataFolder, network: network.data };
  }
  return undefined;
}

/**
 * Whether a host made this folder. A downloaded project may have a `data` of its own, with wallets whose keys others
 * know and a "test token" that is real money elsewhere; no archive and no repository carries a socket.
 */
async function isHosts(dataFolder: string): Promise<boolean> {
  const socket = await lstat(operatorSocket(dataFolder)).catch(() => undefined);
  return socket?.isSocket() === true;
}

/** The operator's API of the host that runs on this folder. */
export function operatorSocket(dataFolder: string): string {
  return join(dataFolder, 'run', 'operator.sock');
}

async function readJson(path: string): Promise<unknown> {
  try {
    return JSON.parse(await readFile(path, 'utf8'));
  } catch {
    return undefined;
  }
}
