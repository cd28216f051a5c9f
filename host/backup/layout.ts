/** What of a data folder goes into a backup, and how: everything but what the host makes anew at every start. */

/** Names at the top of the data folder that are not kept. */
export const NOT_KEPT: ReadonlySet<string> = new Set([
  'run',
  // Retries of what was paid shortly before find no answer after a restore, and are not charged twice.
  'answers',
  'cache',
  // Charts of this machine: 22 MB of numbers that nothing depends on.
  'history.ring',
  'lock',
  'lock-journal',
  'lock-wal',
  'host.json',
  'host.json.new',
]);
/** The registry: copied as one moment, never file by file. */
export const REGISTRY = 'registry.db';
/** Keys of the secrets in the registry: of the same moment. */
export const SECRETS_KEY = 'secrets.key';
export const TENANTS = 'tenants';
export const CODE = 'code';

/**
 * Folders whose files are as secret as the tenants' data, but no more. Everything else (the secrets' key, keys of
 * certificates and wallets) is sealed with the passphrase.
 */
const PLAIN: ReadonlySet<string> = new Set([TENANTS, CODE, 'chain', REGISTRY]);

/** @param path below the data folder */
export function isSealed(path: string): boolean {
  return !PLAIN.has(path.split('/')[0] ?? '');
}

/** Leftovers of interrupted work, in any folder. */
export function isLeftover(name: string): boolean {
  return name.startsWith('.') || name.endsWith('-shm') || name.endsWith('.tmp');
}

/** In a backup: files as they are, and sealed ones. */
export const FILES = 'files';
export const SEALED = 'sealed';
export const MANIFEST = 'manifest.json';
/** Half a million files, bytes. */
export const LARGEST_MANIFEST = 128 * 1024 * 1024;
