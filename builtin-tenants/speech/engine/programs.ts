/**
 * Finds programs on the path without running a shell.
 */
import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { delimiter, isAbsolute, join } from 'node:path';

const FOLDERS = ['/usr/local/bin', '/usr/bin', '/bin', ...(process.env.PATH ?? '').split(delimiter)];

/** @returns the absolute path of the first of `names` that can be executed */
export async function findProgram(...names: string[]): Promise<string | undefined> {
  for (const name of names) {
    const candidates = isAbsolute(name) ? [name] : FOLDERS.filter(isAbsolute).map((folder) => join(folder, name));
    for (const path of candidates) {
      const found = await access(path, constants.X_OK).then(
        () => true,
        () => false,
      );
      if (found) return path;
    }
  }
  return undefined;
}
