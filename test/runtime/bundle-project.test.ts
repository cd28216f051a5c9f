import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { bundleProject, type ProjectBuild } from '../../host/runtime/bundle-project.ts';

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

/** The text of the bundle, with what is beside it. */
async function bundled(files: Record<string, string>, options?: ProjectBuild) {
  const { modules, main } = await bundleProject(write(files), options);
  const { [main]: code, ...beside } = modules;
  return { code: String(code).replace(/\/\/# sourceMappingURL=.*/s, ''), beside: Object.keys(beside) };
}

it('rules say what files are; data keeps its bytes under a name that the host knows', async () => {
  const { code, beside } = await bundled(
    {
      'index.ts':
        "import a from './a.tpl'; import b from './img/b.png'; import c from './c.js.txt'; console.log(a, b, c);",
      'a.tpl': 'a template',
      'img/b.png': 'PNG',
      'c.js.txt': 'no code',
    },
    {
      rules: [
        { type: 'Text', globs: ['**/*.tpl'] },
        { type: 'Data', globs: ['img/*.png'] },
      ],
    },
  );
  expect(code).toContain('a template');
  expect(code).toContain('no code');
  expect(beside).toEqual([expect.stringMatching(/^b-[0-9a-f]{12}\.bin$/)]);
});

it('a rule may be about files that would be code', async () => {
  const { code } = await bundled(
    { 'index.ts': "import page from './page.js'; console.log(page);", 'page.js': 'export default 1 +' },
    { rules: [{ type: 'Text', globs: ['page.js'] }] },
  );
  expect(code).toContain('export default 1 +');
});

it('alias, define and JSX in .js work as in wrangler', async () => {
  const { code } = await bundled(
    {
      'index.ts': "import a from 'old'; import c from './c.js'; console.log(a, c, VERSION);",
      'new.ts': "export default 'the new one';",
      'c.js': 'const h = (tag) => tag; export default <b />;',
    },
    {
      alias: { old: path.join(folder, 'new.ts') },
      define: { VERSION: '"1.2"' },
      jsxFactory: 'h',
    },
  );
  expect(code).toContain('the new one');
  expect(code).toContain('"1.2"');
  expect(code).toContain('h("b"');
});

it('what is external is left to workerd, although a package has the name', async () => {
  const files = {
    'index.ts': "import a from 'util'; import b from 'node:path'; console.log(a, b, require('util'));",
    'node_modules/util/package.json': '{"name":"util","main":"util.js"}',
    'node_modules/util/util.js': "module.exports = 'the package util';",
  };
  expect((await bundled(files)).code).toContain('the package util');
  const { code } = await bundled(files, { external: ['util', 'cloudflare:sockets'] });
  expect(code).not.toContain('the package util');
  expect(code.match(/from "node:util"/g)).toHaveLength(2);
});

it('what workerd does not have cannot be external', async () => {
  await expect(bundled({ 'index.ts': '' }, { external: ['util', 'fsevents'] })).rejects.toMatchObject({
    code: 'code_rejected',
    message: expect.stringContaining('fsevents'),
  });
});

it('the source map has places and no text', async () => {
  const { modules, main } = await bundleProject(write({ 'index.ts': "export default 'a secret' as string;" }));
  const map = JSON.parse(
    Buffer.from(/base64,(\S+)/.exec(String(modules[main]))?.[1] ?? '', 'base64').toString(),
  ) as object;
  expect(map).toMatchObject({ sources: ['index.ts'], mappings: expect.stringMatching(/./) });
  expect(JSON.stringify(map)).not.toContain('a secret');
});

it('packages get their form for production', async () => {
  const { code } = await bundled({
    'index.ts': "console.log(process.env.NODE_ENV === 'production' ? 'fast' : 'slow');",
  });
  expect(code).toContain('true ? "fast" : "slow"');
});

it('a computed import finds all files that it may mean', async () => {
  const { code } = await bundled({
    'index.ts': "export default { fetch: async (r) => (await import('./lang/' + r + '.ts')).default };",
    'lang/de.ts': "export default 'Guten Tag';",
    'lang/fr.ts': "export default 'Bonjour';",
  });
  expect(code).toContain('Guten Tag');
  expect(code).toContain('Bonjour');
});
