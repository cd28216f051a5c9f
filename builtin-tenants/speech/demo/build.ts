/**
 * Makes src/pages/demo-client.txt from demo/client.ts: `node builtin-tenants/speech/demo/build.ts`.
 * The result is committed, because a tenant's modules are bundled for workerd and this one is for browsers.
 */
import { writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

export const OUTPUT = fileURLToPath(new URL('../src/pages/demo-client.txt', import.meta.url));

export async function bundleDemo(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [fileURLToPath(new URL('client.ts', import.meta.url))],
    bundle: true,
    minify: true,
    write: false,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    charset: 'utf8',
    legalComments: 'none',
    tsconfigRaw: {},
  });
  return outputFiles[0]?.text ?? '';
}

if (import.meta.main) await writeFile(OUTPUT, await bundleDemo());
