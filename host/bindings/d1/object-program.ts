/** The worker that keeps databases as objects, as one module: its sources are those of the SQL process and object.js. */
import path from 'node:path';

const ENTRY = path.join(import.meta.dirname, './object.js');

let built: Promise<string> | undefined;

/** Built once in a life of the host. */
export function objectProgram(): Promise<string> {
  built ??= buildObjectProgram();
  return built;
}

async function buildObjectProgram(): Promise<string> {
  // Loaded only where there are several nodes.
  const { build } = await import('esbuild');
  const { outputFiles } = await build({
    entryPoints: [ENTRY],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    external: ['cloudflare:workers'],
    logLevel: 'silent',
  });
  return outputFiles[0]?.text ?? '';
}
