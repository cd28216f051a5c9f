/** Folders whose names survive power loss: a file's own sync does not cover the entry that names it. */
import { closeSync, fsyncSync, mkdirSync, openSync } from 'node:fs';
import { dirname } from 'node:path';

export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Creates a folder and those above it, as far as they are not there. */
export function makeFolder(folder: string): void {
  const first = mkdirSync(folder, { recursive: true });
  if (first === undefined) return;
  for (let created = folder; ; created = dirname(created)) {
    syncFolder(dirname(created));
    if (created === first || created === dirname(created)) return;
  }
}
