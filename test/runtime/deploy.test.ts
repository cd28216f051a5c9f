import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { CodeStore, digestOf } from '../../host/runtime/code-store.ts';
import { bundleSources } from '../../host/runtime/deploy/bundle-sources.ts';
import { type CodeInput, readCodeInput } from '../../host/runtime/deploy/code-input.ts';
import {
  checkCompatibility,
  knownCompatibilityDate,
  newestCompatibilityDate,
} from '../../host/runtime/deploy/compatibility.ts';
import { resolveImport } from '../../host/runtime/deploy/resolve-import.ts';
import type { CodeBundle } from '../../host/shared/contracts.ts';

describe('code input', () => {
  it('takes one string, or modules with a main', () => {
    expect(readCodeInput({ code: 'x' })).toMatchObject({ main: 'index.ts', single: true });
    expect(readCodeInput({ modules: { './a.ts': 'x', 'b/c.wasm': { base64: 'AA==' } }, main: 'a.ts' })).toMatchObject({
      main: 'a.ts',
      single: false,
      modules: [{ name: 'a.ts' }, { name: 'b/c.wasm', bytes: new Uint8Array([0]) }],
    });
  });

  it.each<[string, CodeInput, string]>([
    ['nothing', {}, '/code'],
    ['both', { code: 'x', modules: { a: 'x' } }, '/code'],
    ['no main', { modules: { 'a.js': 'x' } }, '/main'],
    ['a main that is not there', { modules: { 'a.js': 'x' }, main: 'b.js' }, '/main'],
    ['a way up', { modules: { '../a.js': 'x' }, main: '../a.js' }, '/modules/..~1a.js'],
    ['an absolute name', { modules: { '/etc/passwd': 'x' }, main: '/etc/passwd' }, '/modules/~1etc~1passwd'],
    ['a way up inside', { modules: { 'a/../../b.js': 'x' }, main: 'a/../../b.js' }, '/modules/a~1..~1..~1b.js'],
    ['a name with a line break', { modules: { 'a\n.js': 'x' }, main: 'a\n.js' }, '/modules/a\n.js'],
    ['one name twice', { modules: { 'a.js': 'x', './a.js': 'y' }, main: 'a.js' }, '/modules'],
  ])('refuses %s', (_, input, pointer) => {
    expect(() => readCodeInput(input)).toThrow(
      expect.objectContaining({
        code: 'invalid_field',
        errors: expect.arrayContaining([expect.objectContaining({ pointer })]),
      }),
    );
  });
});

describe('imports', () => {
  const given = new Set(['src/index.ts', 'src/util.ts', 'lib/index.js', 'data.json', 'fs.ts']);
  const resolve = (specifier: string, importer = 'src/index.ts') =>
    resolveImport(specifier, importer, (name) => given.has(name));

  it.each([
    ['./util.ts', 'src/util.ts'],
    ['./util', 'src/util.ts'],
    ['./util.js', 'src/util.ts'],
    ['../lib', 'lib/index.js'],
    ['../data.json', 'data.json'],
    ['data.json', 'data.json'],
    ['fs', 'fs.ts'],
  ])('%s means %s', (specifier, name) => {
    expect(resolve(specifier)).toEqual({ kind: 'module', name });
  });

  it.each([
    ['cloudflare:workers', 'cloudflare:workers'],
    ['node:fs', 'node:fs'],
    ['crypto', 'node:crypto'],
  ])('%s is of the runtime', (specifier, name) => {
    expect(resolve(specifier)).toEqual({ kind: 'runtime', name });
  });

  it.each([
    '/etc/passwd',
    '../../../etc/passwd',
    'hono',
    './nothing',
    'file:///etc/passwd',
    'https://esm.sh/x',
    'data:text/javascript,x',
  ])('%s is nowhere', (specifier) => {
    expect(resolve(specifier)).toEqual({ kind: 'missing' });
  });
});

