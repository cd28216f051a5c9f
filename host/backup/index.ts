/** Backups of a host by its configuration: what the running host, the schedule and the command have in common. */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { BINDINGS } from '../bindings/index.ts';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';
import { keepNewest } from './backup-store.ts';
import { type BackupOptions, type BackupSummary, createBackup } from './create.ts';
import { fetchObjects, type ObjectBucket, placeObjects } from './objects.ts';
import { openBackupStore } from './open-store.ts';
import { SHORTEST } from './passphrase.ts';
import { type RestoreSummary, restoreBackup } from './restore.ts';

export type { BackupSummary } from './create.ts';
export type { RestoreSummary } from './restore.ts';

type Settings = Pick<Config, 'backup' | 'storage'>;

/** What only a running host can give; without one, nobody writes to the data folder. */
export type LiveSources = Pick<BackupOptions, 'copyStores' | 'serviceFolders' | 'standStill'>;

/** What is asked of one backup, instead of what is configured for all. */
export interface BackupChoice {
  /** Instead of `backup.target`. */
  target?: string | undefined;
  /** Instead of `backup.passphraseFile`; absolute, or from where the host was started. */
  passphraseFile?: string | undefined;
}

export interface BackupRequest extends BackupChoice {
  config: Settings;
  dataFolder: string;
  hostVersion: string;
  live: LiveSources | undefined;
  /** Trusted real time, ms; default: the clock's. */
  trustedNow?: () => Promise<number>;
}

export interface BackupOutcome extends BackupSummary {
  /** Older backups that `backup.keep` removed. */
  removed: string[];
  /** What the host keeps elsewhere and is not in the backup, in a sentence each. */
  lacks: string[];
}

/** Makes a backup. @throws Problem */
export async function runBackup(request: BackupRequest): Promise<BackupOutcome> {
  const { config, dataFolder, hostVersion, target, live } = request;
  const passphrase = await readPassphrase(request.passphraseFile ?? config.backup.passphraseFile);
  const store = openBackupStore(target ?? config.backup.target, config.storage.s3, dataFolder);
  const bucket = objectBucket(config);
  const summary = await createBackup({
    dataFolder,
    store,
    passphrase,
    hostVersion,
    now: Date.now,
    copyStores: live?.copyStores,
    serviceFolders: live?.serviceFolders ?? (() => new Map()),
    standStill: live?.standStill ?? ((_tenant, work) => work()),
    ...(bucket === undefined ? {} : { fetchObjects: (folder: string) => fetchObjects(bucket, folder) }),
  });
  // Asked afterwards, so that this one counts.
  const trustedNow = Math.min(Date.now(), (await request.trustedNow?.()) ?? Number.POSITIVE_INFINITY);
  // Only where backups belong by configuration: another place may hold what nobody wants removed.
  const removed = target === undefined ? await keepNewest(store, config.backup.keep, trustedNow) : [];
  return { ...summary, removed, lacks: lacksOf(config) };
}

function lacksOf(config: Settings): string[] {
  return BINDINGS.flatMap(({ data }) => data?.elsewhere?.(config) ?? []);
}

export interface RestoreRequest {
  config: Settings;
  /** A folder of backups, one backup's folder, or s3://bucket/prefix. */
  source: string;
  id?: string | undefined;
  dataFolder: string;
  passphraseFile?: string | undefined;
}

/** @throws Problem */
export async function runRestore({
  config,
  source,
  id,
  dataFolder,
  passphraseFile,
}: RestoreRequest): Promise<RestoreSummary> {
  const passphrase = await readPassphrase(passphraseFile ?? config.backup.passphraseFile);
  const named = splitSource(source, id);
  const bucket = objectBucket(config);
  return restoreBackup({
    store: openBackupStore(named.source, config.storage.s3, dataFolder),
    id: named.id,
    passphrase,
    dataFolder,
    ...(bucket === undefined ? {} : { placeObjects: (folder: string) => placeObjects(bucket, folder) }),
  });
}

/** `/backups/2026-01-02T03-04-05Z` means that backup in `/backups`. */
function splitSource(source: string, id: string | undefined): { source: string; id: string | undefined } {
  const match = /^(.*?)\/?(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ)\/?$/.exec(source);
  if (id !== undefined || match === null) return { source, id };
  return { source: match[1] || '.', id: match[2] };
}

async function readPassphrase(file: string): Promise<string> {
  if (file === '') {
    throw new Problem(
      'invalid_config',
      `Backups are sealed with a passphrase: put one of at least ${SHORTEST} characters into a file of mode 0600, and name that in backup.passphraseFile or by --passphrase-file.`,
    );
  }
  try {
    return (await readFile(path.resolve(file), 'utf8')).trim();
  } catch (error) {
    throw new Problem('invalid_config', `The passphrase file ${file} cannot be read.`, { cause: error });
  }
}

function objectBucket({ storage }: Settings): ObjectBucket | undefined {
  return storage.objects === 's3' ? storage.s3 : undefined;
}
