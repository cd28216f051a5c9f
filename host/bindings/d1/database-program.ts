/**
 * The SQL process' sources as one plain JavaScript file. Each Node process that strips types by itself costs 10 to
 * 25 MB and tens of milliseconds more (Node 24), and there are two of them per active database.
 */
import path from 'node:path';
import { build } from 'esbuild';

const ENTRY = path.join(import.meta.dirname, './main.ts');

const built = new Map<string, Promise<string>>();

/** Builds it once in a life of the host. @param folder it is written to; answers the path */
export function databaseProgram(folder: string): Promise<string> {
  const file = path.join(folder, 'd1.mjs');
  const program = built.get(file) ?? buildDatabaseProgram(file);
  built.set(file, program);
  return program;
}

/** Writes the program to `file`, which every tenant's database sandbox then reads; answers the path. */
export async function buildDatabaseProgram(file: string): Promise<string> {
  await build({
    entryPoints: [ENTRY],
    outfile: file,
    bundle: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    logLevel: 'silent',
  });
  return file;
}
