/**
 * Brings a backup back on an empty box. Every file is compared with the manifest while it is copied, into a folder whose
 * content becomes the data folder's only when all of them are right: a damaged backup changes nothing.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createWriteStream, existsSync } from 'node:fs';
import { lstat, mkdir, readdir, readFile, rename, rm, rmdir, statfs } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { openClient } from '../registry/client.ts';
import { markRestored } from '../registry/payments/restored.ts';
import { syncFile, writeDurably } from '../shared/durable-files.ts';
import { Problem } from '../shared/problem.ts';
import type { BackupStore } from './backup-store.ts';
import { bounded } from './bounded.ts';
import { FILES, REGISTRY, SEALED, TENANTS } from './layout.ts';
import { type BackupFile, openManifest } from './manifest.ts';
import { tellingPlace } from './refusals.ts';

/** Every fresh ext4 disk has this folder at its root: it is fsck's. */
const LOST_AND_FOUND = 'lost+found';

export interface RestoreOptions {
  store: BackupStore;
  /** Undefined: the newest. */
  id: string | undefined;
  passphrase: string;
  /** Must be absent, or as empty as a fresh disk is. */
  dataFolder: string;
  /** Puts objects' bytes back where they live, if that is not this disk. */
  placeObjects?: ((tenantsFolder: string) => Promise<void>) | undefined;
}

export interface RestoreSummary {
  id: string;
  dataFolder: string;
  files: number;
  bytes: number;
  /** The data is as of a moment between these two. */
  startedAt: string;
  finishedAt: string;
  hostVersion: string;
}

/** @throws Problem when there is no such backup, it is damaged, the passphrase is wrong, or the folder is in use */
export function restoreBackup(options: RestoreOptions): Promise<RestoreSummary> {
  const target = path.resolve(options.dataFolder);
  return tellingPlace('Nothing was restored', target, () => restore(options, target));
}

async function restore(options: RestoreOptions, target: string): Promise<RestoreSummary> {
  const { store, passphrase } = options;
  const isThere = await requireEmpty(target);
  const id = await chooseBackup(store, options.id);
  const { content, keys } = await openManifest(await readManifest(store, id), passphrase);
  if (content.id !== id) {
    throw new Problem(
      'invalid_field',
      `The backup is damaged: its name is ${id}, but its manifest says ${content.id}.`,
    );
  }
  await requireRoom(isThere ? target : path.dirname(target), content.files);
  const suffix = `restoring-${randomBytes(4).toString('hex')}`;
  // A folder that is there may be a disk of its own, or behind a link: it cannot be replaced, only filled.
  const coming = isThere ? path.join(target, `.${suffix}`) : `${target}.${suffix}`;
  try {
    await mkdir(coming, { recursive: true, mode: 0o700 });
    for (const file of content.files) await restoreFile(store, id, file, coming);
    await unsealAll(coming, keys, content.files);
    await tellRegistry(path.join(coming, REGISTRY), Date.parse(content.startedAt));
    await options.placeObjects?.(path.join(coming, TENANTS));
    await syncFile(coming);
    if (isThere) {
      await moveContent(coming, target);
    } else {
      await rename(coming, target);
      await syncFile(path.dirname(target));
    }
  } catch (error) {
    await rm(coming, { recursive: true, force: true });
    throw error;
  }
  const { startedAt, finishedAt, hostVersion, files } = content;
  const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
  return { id, dataFolder: target, files: files.length, bytes, startedAt, finishedAt, hostVersion };
}

/** So that what was paid out, or given back, since the backup is not paid again: the chain is asked first. */
async function tellRegistry(file: string, since: number): Promise<void> {
  if (!existsSync(file)) return;
  const client = await openClient(file);
  try {
    await markRestored(client, since);
    await client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
  } finally {
    client.close();
  }
  // All is in the file. The connection ends only once its statements are collected, when the file is elsewhere.
  for (const beside of ['-wal', '-shm']) await rm(`${file}${beside}`, { force: true });
}

