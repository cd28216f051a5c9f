/** Which requests a file answers, as control writes it for edges: what is not sure is left to workerd. */
import { expect, it, test } from 'vitest';
import { PathPattern, TooMuchWork } from '../../host/assets/path-rules.ts';
import { plainFiles, tableName } from '../../host/assets/plain-files.ts';
import { readHeaders } from '../../host/assets/rule-files.ts';
import type { AssetSettings } from '../../host/shared/contracts.ts';
import { expectTime } from '../times.ts';

const HASH = 'a'.repeat(64);
const files = (...names: string[]) => Object.fromEntries(names.map((name) => [name, HASH]));

async function table(
  names: string[],
  { headers, redirects, ...settings }: Partial<AssetSettings> & { headers?: string; redirects?: string } = {},
) {
  const made = await plainFiles({ list: HASH, ...settings }, { files: files(...names), headers, redirects });
  const at = (path: string) => made.fields[made.paths[path]?.[1] ?? -1];
  return { ...made, places: Object.keys(made.paths).sort(), at };
}

const match = (pattern: string, path: string, steps = 1_000) => new PathPattern(pattern, true).match(path, { steps });

it.each<[string, string, Record<string, string> | undefined]>([
  ['/a', '/a', {}],
  ['/a', '/ab', undefined],
  ['/*', '/a/b', { splat: 'a/b' }],
  ['/*', '/', { splat: '' }],
  ['/*.js', '/a.js.js', { splat: 'a.js' }],
  ['/:year/:name', '/2026/x', { year: '2026', name: 'x' }],
  ['/:year/:name', '/2026/', undefined],
  ['/:a.:b', '/x.y.z', { a: 'x.y', b: 'z' }],
  ['/a:b', '/ac', { b: 'c' }],
  ['/p/:x/*', '/p/q/r/s', { x: 'q', splat: 'r/s' }],
  ['/a+b', '/aab', undefined],
])('%s at %s', (pattern, path, found) => {
  const result = match(pattern, path);
  expect(result && Object.fromEntries(result)).toEqual(found);
});

it('a pattern that would keep a regular expression for years ends soon', async () => {
  const hostile = `/${':a1:b2:c3:d4:e5:f6:g7:h8:i9:j0'.repeat(9)}x`;
  expect(() => match(hostile, `/${'a'.repeat(900)}`, 100_000)).toThrow(TooMuchWork);
  expect(match('/*a*a*a*a*a*a*b', `/${'a'.repeat(900)}`, 10_000_000)).toBeUndefined();
  const rule = `/:a${Array.from({ length: 90 }, (_, index) => `:b${index}x`).join('')}/*\n  X-A: 1\n`;
  const names = Array.from({ length: 2_000 }, (_, index) => `/${'a'.repeat(200)}${index}`);
  const begun = performance.now();
  const made = await table(names, { headers: rule.repeat(90) });
  expectTime('a table of hostile patterns', performance.now() - begun, 20_000);
  expect(made.places.length === 0 || made.places.length === 2_000).toBe(true);
});

it('paths are those that are asked, escaped', async () => {
  const { places } = await table(['/index.html', '/a b/ü.html', '/%41', '/_headers', '/x/_redirects', '/cdn-cgi/x']);
  expect(places).toEqual(['/', '/%2541', '/a%20b/%C3%BC']);
});

it('what is redirected, rewritten or for the code is left out', async () => {
  const names = ['/a', '/b', '/api/x', '/api/doc', '/c/d'];
  expect((await table(names, { redirects: '/a /b\n/c/* /b 200\n' })).places).toEqual(['/api/doc', '/api/x', '/b']);
  expect((await table(names, { redirects: '/* /index.html 200\n' })).places).toHaveLength(5);
  expect((await table(names, { redirects: '/* /index.htm 200\n' })).places).toHaveLength(0);
  const runWorkerFirst = ['/api/*', '!/api/doc'];
  expect((await table(names, { runWorkerFirst })).places).toEqual(['/a', '/api/doc', '/b', '/c/d']);
  for (const none of [true, ['!/a'], ['a']]) expect((await table(names, { runWorkerFirst: none })).places).toEqual([]);
  expect((await table(names, { basePath: '/x' })).places).toEqual(names.map((name) => `/x${name}`).sort());
  expect((await table(names, { basePath: '/x/' })).places).toEqual([]);
});

test('fields', async () => {
  const headers = `/*
  Cache-Control: no-transform
  X-A: one
/a.css
  X-A: two
  ! Cache-Control
/b.css
  ETag: mine
https://x.example/*
  X-B: x
https://:sub.pages.example/*
  X-B: y
`;
  const { at, places, exceptHosts } = await table(['/a.css', '/b.css', '/c.css', '/d.png', '/e.unknown'], { headers });
  expect(places).toEqual(['/a.css', '/c.css', '/d.png', '/e.unknown']);
  expect(exceptHosts).toEqual(['x.example', '.pages.example']);
  expect(at('/a.css')).toEqual({ lines: 'content-type: text/css; charset=utf-8\r\nx-a: one, two\r\n', coded: true });
  expect(at('/c.css')).toMatchObject({ coded: false, lines: expect.stringContaining('cache-control: no-transform') });
  expect(at('/e.unknown')?.lines).not.toContain('content-type');
  expect((await table(['/a'], { headers: 'https://*/*\n  X: 1\n' })).places).toEqual([]);
  expect((await table(['/a.js'])).at('/a.js')).toEqual({
    lines: 'content-type: text/javascript; charset=utf-8\r\n',
    cacheControl: 'public, max-age=0, must-revalidate',
    coded: true,
  });
  expect((await table(['/a'], { headers: '/a\n  X-A: ü\n' })).at('/a')?.lines).toBe('x-a: Ã¼\r\n');
});

it("rules that are not plain are nobody's guess", () => {
  for (const path of ['/*/*', '/:a/:a', '/:a/:ab', '/:splat/*'])
    expect(readHeaders(`${path}\n  X-A: 1\n`)).toBeUndefined();
  expect(readHeaders('X: 1\n/a\n# no\n/b\n  no\n  : x\n  Y:\n  A B: c\n  Z: 1\n')).toHaveLength(1);
});

it('other settings have another table, the same the same', () => {
  const name = tableName({ list: HASH });
  expect(name).toBe(tableName({ list: HASH, binding: 'FILES' }));
  expect(tableName({ list: HASH, htmlHandling: 'none' })).not.toBe(name);
  expect(name).toMatch(/^[0-9a-f]{64}\.[0-9a-f]{16}$/);
});
