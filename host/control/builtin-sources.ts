/** What decides what the built-in tenants become: their sources, their packages, and how the host bundles and tries code. */
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');
const FOLDERS = ['builtin-tenants', 'host/runtime', 'host/sandbox'];
const FILES = ['package.json', 'package-lock.json'];

let known: Promise<string> | undefined;

/** @returns SHA-256 of all of it, hexadecimal; read once in a process's life, like the code itself */
export function digestOfSources(): Promise<string> {
  known ??= digest();
  return known;
}

async function digest(): Promise<string> {
  const found = await Promise.all(FOLDERS.map((folder) => filesOf(path.join(ROOT, folder))));
  const hash = createHash('sha256').update(process.version);
  for (const file of [...found.flat(), ...FILES.map((name) => path.join(ROOT, name))]) {
    const content = await readFile(file).catch(() => '');
    hash.update(`\0${path.relative(ROOT, file)}\0${content.length}\0`).update(content);
  }
  return hash.digest('hex');
}

async function filesOf(folder: string): Promise<string[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort();
}
