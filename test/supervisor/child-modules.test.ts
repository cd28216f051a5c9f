/** What child processes load before anybody calls them: each package costs every one of them time and memory. */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';

/** Loads an entry as its process does, and prints the packages and those of Node's parts that are large. */
const SCRIPT = `
import { registerHooks } from 'node:module';
const packages = new Set();
registerHooks({
  load(url, context, next) {
    const [, name] = /node_modules\\/((?:@[^/]+\\/)?[^/]+)/.exec(url) ?? [];
    if (name) packages.add(name);
    return next(url, context);
  },
});
await import(process.argv[1]);
const undici = process.moduleLoadList.some((name) => name.endsWith('deps/undici/undici'));
process.stdout.write(JSON.stringify([...packages, ...(undici ? ['undici'] : [])]));
process.exit();
`;

const LARGE = ['zod', 'prom-client', 'undici', 'minio', 'pg', 'acme-client', 'drizzle-orm', 'viem', 'mppx'];

it.each([
  ['edge', []],
  ['egress', []],
  ['bindings/store-process', ['zod']],
])('%s loads no large package but %j', async (folder, allowed) => {
  const entry = fileURLToPath(new URL(`../../host/${folder}/main.ts`, import.meta.url));
  const args = ['--disable-warning=ExperimentalWarning', '--input-type=module', '--eval', SCRIPT, entry];
  const { stdout } = await promisify(execFile)(process.execPath, args);
  const loaded: string[] = JSON.parse(stdout);
  expect(loaded).toContain('pino');
  expect(loaded.filter((name) => LARGE.includes(name))).toEqual(allowed);
});
