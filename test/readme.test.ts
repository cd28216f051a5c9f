import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { withSettings } from '../scripts/readme-settings.ts';

it('the settings table of the README is that of the schema', () => {
  const readme = readFileSync('README.md', 'utf8');
  expect(withSettings(readme)).toBe(readme);
});
