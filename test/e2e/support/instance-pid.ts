/** The workerd of a slug on a whole host: the process that has the folder of the slug's sockets among its mounts. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

/** @returns undefined where none runs */
export function instancePid(data: string, slug: string): number | undefined {
  try {
    const folder = readlinkSync(join(data, 'run', slug));
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(Number)
      .find((pid) => isInstance(pid, folder));
  } catch {
    return undefined;
  }
}

function isInstance(pid: number, folder: string): boolean {
  try {
    return (
      readlinkSync(`/proc/${pid}/exe`).endsWith('/workerd') &&
      readFileSync(`/proc/${pid}/mountinfo`, 'utf8').includes(folder)
    );
  } catch {
    // It is gone already.
    return false;
  }
}
