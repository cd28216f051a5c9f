import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { parseManifest, parsePrice, projectSettings, readProject, slugOf } from '../../host/cli/project/manifest.ts';
import { readManifestSecrets, readSecretFlags } from '../../host/cli/project/secrets.ts';
import { fakeTerminal, runCommand } from './fake-terminal.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'turnpike-project-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('prices on the command line', () => {
  test.each([
    ['POST /v1/x=0.05', { method: 'POST', path: '/v1/x', price: '0.05', mode: 'fixed' }],
    ['post /v1/x<=0.05', { method: 'POST', path: '/v1/x', price: '0.05', mode: 'metered' }],
    ['/all/*=1', { method: '*', path: '/all/*', price: '1', mode: 'fixed' }],
    ['GET /a = $2.5', { method: 'GET', path: '/a', price: '2.5', mode: 'fixed' }],
  ])('%s', (text, expected) => {
    expect(parsePrice(text)).toEqual(expected);
  });

  test.each(['', 'POST /v1/x', 'POST v1=1', 'POST /x=-1', 'POST /x=free', 'POST /x=1 USD'])('%s is refused', (text) => {
    expect(() => parsePrice(text)).toThrow(/--price/);
  });
});

describe('the manifest', () => {
  test('carries everything; flags win', async () => {
    writeFileSync(
      join(folder, 'turnpike.json'),
      JSON.stringify({
        slug: 'hello',
        entry: 'src/index.ts',
        bindings: { kv: true, d1: {}, r2: { MEDIA: { id: 'm' } } },
        vars: { LIST: [1] },
        crons: ['0 * * * *'],
        paidRoutes: [{ method: 'GET', path: '/a', price: '1' }],
        secrets: { KEY: '@key.txt' },
        payTo: `0x${'1'.repeat(40)}`,
      }),
    );
    const project = await readProject({ cwd: folder }, undefined);
    expect(slugOf(project, undefined)).toBe('hello');
    expect(slugOf(project, 'other')).toBe('other');
    expect(projectSettings(project, { r2: true, price: ['GET /b=2'] })).toEqual({
      bindings: { kv: true, d1: {}, r2: { MEDIA: { id: 'm' }, BUCKET: {} } },
      vars: { LIST: [1] },
      crons: ['0 * * * *'],
      paidRoutes: [{ method: 'GET', path: '/b', price: '2', mode: 'fixed' }],
      payTo: `0x${'1'.repeat(40)}`,
    });
  });

  test('is found beside the entry file', async () => {
    writeFileSync(join(folder, 'turnpike.json'), '{"slug":"near"}');
    const project = await readProject({ cwd: '/' }, join(folder, 'index.ts'));
    expect(project).toEqual({ manifest: { slug: 'near' }, folder, found: true });
  });

  test('no manifest means nothing is set', async () => {
    const project = await readProject({ cwd: folder }, undefined);
    expect(projectSettings(project, {})).toEqual({});
    expect(() => slugOf(project, undefined)).toThrow(/--slug/);
  });

  test('names the host that is talked to, once it is confirmed', async () => {
    writeFileSync(join(folder, 'turnpike.json'), '{"slug":"hello","host":"https://host.example"}');
    const asked: string[] = [];
    const fetch = (async (input: string | URL | Request) => {
      asked.push(input instanceof Request ? input.url : String(input));
      return Response.json({ code: 'not_found', detail: 'There is none.' }, { status: 404 });
    }) as typeof globalThis.fetch;
    const get = (...args: string[]) =>
      runCommand(['get', ...args], { terminal: fakeTerminal({ cwd: folder, home: folder }), fetch });
    await expect(get()).rejects.toMatchObject({
      exit: 'usage',
      message: expect.stringContaining('--host-url https://host.example'),
    });
    expect(asked).toEqual([]);
    await expect(get('--host-url', 'https://host.example')).rejects.toThrow();
    await expect(get('--host-url', 'https://other.example')).rejects.toThrow();
    expect(asked).toEqual(['https://host.example/_admin/get/hello', 'https://other.example/_admin/get/hello']);
  });

  test('a turnpike.json with the settings of a host is none, unless it is named', async () => {
    writeFileSync(join(folder, 'turnpike.json'), '{"host":"0.0.0.0","payments":{"network":"tempo"}}');
    expect((await readProject({ cwd: folder }, undefined)).manifest).toEqual({});
    await expect(readProject({ cwd: folder }, undefined, 'turnpike.json')).rejects.toMatchObject({ exit: 'usage' });
  });

  test('that is named must be there', async () => {
    await expect(readProject({ cwd: folder }, undefined, 'other.json')).rejects.toMatchObject({ exit: 'usage' });
  });

  test.each([
    ['{', 'not JSON'],
    ['{"slugg":"x"}', 'slugg'],
    ['{"secrets":{"KEY":"in clear"}}', 'values do not belong here'],
    ['{"payments":{"network":"local"}}', 'turnpike.host.json'],
  ])('%s is refused', (text, words) => {
    expect(() => parseManifest(text, 'turnpike.json')).toThrow(words);
  });
});

describe('secrets', () => {
  test('come from files, variables, stdin and the command line; one line feed at the end is dropped', async () => {
    writeFileSync(join(folder, 'key.txt'), 'from a file\n');
    const terminal = fakeTerminal({ cwd: folder, env: { VARIABLE: 'from a variable' }, input: 'from stdin\n\n' });
    expect(await readSecretFlags(['A=@key.txt', 'B=env:VARIABLE', 'C=-', 'D=a=b'], terminal)).toEqual({
      A: 'from a file',
      B: 'from a variable',
      C: 'from stdin\n',
      D: 'a=b',
    });
    const project = { folder, manifest: { secrets: { A: '@key.txt', B: 'env:VARIABLE' } } };
    expect(await readManifestSecrets(project, fakeTerminal({ env: { VARIABLE: 'v' } }), async () => {})).toEqual({
      A: 'from a file',
      B: 'v',
    });
  });

  test('a bad one is refused without its value', async () => {
    const refused = readSecretFlags(['1KEY=hunter2'], fakeTerminal());
    await expect(refused).rejects.toMatchObject({ exit: 'usage' });
    await expect(refused).rejects.not.toThrow(/hunter2/);
    await expect(readSecretFlags(['A=@none'], fakeTerminal({ cwd: folder }))).rejects.toThrow(/ENOENT/);
    await expect(readSecretFlags(['A=env:NONE'], fakeTerminal())).rejects.toThrow(/not set/);
  });
});
