/** Bounds what a node keeps of files that all nodes share: what was used longest ago goes first, and is fetched again. */
import { readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';

interface Copy {
  place: string;
  bytes: number;
  usedAt: number;
}

/** @param folders each with files, or folders of files, which are removed whole @param maxBytes of all of them */
export async function trimCopies(folders: string[], maxBytes: number): Promise<void> {
  const copies: Copy[] = [];
  for (const folder of folders)
    for (const name of await readdir(folder).catch(() => [])) {
      const copy = await copyAt(path.join(folder, name)).catch(() => undefined);
      if (copy) copies.push(copy);
    }
  copies.sort((a, b) => a.usedAt - b.usedAt);
  let bytes = copies.reduce((sum, copy) => sum + copy.bytes, 0);
  for (const copy of copies) {
    if (bytes <= maxBytes) return;
    await rm(copy.place, { recursive: true, force: true });
    bytes -= copy.bytes;
  }
}

async function copyAt(place: string): Promise<Copy> {
  const { size, mtimeMs, ...found } = await stat(place).then((stats) => ({
    size: stats.size,
    mtimeMs: stats.mtimeMs,
    isFolder: stats.isDirectory(),
  }));
  if (!found.isFolder) return { place, bytes: size, usedAt: mtimeMs };
  const files = await readdir(place);
  const sizes = await Promise.all(files.map(async (name) => (await stat(path.join(place, name))).size));
  return { place, bytes: sizes.reduce((sum, one) => sum + one, 0), usedAt: mtimeMs };
}
