/** Backups in a folder: `<target>/<id>/`, put together under a name that starts with a dot and renamed when whole. */
import { createReadStream } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { syncFile, unlessGone, writeWhole } from './copying.ts';
import { MANIFEST } from './layout.ts';
import { BACKUP_ID, type BackupStore, removeLeftovers } from './store.ts';

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
    await writeWhole(path.join(staging, MANIFEST), manifest);
    await syncFolders(staging);
    await rename(staging, path.join(this.#folder, id));
    await syncFile(this.#folder);
  }

  async list(): Promise<string[]> {
    const names = (await unlessGone(readdir(this.#folder))) ?? [];
    const complete: string[] = [];
    for (const name of names) {
      if (!BACKUP_ID.test(name)) continue;
      const found = await stat(path.join(this.#folder, name, MANIFEST)).catch(() => undefined);
      if (found?.isFile()) complete.push(name);
    }
    return complete.sort();
  }

  manifest(id: string): Promise<string> {
    return readFile(path.join(this.#folder, id, MANIFEST), 'utf8');
  }

  async read(id: string, file: string): Promise<Readable> {
    return createReadStream(path.join(this.#folder, id, file));
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

async function syncFolders(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (entry.isDirectory()) await syncFolders(path.join(folder, entry.name));
  }
  await syncFile(folder);
}
