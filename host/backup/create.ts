/**
 * Makes a backup of a whole host while it works: every file is copied as of one moment of its own within the backup's
 * time, in an order in which what names something is copied after a copy of what it names.
 */
import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { CACHE } from '../bindings/cache-api/caches.ts';
import { BINDINGS } from '../bindings/index.ts';
import { DEFAULT_STORE, kindOfStore, serviceName, storesOf } from '../bindings/stores.ts';
import { writeDurably } from '../shared/durable-files.ts';
import { Problem } from '../shared/problem.ts';
import { type BackupStore, backupId } from './backup-store.ts';
import { copyFolder, filesBelow, sha256Of, unlessGone } from './copying.ts';
import { CODE, FILES, isLeftover, isSealed, NOT_KEPT, REGISTRY, SEALED, SECRETS_KEY, TENANTS } from './layout.ts';
import { type BackupFile, makeContent, manifestText } from './manifest.ts';
import { BackupKeys } from './passphrase.ts';
import { tellingPlace } from './refusals.ts';
import { copyRegistry } from './registry-copy.ts';

export interface BackupOptions {
  dataFolder: string;
  store: BackupStore;
  passphrase: string;
  hostVersion: string;
  /** ms since the epoch, real time. */
  now(): number;
  /**
   * Has the storage process copy every tenant's KV and objects to `<folder>/<tenant>/kv` and `/r2`. Undefined when no
   * host runs on the data folder: then nobody writes, and the files are copied as they are.
   */
  copyStores: ((folder: string) => Promise<unknown>) | undefined;
  /** Folders of the sockets of the deployments that run now, by tenant. */
  serviceFolders(): ReadonlyMap<string, string>;
  /** Does the work while no process of the tenant runs. */
  standStill(tenant: string, work: () => Promise<void>): Promise<void>;
  /**
   * Fetches the bytes of objects that live in S3 into the copy, and answers how many were gone already; undefined when
   * they are on this disk.
   */
  fetchObjects?: ((tenantsFolder: string) => Promise<number>) | undefined;
}

export interface BackupSummary {
  id: string;
  location: string;
  files: number;
  bytes: number;
  startedAt: string;
  finishedAt: string;
}

/** Kinds of stores that their binding copies, and those that the storage process does. */
const COPIED: ReadonlySet<string> = new Set(BINDINGS.flatMap(({ data }) => data?.folder ?? []));
const STORES: ReadonlySet<string> = new Set(BINDINGS.flatMap(({ key, store }) => (store ? [key] : [])));
const OBJECT_ATTEMPTS = 5;
const KEY_ATTEMPTS = 10;
/** What was begun longer ago than this and is not finished was interrupted. */
const UNFINISHED_MS = 24 * 3_600_000;

/** @throws Problem when it could not be made; then there is none */
export async function createBackup(options: BackupOptions): Promise<BackupSummary> {
  const keys = await BackupKeys.create(options.passphrase);
  const started = options.now();
  const id = backupId(started);
  return tellingPlace('No backup was made', options.store.describe(id), () => create(options, keys, started, id));
}

async function create(options: BackupOptions, keys: BackupKeys, started: number, id: string): Promise<BackupSummary> {
  const { store, dataFolder } = options;
  await store.sweep(started - UNFINISHED_MS);
  if ((await store.list()).includes(id)) {
    throw new Problem('in_progress', 'A backup with this timestamp exists already; try again in a second.');
  }
  const staging = store.staging(id);
  try {
    // A leftover of a backup that was interrupted in the same second is of no use.
    await rm(staging, { recursive: true, force: true });
    await mkdir(staging, { recursive: true, mode: 0o700 });
    const secretsKey = await stage(options, path.join(staging, FILES));
    await seal(dataFolder, path.join(staging, SEALED), keys, path.resolve(staging), secretsKey);
    const files = await listFiles(staging);
    const content = makeContent({
      id,
      hostVersion: options.hostVersion,
      startedAt: new Date(started).toISOString(),
      finishedAt: new Date(options.now()).toISOString(),
      objects: options.fetchObjects === undefined ? 'disk' : 's3',
      derivation: keys.derivation,
      files,
    });
    await store.publish(id, staging, manifestText(content, keys));
    return {
      id,
      location: store.describe(id),
      files: files.length,
      bytes: files.reduce((sum, file) => sum + file.bytes, 0),
      startedAt: content.startedAt,
      finishedAt: content.finishedAt,
    };
  } catch (error) {
    await rm(staging, { recursive: true, force: true });
    throw error;
  }
}

