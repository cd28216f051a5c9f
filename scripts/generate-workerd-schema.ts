/**
 * Makes host/capnp/generated from the installed workerd's schema; run it after workerd was upgraded.
 * Needs Debian's `capnproto` (the `capnp` compiler) and npm: node scripts/generate-workerd-schema.ts
 */
import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { prepareSchema } from '../host/capnp/prepare-schema.ts';

const target = join(import.meta.dirname, '../host/capnp/generated');
const workerd = join(createRequire(import.meta.url).resolve('workerd/package.json'), '..');
const folder = mkdtempSync(join(tmpdir(), 'workerd-schema-'));
try {
  // capnpc-ts 0.7.0 fails in its own generator with a TypeScript newer than 4.2, so it gets a folder of its own.
  writeFileSync(join(folder, 'package.json'), '{"private":true}');
  execFileSync(
    'npm',
    ['install', '--ignore-scripts', '--no-audit', '--no-fund', 'capnpc-ts@0.7.0', 'typescript@4.2.4'],
    {
      cwd: folder,
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  const schema = prepareSchema(readFileSync(join(workerd, 'workerd.capnp'), 'utf8'));
  writeFileSync(join(folder, 'workerd.capnp'), schema);
  execFileSync('capnp', ['compile', `-o${join(folder, 'node_modules/.bin/capnpc-ts')}`, 'workerd.capnp'], {
    cwd: folder,
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  // The generated code is CommonJS, and this package is not.
  copyFileSync(join(folder, 'workerd.capnp.js'), join(target, 'workerd.cjs'));
  copyFileSync(join(folder, 'workerd.capnp.d.ts'), join(target, 'workerd.d.cts'));
  writeFileSync(join(target, 'workerd.capnp'), schema);
} finally {
  rmSync(folder, { recursive: true });
}
