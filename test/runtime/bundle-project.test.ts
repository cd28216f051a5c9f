import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { bundleProject } from '../../host/runtime/bundle-project.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'project-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

function write(files: Record<string, string>): string {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), text);
  }
  return path.join(folder, 'index.ts');
}

/** What each import of a binary brings, in the order of the code. */
async function binaries(entry: string): Promise<string[]> {
  const { modules, main } = await bundleProject(entry);
  const code = String(modules[main]);
  return [...code.matchAll(/from "\.\/([^"]+)"/g)].map(([, name = '']) => {
    const module = modules[name];
    return typeof module === 'object' ? Buffer.from(module.base64, 'base64').toString() : `no ${name}`;
  });
}

it('binaries of one name in different folders stay apart; one that is imported twice is sent once', async () => {
  const entry = write({
    'index.ts': "import a from './a/model.bin'; import b from './b/model.bin'; import './c.ts'; console.log(a, b);",
    'c.ts': "import a from './a/model.bin'; console.log(a);",
    'a/model.bin': 'first',
    'b/model.bin': 'second',
  });
  expect(Object.keys((await bundleProject(entry)).modules)).toHaveLength(3);
  expect((await binaries(entry)).sort()).toEqual(['first', 'first', 'second']);
});

it('binaries of packages are found as other imports of packages are', async () => {
  const entry = write({
    'index.ts':
      "import a from 'some-package/lib/code.wasm'; import b from '@some/scoped/code.wasm?module'; console.log(a, b);",
    'node_modules/some-package/package.json': '{"name":"some-package","version":"1.0.0"}',
    'node_modules/some-package/lib/code.wasm': 'of a package',
    'node_modules/@some/scoped/package.json': '{"name":"@some/scoped","exports":{"./code.wasm":"./dist/it.wasm"}}',
    'node_modules/@some/scoped/dist/it.wasm': 'exported',
  });
  expect(await binaries(entry)).toEqual(['of a package', 'exported']);
});

it('a binary that is not there is refused with the place of its import', async () => {
  const entry = write({ 'index.ts': "\nimport a from './gone.wasm';\nconsole.log(a);" });
  await expect(bundleProject(entry)).rejects.toMatchObject({
    code: 'code_rejected',
    errors: [{ file: 'index.ts', line: 2 }],
  });
});

it("Node's own modules are left to workerd by their bare names, unless a package has the name", async () => {
  const entry = write({
    'index.ts':
      "import crypto from 'crypto'; import { readFile } from 'fs/promises'; import old from 'some-package';\n" +
      'console.log(crypto, readFile, old);',
    'node_modules/some-package/package.json': '{"name":"some-package","main":"index.js"}',
    'node_modules/some-package/index.js': "module.exports = [require('events'), require('node:net'), require('util')];",
    'node_modules/util/package.json': '{"name":"util","main":"util.js"}',
    'node_modules/util/util.js': "module.exports = 'the package util';",
  });
  const { modules, main } = await bundleProject(entry);
  const imported = [...String(modules[main]).matchAll(/^import .*from "(.*)";$/gm)].map(([, name]) => name);
  expect(imported.sort()).toEqual(['node:crypto', 'node:events', 'node:fs/promises', 'node:net']);
  expect(modules[main]).toContain('the package util');
});

it('require() of a package with two forms gets the one for require()', async () => {
  const entry = write({
    'index.ts': "import a from 'outer'; console.log(a);",
    'node_modules/outer/package.json': '{"name":"outer","main":"index.js"}',
    'node_modules/outer/index.js': "module.exports = require('inner');",
    'node_modules/inner/package.json': '{"name":"inner","exports":{"import":"./es.mjs","require":"./common.js"}}',
    'node_modules/inner/es.mjs': "export default 'for import';",
    'node_modules/inner/common.js': "module.exports = 'for require';",
  });
  const { modules, main } = await bundleProject(entry);
  expect(modules[main]).toContain('for require');
  expect(modules[main]).not.toContain('for import');
});

it.each([
  ['zod', 'zod'],
  ['@some/scoped/part', '@some/scoped'],
])('a package that is not installed (%s) is refused with the command that installs it', async (name, installed) => {
  const detail = `Could not resolve "${name}": run npm install, or npm install ${installed}`;
  await expect(bundleProject(write({ 'index.ts': `import '${name}';` }))).rejects.toMatchObject({
    code: 'code_rejected',
    message: detail,
    errors: [{ detail, file: 'index.ts', line: 1 }],
  });
});

it.each(['./gone.ts', '/gone.ts'])('a file that is not there (%s) is no package', async (name) => {
  const entry = write({ 'index.ts': `import '${name}';` });
  await expect(bundleProject(entry)).rejects.toMatchObject({ message: `Could not resolve "${name}"` });
});
