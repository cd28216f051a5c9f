/**
 * Lets the host load packages of many modules as the few files that the launcher made of them
 * (scripts/pack-packages.mjs) instead of from node_modules. Where there are none, it loads as everywhere else.
 */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

/** Set by the launcher: the folder of the files, made of these very versions. */
const FOLDER = 'PACKED_PACKAGES';
/** Only for what the host itself imports. */
const HOST = new URL('..', import.meta.url).href;

/** Before any of the packages is loaded; what is linked already stays as it is. */
export function usePackedPackages(): void {
  const folder = process.env[FOLDER];
  if (!folder) return;
  const packed = readIndex(folder);
  registerHooks({
    resolve(specifier, context, next) {
      const url = context.parentURL?.startsWith(HOST) ? packed.get(specifier) : undefined;
      return url === undefined ? next(specifier, context) : { url, format: 'module', shortCircuit: true };
    },
  });
}

function readIndex(folder: string): Map<string, string> {
  try {
    const index = JSON.parse(readFileSync(path.join(folder, 'index.json'), 'utf8')) as Record<string, string>;
    return new Map(Object.entries(index).map(([name, file]) => [name, pathToFileURL(path.join(folder, file)).href]));
  } catch {
    // It was removed: node_modules is there.
    return new Map();
  }
}
