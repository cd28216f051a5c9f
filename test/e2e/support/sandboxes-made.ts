/** How many sandboxes a change of a deployment that runs takes, on a whole host. */
import { existsSync, readlinkSync, watch } from 'node:fs';
import path from 'node:path';

/** @param data folder of the host @returns those beside the first, whose folders are made during the change */
export async function sandboxesMade(data: string, slug: string, change: () => Promise<unknown>): Promise<number> {
  const made = new Set<string>();
  const cell = path.dirname(readlinkSync(path.join(data, 'run', slug)));
  const watcher = watch(cell, (_, name) => {
    if (name?.startsWith('g') && existsSync(path.join(cell, name))) made.add(name);
  });
  try {
    await change();
    return made.size;
  } finally {
    watcher.close();
  }
}
