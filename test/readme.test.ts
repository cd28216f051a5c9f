import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { checkSlug } from '../host/control/deployment-input.ts';
import { withSettings } from '../scripts/readme-settings.ts';

it('the settings table of the README is that of the schema', () => {
  const readme = readFileSync('README.md', 'utf8');
  expect(withSettings(readme)).toBe(readme);
});

it('the commands of the README name slugs that a host takes', () => {
  const { slugs } = JSON.parse(readFileSync('config/turnpike.default.json', 'utf8')) as {
    slugs: { reserved: string[] };
  };
  const named = [...readFileSync('README.md', 'utf8').matchAll(/--slug ([\w-]+)|"slug":"([^"]+)"/g)];
  expect(named.length).toBeGreaterThan(2);
  for (const [, flag, member] of named) expect(checkSlug(flag ?? member, slugs.reserved)).toBe(flag ?? member);
});
