import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { checkSlug } from '../host/control/deployment-input.ts';
import { references } from '../scripts/generate-reference.ts';

it.each(Object.entries(references()))('%s is what scripts/generate-reference.ts makes', (path, text) => {
  expect(readFileSync(path, 'utf8'), 'run node scripts/generate-reference.ts').toBe(text);
});

it('every setting and every member of a project’s file is described', () => {
  for (const page of ['host/SETTINGS.md', 'host/cli/project/MANIFEST.md']) {
    const rows = readFileSync(page, 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('| `'));
    expect(rows.length).toBeGreaterThan(10);
    expect(rows.filter((row) => /\|\s*\|$/.test(row))).toEqual([]);
  }
});

it('the commands of the README name slugs that a host takes', () => {
  const { slugs } = JSON.parse(readFileSync('config/turnpike.default.json', 'utf8')) as {
    slugs: { reserved: string[] };
  };
  const named = [...readFileSync('README.md', 'utf8').matchAll(/--slug ([\w-]+)|"slug":"([^"]+)"/g)];
  expect(named.length).toBeGreaterThan(2);
  for (const [, flag, member] of named) expect(checkSlug(flag ?? member, slugs.reserved)).toBe(flag ?? member);
});
