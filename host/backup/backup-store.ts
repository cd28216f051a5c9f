/** What a place for backups can do, and the names of what is in it. */
import { readdir, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { unlessGone } from './copying.ts';

export interface BackupStore {
  /** Where to put a new backup together; removed by `publish`, or by the caller when it fails. */
  staging(id: string): string;
  /** Makes the files of the staging folder a backup: all of it or nothing. @param manifest written last */
  publish(id: string, staging: string, manifest: string): Promise<void>;
  /** Removes what backups that were interrupted left behind. @param before begun before this, ms since the epoch */
  sweep(before: number): Promise<void>;
  /** Complete backups, oldest first. */
  list(): Promise<string[]>;
  manifest(id: string): Promise<string>;
  read(id: string, path: string): Promise<Readable>;
  remove(id: string): Promise<void>;
  /** For people. */
  describe(id: string): string;
}

/** Sorts by time. */
export function backupId(now: number): string {
  return new Date(now)
    .toISOString()
    .replace(/\.\d+Z$/, 'Z')
    .replaceAll(':', '-');
}

/** Removes the folders named by one of the prefixes and an id of before then. */
export async function removeLeftovers(folder: string, prefixes: string[], before: number): Promise<void> {
  const oldest = backupId(before);
  for (const name of (await unlessGone(readdir(folder))) ?? []) {
    const prefix = prefixes.find((one) => name.startsWith(one)) ?? '';
    const id = name.slice(prefix.length);
    if (prefix === '' || !BACKUP_ID.test(id) || id >= oldest) continue;
    await rm(path.join(folder, name), { recursive: true, force: true });
  }
}

export const BACKUP_ID = /^\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ$/;

/**
 * Removes all but the newest backups; answers what was removed. One that is named after `now` was made while the clock
 * was ahead: it takes nobody's place, and stays until somebody looks at it.
 */
export async function keepNewest(store: BackupStore, keep: number, now: number): Promise<string[]> {
  const latest = backupId(now);
  const old = (await store.list()).filter((id) => id <= latest).slice(0, -keep);
  for (const id of old) await store.remove(id);
  return old;
}