describe('bundle', () => {
  const bundle = async (input: CodeInput) => bundleSources(readCodeInput(input));

  it('bundles TypeScript modules into one, with binaries beside it', async () => {
    const result = await bundle({
      main: 'src/index.ts',
      modules: {
        'src/index.ts':
          "import { a } from './a.js'; import m from '../m.wasm'; export default { fetch: () => new Response(a), m };",
        'src/a.ts': "export const a: string = 'found';",
        'm.wasm': { base64: 'AGFzbQEAAAA=' },
      },
    });
    if ('errors' in result) throw new Error(JSON.stringify(result.errors));
    const [entry, wasm] = result.bundle.modules;
    expect(new TextDecoder().decode(entry!.body)).toContain('found');
    expect(wasm).toMatchObject({ name: 'm.wasm', type: 'wasm' });
    expect(JSON.parse(result.bundle.sourceMap!).sources).toContain('src/a.ts');
  });

  it.each([
    ['a syntax error', 'export default {\n  fetch( {', { line: 2, file: 'index.ts', pointer: '/code' }],
    [
      'a file of the host',
      'import x from "/etc/passwd"; export default x',
      { line: 1, detail: expect.stringContaining('/etc/passwd') },
    ],
    [
      'a required file of the host',
      'export default require("/etc/passwd")',
      { line: 1, detail: expect.stringContaining('/etc/passwd') },
    ],
    ['a pattern of files', ['const n = "x"; export default () => import(`./etc/', '{n}`)'].join('$'), { line: 1 }],
    [
      'a package',
      'import { Hono } from "hono"; export default new Hono()',
      { detail: expect.stringContaining('bundled before') },
    ],
  ])('refuses %s with its place', async (_, code, error) => {
    expect(await bundle({ code })).toMatchObject({ errors: [error] });
  });

  it('leaves modules by their names to code that computes what it imports', async () => {
    const modules = {
      'src/index.js':
        "import { count } from './shared.ts'; const names = {}; export default { fetch: (r) => import(names[r.url]) }; count();",
      'src/shared.ts': 'let n: number = 0; export const count = () => ++n;',
      'src/lang/de.mjs': "import { count } from '../shared.ts'; export default 'de'; export const n = count();",
      'src/lang/named.js': 'export const only = 1;',
      '[name] (1)/[hash]+$@.js': "import old from '../old.cjs'; export default old.three;",
      'old.cjs': 'exports.three = 3;',
      'notes.txt': 'text',
      'logo.png': { base64: 'AAEC' },
      'data.json': '{"a":1}',
    };
    const { bundle: made } = (await bundle({ main: 'src/index.js', modules })) as { bundle: CodeBundle };
    const text = (name: string) =>
      new TextDecoder().decode(made.modules.find((module) => module.name === name)?.body ?? new Uint8Array());
    const kinds = Object.fromEntries(made.modules.map(({ name, type }) => [name, type]));
    expect(made.modules[0]?.name).toBe('src/index.js');
    expect(new Set(made.modules.map(({ name }) => name)).size).toBe(made.modules.length);
    expect(kinds).toMatchObject({
      'src/lang/de.mjs': 'esModule',
      'notes.txt': 'text',
      'logo.png': 'data',
      'data.json': 'json',
    });
    expect(text('src/lang/named.js')).not.toContain('default');
    expect(text('src/lang/de.mjs')).toContain('from "/src/shared.ts"');
    expect(text('[name] (1)/[hash]+$@.js')).toContain('from "/old.cjs"');
    expect(text('old.cjs')).toContain('export default');
    // What two of them share, and what reports rejections, is there once.
    const all = made.modules.map(({ body }) => new TextDecoder().decode(body)).join('\n');
    expect(all.match(/\+\+n\b/g)).toHaveLength(1);
    expect(all.match(/unhandledrejection/g)).toHaveLength(1);
    expect(JSON.parse(made.sourceMap ?? '{}')).toMatchObject({ sources: expect.arrayContaining(['src/index.js']) });
  });

  it('keeps nothing of the sources but places in them', async () => {
    const result = await bundle({
      code: `/* ${'long '.repeat(10_000)} */ export default { fetch: () => new Response() };`,
    });
    if ('errors' in result) throw new Error('refused');
    expect(result.bundle.sourceMap?.length).toBeLessThan(1_000);
  });

  it('does not take one binary for another whose path looks the same when it is flat', async () => {
    const base64 = (text: string) => ({ base64: Buffer.from(text).toString('base64') });
    const result = await bundleSources(
      readCodeInput({
        main: 'index.ts',
        modules: {
          'index.ts': "import a from './a/b.bin'; import b from './a_b.bin'; export default { fetch: () => [a, b] }",
          'a/b.bin': base64('first'),
          'a_b.bin': base64('second'),
        },
      }),
    );
    if (!('bundle' in result)) throw new Error('does not bundle');
    const [entry, ...binaries] = result.bundle.modules;
    expect(binaries.map(({ body }) => new TextDecoder().decode(body)).sort()).toEqual(['first', 'second']);
    const imports = new TextDecoder().decode(entry?.body).match(/(?<=from "\.\/)[^"]+/g);
    expect(imports?.map((name) => binaries.find((module) => module.name === name)?.body.length)).toEqual([5, 6]);
  });

  it('does not read a source map of the host', async () => {
    const result = await bundle({ code: 'export default {};\n//# sourceMappingURL=/etc/passwd' });
    expect(JSON.stringify(result)).not.toContain('root:');
  });
});