/** Everything that is copied as it is. @returns the file of the secrets' keys, as of the copy of the registry */
async function stage(
  { dataFolder, copyStores, serviceFolders, standStill, fetchObjects }: BackupOptions,
  to: string,
): Promise<Buffer | undefined> {
  const code = path.join(dataFolder, CODE);
  // Before the registry and again after it: versions it names are in one of the two, whatever is deployed or purged.
  await copyFolder(code, path.join(to, CODE));
  const secretsKey = await copyRegistryAndKeys(dataFolder, to);
  await copyFolder(code, path.join(to, CODE), (file) => !existsSync(path.join(to, CODE, file)));
  const tenants = path.join(dataFolder, TENANTS);
  const copies = path.join(to, TENANTS);
  await mkdir(copies, { recursive: true, mode: 0o700 });
  for (let attempt = 1; copyStores !== undefined; attempt++) {
    await copyStores(copies);
    // An object that was replaced since its index was copied: the index is copied again.
    const gone = (await fetchObjects?.(copies)) ?? 0;
    if (gone === 0) break;
    if (attempt === OBJECT_ATTEMPTS)
      throw new Problem('overloaded', 'Objects change faster than the backup can copy them; try again later.');
  }
  const services = serviceFolders();
  for (const tenant of await readdir(tenants).catch(() => [])) {
    const from = path.join(tenants, tenant);
    const service = services.get(tenant);
    const names = await readdir(from).catch(() => []);
    for (const { key, data } of BINDINGS) {
      if (!data) continue;
      const copy = (await data.copy?.()) ?? ((source, target) => standStill(tenant, () => copyFolder(source, target)));
      for (const name of storesOf(data.folder, names)) {
        const id = name.slice(data.folder.length + 1) || DEFAULT_STORE;
        const socket = service && path.join(service, `${serviceName(key, id)}.sock`);
        await copy(path.join(from, name), path.join(copies, tenant, name), socket);
      }
    }
    // Logs, and whatever else there is; without a host, the stores too.
    await copyFolder(from, path.join(copies, tenant), (file) => {
      const folder = kindOfStore(file.split('/')[0] ?? '');
      return folder !== CACHE && !COPIED.has(folder) && (copyStores === undefined || !STORES.has(folder));
    });
  }
  for (const name of await readdir(dataFolder)) {
    if (isPlainRest(name)) await copyFolder(path.join(dataFolder, name), path.join(to, name));
  }
  return secretsKey;
}

/** A rotation forgets the keys of secrets as they are in an older copy: the two files must be of one moment. */
async function copyRegistryAndKeys(dataFolder: string, to: string): Promise<Buffer | undefined> {
  const keyFile = path.join(dataFolder, SECRETS_KEY);
  for (let attempt = 0; attempt < KEY_ATTEMPTS; attempt++) {
    const before = await unlessGone(readFile(keyFile));
    await rm(path.join(to, REGISTRY), { force: true });
    await copyRegistry(path.join(dataFolder, REGISTRY), path.join(to, REGISTRY));
    const after = await unlessGone(readFile(keyFile));
    if (before === undefined ? after === undefined : after?.equals(before)) return after;
  }
  throw new Problem(
    'overloaded',
    'The encryption keys of secrets change faster than the backup can copy them; try again later.',
  );
}

function isPlainRest(name: string): boolean {
  return !NOT_KEPT.has(name) && !isLeftover(name) && !isSealed(name) && ![TENANTS, CODE, REGISTRY].includes(name);
}

/** Everything that gives power over the host: sealed one by one. */
async function seal(
  dataFolder: string,
  to: string,
  keys: BackupKeys,
  staging: string,
  secretsKey: Buffer | undefined,
): Promise<void> {
  if (secretsKey !== undefined) await writeDurably(path.join(to, SECRETS_KEY), keys.seal(secretsKey, SECRETS_KEY));
  for (const name of await readdir(dataFolder)) {
    if (NOT_KEPT.has(name) || isLeftover(name) || !isSealed(name) || name.startsWith(REGISTRY)) continue;
    if (name === SECRETS_KEY) continue;
    const entry = path.join(dataFolder, name);
    // Backups may be kept inside the data folder; they are not part of the next one.
    if (staging.startsWith(`${path.resolve(entry)}${path.sep}`)) continue;
    const found = await unlessGone(stat(entry));
    const files = found?.isDirectory() ? (await filesBelow(entry)).map((file) => `${name}/${file}`) : [name];
    for (const file of files) {
      if (file.split('/').some(isLeftover)) continue;
      const bytes = await unlessGone(readFile(path.join(dataFolder, file)));
      if (bytes !== undefined) await writeDurably(path.join(to, file), keys.seal(bytes, file));
    }
  }
}

async function listFiles(staging: string): Promise<BackupFile[]> {
  const files: BackupFile[] = [];
  for (const file of await filesBelow(staging)) {
    const absolute = path.join(staging, file);
    files.push({ path: file, bytes: (await stat(absolute)).size, sha256: await sha256Of(absolute) });
  }
  return files;
}
