/**
 * Builds the SQL process into a few plain JavaScript files. Running main.ts itself works too, but stripping types at
 * every start costs 100 ms and 17 MB per process (seen on Node 24.21); a tenant's process should cost neither.
 */
import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { findBinding } from './native.ts';

export interface SqlProgram {
  /** To start: `node <main>`, with settings whose `native` is the one below. */
  main: string;
  /** Goes into the settings' `native`. */
  native: string;
  /** What a sandbox must let the process read, besides Node's binary and the C libraries. */
  readable: string[];
}

/**
 * Builds once per start of the host; the folder is replaced as a whole, so that instances never see half of it.
 * @param folder where the program goes: `<folder>/main.js` and its chunks
 */
export async function buildSqlProgram(folder: string): Promise<SqlProgram> {
  const temporary = `${folder}.${process.pid}`;
  await mkdir(temporary, { recursive: true });
  await build({
    entryPoints: [fileURLToPath(new URL('main.ts', import.meta.url))],
    outdir: temporary,
    bundle: true,
    splitting: true,
    minifySyntax: true,
    platform: 'node',
    format: 'esm',
    target: 'node24',
    outExtension: { '.js': '.mjs' },
    logLevel: 'silent',
  });
  await rm(folder, { recursive: true, force: true });
  await rename(temporary, folder);
  const native = findBinding(import.meta.url);
  await stat(native);
  return { main: join(folder, 'main.mjs'), native, readable: [folder, native] };
}