describe('compatibility', () => {
  const now = Date.parse('2026-06-01T12:00:00Z');

  it('knows the newest date: today, or what workerd knows', () => {
    expect(newestCompatibilityDate(now)).toBe('2026-06-01');
    expect(newestCompatibilityDate(Date.parse('2100-01-01'))).toMatch(/^20\d\d-\d\d-\d\d$/);
    expect(newestCompatibilityDate(Date.parse('2100-01-01')) < '2100-01-01').toBe(true);
  });

  it.each([
    ['2026-06-02', [], '/compatibilityDate'],
    ['2026-13-40', [], '/compatibilityDate'],
    ['1999-01-01', [], '/compatibilityDate'],
    ['2026-01-01', ['Nodejs Compat'], '/compatibilityFlags/0'],
  ])('refuses %s %j', (date, flags, pointer) => {
    expect(() => checkCompatibility(date, flags, now)).toThrow(
      expect.objectContaining({ errors: [expect.objectContaining({ pointer })] }),
    );
  });

  it('a date that workerd does not know yet is the newest that it knows, and one in the future is refused', () => {
    const later = Date.parse('2100-01-02');
    const newest = newestCompatibilityDate(later);
    expect(knownCompatibilityDate('2100-01-01', later)).toBe(newest);
    expect(knownCompatibilityDate('2026-01-01', later)).toBe('2026-01-01');
    expect(knownCompatibilityDate('2100-01-03', later)).toBe('2100-01-03');
  });

  it('takes what is fine', () => {
    expect(() => checkCompatibility('2026-06-01', ['nodejs_compat'], now)).not.toThrow();
  });
});

describe('code store', () => {
  let folder: string;
  const bundle = (text: string): CodeBundle => ({
    modules: [{ name: 'index.js', type: 'esModule', body: new TextEncoder().encode(text) }],
    sourceMap: '{"version":3}',
  });
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'code-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('keeps one copy per content, and gives back what it was given', async () => {
    const store = new CodeStore(folder);
    const [a, b] = await Promise.all([store.put(bundle('x')), store.put(bundle('x'))]);
    expect(a).toBe(b);
    expect(await store.put(bundle('y'))).not.toBe(a);
    expect(readdirSync(folder)).toHaveLength(2);
    const fresh = await new CodeStore(folder).get(a);
    expect(digestOf(fresh)).toBe(a);
    expect(fresh).toEqual(bundle('x'));
  });

  it('does not serve code that changed on disk', async () => {
    const digest = await new CodeStore(folder).put(bundle('x'));
    writeFileSync(join(folder, digest, 'module-0'), 'tampered');
    await expect(new CodeStore(folder).get(digest)).rejects.toMatchObject({ code: 'start_failed' });
  });

  it('is whole again after the same content was deployed again', async () => {
    const digest = await new CodeStore(folder).put(bundle('x'));
    writeFileSync(join(folder, digest, 'module-0'), 'tampered');
    const store = new CodeStore(folder);
    await expect(store.get(digest)).rejects.toMatchObject({ message: expect.stringContaining('deploy it again') });
    expect(await store.put(bundle('x'))).toBe(digest);
    expect(await new CodeStore(folder).get(digest)).toEqual(bundle('x'));
    expect(readdirSync(folder)).toEqual([digest]);
  });

  it('names what it writes ahead only when that is kept, and leaves nothing of what is not', async () => {
    const store = new CodeStore(folder);
    const [kept, refused] = [store.stage(bundle('x')), store.stage(bundle('y'))];
    expect(await store.list()).toEqual([]);
    await refused.discard();
    const digest = await kept.keep(['Admin']);
    expect(await store.get(digest)).toEqual({ ...bundle('x'), entrypoints: ['Admin'] });
    expect(digest).toBe(digestOf({ ...bundle('x'), entrypoints: ['Admin'] }));
    expect(readdirSync(folder)).toEqual([digest]);
  });

  const unused = async (): Promise<boolean> => true;

  it('does not remove what was put lately, which a deploy is about to name', async () => {
    const store = new CodeStore(folder);
    const digest = await store.put(bundle('x'));
    await store.remove(digest, unused);
    expect(await new CodeStore(folder).get(digest)).toEqual(bundle('x'));
    // As when the last deployment with the same code is purged meanwhile.
    const other = new CodeStore(folder);
    await Promise.all([other.remove(digest, unused), other.put(bundle('x'))]);
    expect(await new CodeStore(folder).get(digest)).toEqual(bundle('x'));
  });

  it('removes what was released at once, unless another deploy put it too or it is named', async () => {
    const store = new CodeStore(folder);
    const digest = await store.put(bundle('x'));
    await store.put(bundle('x'));
    store.release(digest);
    await store.remove(digest, unused);
    expect(await store.list()).toEqual([digest]);
    store.release(digest);
    await store.remove(digest, async () => false);
    expect(await store.list()).toEqual([digest]);
    await store.remove(digest, unused);
    expect(await store.list()).toEqual([]);
  });

  it('sweeps what crashes and refused deploys left behind', async () => {
    const [used, unused] = [await new CodeStore(folder).put(bundle('x')), await new CodeStore(folder).put(bundle('y'))];
    mkdirSync(join(folder, '.new-crashed'));
    utimesSync(join(folder, '.new-crashed'), 1, 1);
    mkdirSync(join(folder, '.new-now'));
    const store = new CodeStore(folder);
    const fresh = await store.put(bundle('z'));
    await store.sweep(async (digests) => digests.filter((digest) => digest !== used));
    expect(readdirSync(folder).sort()).toEqual(['.new-now', used, fresh].sort());
    expect(await store.list()).not.toContain(unused);
  });

  it('does not follow a digest out of its folder', async () => {
    await expect(new CodeStore(folder).get('../../etc')).rejects.toMatchObject({ code: 'internal' });
  });
});
