/** Backups in a folder: `<target>/<id>/`, put together under a name that starts with a dot and renamed when whole. */
import { constants } from 'node:fs';
import { type FileHandle, lstat, mkdir, open, readdir, realpath, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { syncFile, writeDurably } from '../shared/durable-files.ts';
import { BACKUP_ID, type BackupStore, removeLeftovers } from './backup-store.ts';
import { readBounded } from './bounded.ts';
import { unlessGone } from './copying.ts';
import { LARGEST_MANIFEST, MANIFEST } from './layout.ts';

const UNFINISHED = '.unfinished-';
const REMOVED = '.removed-';

export class FolderStore implements BackupStore {
  readonly #folder: string;

  constructor(folder: string) {
    this.#folder = path.resolve(folder);
  }

  staging(id: string): string {
    return path.join(this.#folder, `${UNFINISHED}${id}`);
  }

  sweep(before: number): Promise<void> {
    return removeLeftovers(this.#folder, [UNFINISHED, REMOVED], before);
  }

  async publish(id: string, staging: string, manifest: string): Promise<void> {
    await writeDurably(path.join(staging, MANIFEST), manifest);
    await syncFolders(staging);
    await rename(staging, path.join(this.#folder, id));
    await syncFile(this.#folder);
  }

  async list(): Promise<string[]> {
    const names = (await unlessGone(readdir(this.#folder))) ?? [];
    const complete: string[] = [];
    for (const name of names) {
      if (!BACKUP_ID.test(name)) continue;
      const found = await lstat(path.join(this.#folder, name, MANIFEST)).catch(() => undefined);
      if (found?.isFile()) complete.push(name);
    }
    return complete.sort();
  }

  async manifest(id: string): Promise<string> {
    return readBounded(await this.read(id, MANIFEST), LARGEST_MANIFEST);
  }

  async read(id: string, file: string): Promise<Readable> {
    return (await openRegularFile(path.join(this.#folder, id), file)).createReadStream();
  }

  async remove(id: string): Promise<void> {
    // Under the other name first: what is half removed must not look like a backup.
    const leaving = path.join(this.#folder, `${REMOVED}${id}`);
    await mkdir(this.#folder, { recursive: true });
    await rename(path.join(this.#folder, id), leaving);
    await rm(leaving, { recursive: true, force: true });
  }

  describe(id: string): string {
    return path.join(this.#folder, id);
  }
}

/**
 * Opens a file of a backup that somebody may have put other things into: a pipe would never end, and a link leads to
 * another file of the machine.
 * @throws Error when it is not a regular file, or links are on the way to it
 */
async function openRegularFile(folder: string, file: string): Promise<FileHandle> {
  const wanted = path.join(await realpath(folder), file);
  if ((await realpath(wanted)) !== wanted) throw new Error('its path contains a symbolic link');
  // Without O_NONBLOCK the open itself waits for the other end of a pipe.
  const handle = await open(wanted, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  if ((await handle.stat()).isFile()) return handle;
  await handle.close();
  throw new Error('it is not a regular file');
}

async function syncFolders(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (entry.isDirectory()) await syncFolders(path.join(folder, entry.name));
  }
  await syncFile(folder);
}
