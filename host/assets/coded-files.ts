/**
 * Compressed forms of static files, made once and kept beside them: `assets/coded/<sha256>.br` and `.gz`. One file of the
 * host at a time is compressed, and what is not worth it is kept as an empty file, so that nobody tries again.
 */
import { randomUUID } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { constants, createBrotliCompress, createGzip } from 'node:zlib';
import type { AssetList } from './asset-list.ts';
import { compressible, contentType } from './content-types.ts';

/** A smaller one would save no packet. */
const LEAST_BYTES = 1_024;
/** Of the file: what a compressed form must save. */
const LEAST_SAVED = 0.1;

const CODINGS: Readonly<Record<string, (size: number) => Transform>> = {
  br: (size) =>
    createBrotliCompress({
      params: {
        [constants.BROTLI_PARAM_QUALITY]: 6,
        [constants.BROTLI_PARAM_MODE]: constants.BROTLI_MODE_TEXT,
        [constants.BROTLI_PARAM_SIZE_HINT]: size,
      },
    }),
  gz: () => createGzip({ level: 6 }),
};

/** @param folder of a tenant's static files @param take counts bytes that are about to be kept @returns when all are there */
export async function compressFiles(
  folder: string,
  { files }: AssetList,
  take: (bytes: number) => Promise<() => void>,
): Promise<void> {
  const hashes = new Set<string>();
  for (const [name, hash] of Object.entries(files)) if (compressible(contentType(name))) hashes.add(hash);
  const coded = path.join(folder, 'coded');
  const known = new Set(await readdir(coded).catch(() => []));
  for (const hash of hashes) {
    const file = path.join(folder, 'files', hash);
    const { size } = await stat(file);
    if (size < LEAST_BYTES) continue;
    for (const [ending, make] of Object.entries(CODINGS)) {
      const name = `${hash}.${ending}`;
      if (known.has(name)) continue;
      // Fails where the tenant was removed meanwhile.
      if (known.size === 0) await mkdir(coded, { mode: 0o700 }).catch(ignoreExisting);
      known.add(name);
      await compress(file, path.join(coded, name), size, make(size), take);
    }
  }
}

async function compress(
  from: string,
  to: string,
  size: number,
  coding: Transform,
  take: (bytes: number) => Promise<() => void>,
): Promise<void> {
  const draft = path.join(path.dirname(to), `.new-${randomUUID()}`);
  const giveBack = await take(size);
  let kept = size;
  try {
    await pipeline(createReadStream(from), coding, createWriteStream(draft, { flags: 'wx', mode: 0o600 }));
    kept = (await stat(draft)).size;
    if (kept > size * (1 - LEAST_SAVED)) {
      kept = 0;
      await writeFile(draft, '');
    }
    await rename(draft, to);
  } catch (error) {
    kept = -1;
    await rm(draft, { force: true });
    throw error;
  } finally {
    giveBack();
    if (kept >= 0) await take(kept);
  }
}

function ignoreExisting(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error;
}
