/** Files that are on disk for good when these functions answer. */
import { execFile } from 'node:child_process';
import { constants } from 'node:fs';
import { copyFile, mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';

export async function copyDurably(from: string, to: string): Promise<void> {
  await mkdir(path.dirname(to), { recursive: true, mode: 0o700 });
  await copyFile(from, to, constants.COPYFILE_FICLONE);
  await syncFile(to);
}

/** Writes a new file of mode 0600. */
export async function writeDurably(file: string, bytes: Uint8Array | string): Promise<void> {
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

/** As `syncFile`, of all that is on the disk of a folder: for whoever has written many files and folders. */
export async function syncFileSystem(folder: string): Promise<void> {
  await promisify(execFile)('sync', ['--file-system', folder]);
}
