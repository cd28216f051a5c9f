/** Where workerd's own executable is: its npm package starts it through a Node script, which would cost a process. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const PACKAGES: Record<string, string> = {
  'linux-x64': '@cloudflare/workerd-linux-64',
  'linux-arm64': '@cloudflare/workerd-linux-arm64',
};

let known: string | undefined;

/** @throws Error on machines without a workerd */
export function workerdBinary(): string {
  known ??= find();
  return known;
}

function find(): string {
  const name = PACKAGES[`${process.platform}-${process.arch}`];
  if (name === undefined) throw new Error(`workerd does not exist for ${process.platform} on ${process.arch}`);
  const require = createRequire(import.meta.url);
  const inside = createRequire(require.resolve('workerd/package.json'));
  const file = path.join(path.dirname(inside.resolve(`${name}/package.json`)), 'bin', 'workerd');
  if (!existsSync(file)) throw new Error(`${file} is missing: install the packages again (npm ci)`);
  return file;
}
