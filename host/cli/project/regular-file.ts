/** Reads a file whose name somebody else may have chosen: a pipe would never end, a device or a huge file neither. */
import { constants } from 'node:fs';
import { open, realpath } from 'node:fs/promises';
import { isAbsolute, relative, resolve, sep } from 'node:path';

/**
 * @param limit largest size, bytes
 * @throws Error with a code: ENOENT and others of the system, ENOTREG for what is no regular file, EFBIG
 */
export async function readRegularFile(path: string, limit: number): Promise<Buffer> {
  // Without O_NONBLOCK the open itself waits for the other end of a pipe.
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const found = await file.stat();
    if (!found.isFile()) throw coded('ENOTREG', 'not a regular file');
    const bytes = Buffer.alloc(limit + 1);
    let size = 0;
    while (size < bytes.length) {
      const { bytesRead } = await file.read(bytes, size, Math.min(bytes.length - size, 65_536));
      if (bytesRead === 0) break;
      size += bytesRead;
    }
    if (size > limit) throw coded('EFBIG', `larger than ${limit} bytes`);
    return bytes.subarray(0, size);
  } finally {
    await file.close();
  }
}

/**
 * @returns the file with its links resolved
 * @throws Error EOUTSIDE when it is not within the folder, wherever its links lead
 */
export async function pathInside(folder: string, name: string): Promise<string> {
  if (isAbsolute(name) || name.split(/[\\/]/).includes('..')) throw coded('EOUTSIDE', 'outside of the project');
  const [root, path] = await Promise.all([realpath(folder), realpath(resolve(folder, name))]);
  if (!isInside(root, path)) throw coded('EOUTSIDE', 'outside of the project');
  return path;
}

/** Both with their links resolved. */
export function isInside(root: string, path: string): boolean {
  const way = relative(root, path);
  return way !== '..' && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

function coded(code: string, message: string): Error {
  return Object.assign(new Error(message), { code });
}
