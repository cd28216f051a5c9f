/** Copies of folders. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { copyDurably } from '../shared/durable-files.ts';
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
    await unlessGone(copyDurably(path.join(from, file), path.join(to, file)));
  }
}

/** What came of work on a file that was listed; undefined when its owner has removed it since. */
export function unlessGone<T>(work: Promise<T>): Promise<T | undefined> {
  return work.catch((error) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}

export async function sha256Of(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}
