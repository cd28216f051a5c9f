/** Copies of folders and single files, on disk for good when they answer. */
import { createHash } from 'node:crypto';
import { constants, createReadStream } from 'node:fs';
import { copyFile, mkdir, open, readdir } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { isLeftover } from './layout.ts';

/** Files below a folder, as paths with `/`, sorted; nothing where there is no folder. */
export async function filesBelow(folder: string): Promise<string[]> {
  const found: string[] = [];
  const visit = async (below: string): Promise<void> => {
    const entries = await unlessGone(readdir(path.join(folder, below), { withFileTypes: true }));
    for (const entry of entries ?? []) {
      const name = below === '' ? entry.name : `${below}/${entry.name}`;
      if (entry.isDirectory()) await visit(name);
      // Sockets and links are not data.
      else if (entry.isFile()) found.push(name);
    }
  };
  await visit('');
  return found.sort();
}

/**
 * Copies a folder file by file. Files that go away meanwhile are left out: they were removed by who owns them.
 * @param keep by path below the folder
 */
export async function copyFolder(
  from: string,
  to: string,
  keep: (path: string) => boolean = () => true,
): Promise<void> {
  for (const file of await filesBelow(from)) {
    if (file.split('/').some(isLeftover) || !keep(file)) continue;
    await unlessGone(copyOne(path.join(from, file), path.join(to, file)));
  }
}

/** What came of work on a file that was listed; undefined when its owner has removed it since. */
export function unlessGone<T>(work: Promise<T>): Promise<T | undefined> {
  return work.catch((error) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}

export async function copyOne(from: string, to: string): Promise<void> {
  await mkdir(path.dirname(to), { recursive: true, mode: 0o700 });
  await copyFile(from, to, constants.COPYFILE_FICLONE);
  await syncFile(to);
}

/** Writes a new file of mode 0600. */
export async function writeWhole(file: string, bytes: Uint8Array | string): Promise<void> {
  await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
  const handle = await open(file, 'wx', 0o600);
  try {
    await handle.writeFile(bytes);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Makes names in a folder, and files, survive a loss of power. */
export async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

export async function sha256Of(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}
