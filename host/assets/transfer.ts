/** Static files of a deployment, from the disk of a box into the bucket of a cluster, or back: each compared with its name. */
import { createHash, randomUUID } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { syncFile, writeDurably } from '../shared/durable-files.ts';
import type { SharedAssets } from './shared-assets.ts';

const KINDS = ['files', 'lists'] as const;
const DIGEST = /^[0-9a-f]{64}$/;

export interface TransferredFiles {
  files: number;
  bytes: number;
}

/**
 * What is in the bucket already is not sent again.
 * @param folder of all tenants
 */
export async function putAssets(folder: string, tenant: string, shared: SharedAssets): Promise<TransferredFiles> {
  const sum = { files: 0, bytes: 0 };
  for (const kind of KINDS) {
    const from = path.join(folder, tenant, 'assets', kind);
    const known = new Set(await shared.names(tenant, kind));
    for (const name of await digestsIn(from)) {
      if (!known.has(name)) await shared.put(tenant, kind, name, path.join(from, name));
      sum.bytes += await shared.check(tenant, kind, name);
      sum.files++;
    }
  }
  return sum;
}

/**
 * What is on the disk already, and whole, is not fetched again.
 * @param folder of all tenants
 */
export async function takeAssets(folder: string, tenant: string, shared: SharedAssets): Promise<TransferredFiles> {
  const sum = { files: 0, bytes: 0 };
  for (const kind of KINDS) {
    const to = path.join(folder, tenant, 'assets', kind);
    for (const name of await shared.names(tenant, kind)) {
      const file = path.join(to, name);
      if ((await digestOf(file)) !== name) await take(shared, tenant, kind, name, file);
      sum.bytes += (await stat(file)).size;
      sum.files++;
    }
  }
  return sum;
}

/** A file has its name only when it is whole. */
async function take(
  shared: SharedAssets,
  tenant: string,
  kind: (typeof KINDS)[number],
  name: string,
  file: string,
): Promise<void> {
  const draft = path.join(path.dirname(file), `.new-${randomUUID()}`);
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  try {
    if (kind === 'files') await shared.fetch(tenant, name, draft);
    else await writeDurably(draft, await listOf(shared, tenant, name));
    await syncFile(draft);
    await rename(draft, file);
    await syncFile(path.dirname(file));
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

async function listOf(shared: SharedAssets, tenant: string, name: string): Promise<string> {
  const text = await shared.text(tenant, 'lists', name);
  if (text === undefined) throw new Error(`the list ${name} of ${tenant} is not in the bucket`);
  return text;
}

async function digestsIn(folder: string): Promise<string[]> {
  return (await readdir(folder).catch(() => [])).filter((name) => DIGEST.test(name)).sort();
}

/** Undefined where it is not there. */
async function digestOf(file: string): Promise<string | undefined> {
  const hash = createHash('sha256');
  try {
    await pipeline(createReadStream(file), hash);
  } catch {
    return undefined;
  }
  return hash.digest('hex');
}
