/** Files of a data folder, read while its host works. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** Paths of the files below the folder that hold the word; a file that is removed meanwhile holds nothing. */
export function filesWith(word: string, folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .filter((file) => contentsOf(file)?.includes(word));
}

function contentsOf(file: string): Buffer | undefined {
  try {
    return readFileSync(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
