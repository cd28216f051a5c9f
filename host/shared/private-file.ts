/**
 * Writes files that only the owner may read, so that a reader (or a start after a power cut) sees all of it or none.
 */
import { randomBytes } from 'node:crypto';
import { open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';

/** Replaces `path` atomically with `text`, mode 0600, on the disk with its name when this resolves. */
export async function writePrivateFile(path: string, text: string | Uint8Array): Promise<void> {
  const draft = `${path}.${randomBytes(4).toString('hex')}.tmp`;
  try {
    const file = await open(draft, 'wx', 0o600);
    try {
      await file.writeFile(text);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(draft, path);
    await syncFolder(dirname(path));
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