/** Answers whether the folder is there at all. */
async function requireEmpty(folder: string): Promise<boolean> {
  const names = await readdir(folder).catch((error) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (names === undefined && (await lstat(folder).catch(() => undefined))) {
    const detail = `${folder} is a link to a folder that does not exist: make that folder, or name another place.`;
    throw new Problem('conflict', detail);
  }
  if (names?.some((name) => name !== LOST_AND_FOUND)) {
    throw new Problem('conflict', `${folder} is not empty: restore into a new folder, or move its files elsewhere.`);
  }
  return names !== undefined;
}

async function readManifest(store: BackupStore, id: string): Promise<string> {
  try {
    return await store.manifest(id);
  } catch (error) {
    const detail = `The manifest of the backup ${id} cannot be read (${(error as Error).message}).`;
    throw new Problem('invalid_field', detail, { cause: error });
  }
}

/** Says so before hours of copying, where the disk cannot hold it. */
async function requireRoom(folder: string, files: BackupFile[]): Promise<void> {
  const needed = files.reduce((sum, { bytes }) => sum + bytes, 0);
  const disk = await statfs(folder).catch(() => undefined);
  if (disk === undefined || disk.bavail * disk.bsize >= needed) return;
  throw new Problem(
    'invalid_config',
    `The backup needs ${needed} bytes, and ${folder} has ${disk.bavail * disk.bsize} left. Make room, or name another data folder.`,
  );
}

/** Moves everything from a folder inside `target` up into it, or nothing. */
async function moveContent(coming: string, target: string): Promise<void> {
  const names = await readdir(coming);
  // The registry last: without it, nothing that a power cut left half moved comes into service.
  names.sort((a, b) => Number(a === REGISTRY) - Number(b === REGISTRY));
  const moved: string[] = [];
  try {
    for (const name of names) {
      await rename(path.join(coming, name), path.join(target, name));
      moved.push(name);
    }
    await rmdir(coming);
    await syncFile(target);
  } catch (error) {
    for (const name of moved) await rm(path.join(target, name), { recursive: true, force: true });
    throw error;
  }
}

async function chooseBackup(store: BackupStore, wanted: string | undefined): Promise<string> {
  const known = await store.list();
  const id = wanted ?? known.at(-1);
  if (id === undefined)
    throw new Problem(
      'not_found',
      'No finished backup was found there. Name the folder that turnpike backup wrote to, or s3://bucket/prefix.',
    );
  if (!known.includes(id)) {
    throw new Problem('not_found', `There is no backup ${id}. There are: ${known.join(', ') || 'none'}.`);
  }
  return id;
}

async function restoreFile(store: BackupStore, id: string, file: BackupFile, coming: string): Promise<void> {
  const inside = file.path.startsWith(`${FILES}/`) ? file.path.slice(FILES.length + 1) : file.path;
  const target = path.join(coming, inside);
  await mkdir(path.dirname(target), { recursive: true, mode: 0o700 });
  const hash = createHash('sha256');
  let bytes = 0;
  const output = createWriteStream(target, { flags: 'wx', mode: 0o600, flush: true });
  // A pipeline passes a failure on to all of its streams: the first that has it is the one that failed.
  let isOurs: boolean | undefined;
  output.once('error', () => {
    isOurs ??= true;
  });
  try {
    const source = await store.read(id, file.path);
    source.once('error', () => {
      isOurs ??= false;
    });
    await pipeline(
      bounded(source, file.bytes, (part) => {
        hash.update(part);
        bytes += part.length;
      }),
      output,
    );
  } catch (error) {
    output.destroy();
    if (isOurs) throw error;
    const detail = `The backup is damaged: ${file.path} cannot be read (${(error as Error).message}).`;
    throw new Problem('invalid_field', detail, { cause: error });
  }
  if (bytes !== file.bytes || hash.digest('hex') !== file.sha256) {
    throw new Problem('invalid_field', `The backup is damaged: ${file.path} is not what was backed up.`);
  }
}

async function unsealAll(
  coming: string,
  keys: Awaited<ReturnType<typeof openManifest>>['keys'],
  files: BackupFile[],
): Promise<void> {
  for (const file of files) {
    if (!file.path.startsWith(`${SEALED}/`)) continue;
    const inside = file.path.slice(SEALED.length + 1);
    const plain = keys.unseal(await readFile(path.join(coming, file.path)), inside);
    await writeDurably(path.join(coming, inside), plain);
  }
  await rm(path.join(coming, SEALED), { recursive: true, force: true });
}
