/**
 * The folder of one tenant's objects: SQLite files that workerd writes from inside of the tenant's sandbox. Nothing in it
 * is opened as a database by the host, and no link in it is followed.
 */
import { randomUUID } from 'node:crypto';
import { type Dir, lchownSync, lstatSync, opendirSync, type Stats } from 'node:fs';
import { lchown, lstat, mkdir, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { FOLDER, type Objects } from './classes.ts';

export function objectsFolder(tenantsFolder: string, tenant: string): string {
  return path.join(tenantsFolder, tenant, FOLDER);
}

/** What a host that was killed left is told from it by the name. */
const THIS_RUN = randomUUID();

/** Where one instance keeps objects for as long as it runs: copies of the cluster's, or those of a preview. */
export function passingFolder(tenantsFolder: string, tenant: string, generation: number): string {
  return path.join(passing(tenantsFolder, tenant), THIS_RUN, String(generation));
}

/** Removes what instances of a host that was killed left. */
export async function removePassed(tenantsFolder: string, of: readonly { tenant: string }[]): Promise<void> {
  for (const { tenant } of of) {
    const folder = passing(tenantsFolder, tenant);
    for (const run of await readdir(folder).catch(() => []))
      if (run !== THIS_RUN) await rm(path.join(folder, run), { recursive: true, force: true });
  }
}

const passing = (tenantsFolder: string, tenant: string) => path.join(tenantsFolder, tenant, 'objectCopies');

/** Makes the folder, removes what is to be deleted, and gives the rest to the user. Only while no process writes to it. */
export async function prepareFolder(folder: string, { deleted }: Objects, uid: number | undefined): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (const id of deleted) await rm(path.join(folder, id), { recursive: true, force: true });
  if (uid === undefined || (await lstat(folder)).uid === uid) return;
  for await (const batch of filesBelow(folder)) for (const { file } of batch) lchownSync(file, uid, uid);
  // At last: where it was interrupted it is done again.
  await lchown(folder, uid, uid);
}

/** @returns bytes on the disk, 1 KB for each file among them, and the number of files and folders */
export async function folderSize(folder: string): Promise<{ bytes: number; files: number }> {
  const size = { bytes: 0, files: 0 };
  for await (const batch of filesBelow(folder)) {
    size.files += batch.length;
    for (const { stats } of batch) size.bytes += FILE_BYTES + stats.blocks * BLOCK_BYTES;
  }
  return size;
}

/**
 * @returns bytes of all logs of databases, and the most that one of them comes to when each page of its database is
 * changed once more: what a log holds already may not be in its database yet, and stays until it is
 */
export async function logBytes(folder: string): Promise<{ logs: number; largest: number }> {
  const found = { logs: 0, largest: 0 };
  for await (const batch of filesBelow(folder)) {
    for (const { file, stats } of batch) {
      if (!file.endsWith('.sqlite')) continue;
      const log = lstatSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0;
      found.logs += log;
      found.largest = Math.max(found.largest, Math.ceil((stats.size + 2 * log) * FRAME_BYTES_PER_BYTE));
    }
  }
  return found;
}

/** A page of 4 KB has 24 bytes before it in a log (SQLite's file format, section 4.1). */
const FRAME_BYTES_PER_BYTE = 1 + 24 / 4_096;
/** Empty files take room, too. */
const FILE_BYTES = 1_024;
/** Unit of `st_blocks`: stat(2). */
const BLOCK_BYTES = 512;

/** Files in a batch: together they hold the event loop up for about half a millisecond. */
const BATCH = 128;

/**
 * Files and folders, in batches, one batch in a turn of the event loop. Each is looked at synchronously: that takes 5 µs,
 * and 60 µs of CPU by a promise; a tenant may have 20,000 files.
 */
async function* filesBelow(folder: string): AsyncGenerator<{ file: string; stats: Stats }[]> {
  const folders = [folder];
  for (let next = folders.pop(); next !== undefined; next = folders.pop()) {
    const opened = openFolder(next);
    if (!opened) continue;
    try {
      for (let batch = readBatch(opened); batch.length > 0; batch = readBatch(opened)) {
        for (const { file, stats } of batch) if (stats.isDirectory()) folders.push(file);
        yield batch;
        await nextTurn();
      }
    } finally {
      opened.closeSync();
    }
  }
}

/** @returns undefined where it is gone */
function openFolder(folder: string): Dir | undefined {
  try {
    return opendirSync(folder, { bufferSize: BATCH });
  } catch {
    return undefined;
  }
}

function readBatch(folder: Dir): { file: string; stats: Stats }[] {
  const batch: { file: string; stats: Stats }[] = [];
  while (batch.length < BATCH) {
    const entry = folder.readSync();
    if (!entry) break;
    const file = path.join(folder.path, entry.name);
    const stats = lstatSync(file, { throwIfNoEntry: false });
    if (stats) batch.push({ file, stats });
  }
  return batch;
}
