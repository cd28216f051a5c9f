/**
 * The folder of one tenant's objects: SQLite files that workerd writes from inside of the tenant's sandbox. Nothing in it
 * is opened as a database by the host, and no link in it is followed.
 */
import { lchown, lstat, mkdir, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { FOLDER, type Objects } from './classes.ts';

export function objectsFolder(tenantsFolder: string, tenant: string): string {
  return path.join(tenantsFolder, tenant, FOLDER);
}

/** Makes the folder, removes what is to be deleted, and gives the rest to the user. Only while no process writes to it. */
export async function prepareFolder(folder: string, { deleted }: Objects, uid: number | undefined): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (const id of deleted) await rm(path.join(folder, id), { recursive: true, force: true });
  if (uid === undefined || (await lstat(folder)).uid === uid) return;
  for await (const file of pathsBelow(folder)) await lchown(file, uid, uid);
  // At last: where it was interrupted it is done again.
  await lchown(folder, uid, uid);
}

/** Bytes on the disk, and 1 KB for each file. */
export async function folderBytes(folder: string): Promise<number> {
  let bytes = 0;
  for await (const file of pathsBelow(folder)) {
    const found = await lstat(file).catch(() => undefined);
    if (found) bytes += FILE_BYTES + found.blocks * BLOCK_BYTES;
  }
  return bytes;
}

/** @returns bytes of all logs of databases, and of the largest database with its log: to write the log into it takes as much again */
export async function logBytes(folder: string): Promise<{ logs: number; largest: number }> {
  const found = { logs: 0, largest: 0 };
  const sizeOf = async (file: string) => (await lstat(file).catch(() => undefined))?.size ?? 0;
  for await (const file of pathsBelow(folder)) {
    if (!file.endsWith('.sqlite')) continue;
    const [size, log] = await Promise.all([sizeOf(file), sizeOf(`${file}-wal`)]);
    found.logs += log;
    found.largest = Math.max(found.largest, size + log);
  }
  return found;
}

/** Empty files take room, too. */
const FILE_BYTES = 1_024;
/** Unit of `st_blocks`: stat(2). */
const BLOCK_BYTES = 512;

/** Files and folders. */
async function* pathsBelow(folder: string): AsyncGenerator<string> {
  for (const entry of await readdir(folder, { withFileTypes: true }).catch(() => [])) {
    const file = path.join(folder, entry.name);
    yield file;
    if (entry.isDirectory()) yield* pathsBelow(file);
  }
}
