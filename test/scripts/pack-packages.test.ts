/** What is packed is what the host imports, and is the same as in node_modules. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const project = mkdtempSync(path.join(tmpdir(), 'turnpike-pack-'));
const parent = path.join(project, 'packs');
const folder = path.join(parent, 'packed');
let index: Record<string, string>;

beforeAll(() => {
  // For what is left out of it.
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(project, 'node_modules'));
  // Of three versions before, and of one that was killed.
  for (const [age, name] of ['newer', 'new', 'old', '.unfinished-old'].entries()) {
    const at = Date.now() / 1_000 - (age + 1) * 3_600;
    mkdirSync(path.join(parent, name), { recursive: true });
    utimesSync(path.join(parent, name), at, at);
  }
  execFileSync(process.execPath, ['scripts/pack-packages.mjs', folder], { cwd: ROOT });
  index = JSON.parse(readFileSync(path.join(folder, 'index.json'), 'utf8'));
});
afterAll(() => rmSync(project, { recursive: true }));

it('is all that the host imports of these packages, and nothing else', () => {
  const packages = new Set(Object.keys(index).map((name) => name.split('/', name.startsWith('@') ? 2 : 1).join('/')));
  const imported = readdirSync(path.join(ROOT, 'host'), { recursive: true, encoding: 'utf8' })
    .filter((file) => /\.c?ts$|\.cjs$/.test(file) && !file.includes('/templates/'))
    .flatMap((file) => {
      const text = readFileSync(path.join(ROOT, 'host', file), 'utf8');
      // Types are not loaded.
      return [
        ...text.matchAll(/(?:^(?:import|export) (?!type )[^;]*? from |\b(?:import|require)\()['"]([^'".][^'"]*)['"]/gm),
      ];
    })
    .map(([, name]) => name as string)
    .filter((name) => packages.has(name.split('/', name.startsWith('@') ? 2 : 1).join('/')));
  expect([...new Set(imported)].toSorted()).toEqual(Object.keys(index).toSorted());
});

it('exports what the packages export', () => {
  expect(exported(([, file]) => path.join(folder, file))).toEqual(exported(([name]) => name));
});

/** Names by package, as a process of its own finds them. */
function exported(where: (entry: [string, string]) => string): Record<string, string[]> {
  const code = `const found = {};
for (const [name, from] of ${JSON.stringify(Object.entries(index).map((entry) => [entry[0], where(entry)]))})
  found[name] = Object.keys(await import(from)).filter((one) => !['module.exports', '__esModule'].includes(one)).sort();
console.log(JSON.stringify(found));`;
  const args = ['--input-type=module', '--eval', code];
  const found = JSON.parse(execFileSync(process.execPath, args, { cwd: ROOT, encoding: 'utf8' }));
  expect(found.viem.length).toBeGreaterThan(100);
  return found;
}

it('leaves two versions before it, and nothing unfinished', () => {
  expect(readdirSync(parent).toSorted()).toEqual(['new', 'newer', 'packed']);
});
