/** Writes the configuration table of README.md from the schema; `--check` only compares. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { settings } from '../host/supervisor/configuration.ts';

const README = fileURLToPath(new URL('../README.md', import.meta.url));
const BEGIN = '<!-- settings: made by scripts/readme-settings.ts -->';
const END = '<!-- /settings -->';

export function withSettings(readme: string): string {
  const from = readme.indexOf(BEGIN);
  const to = readme.indexOf(END);
  if (from < 0 || to < from) throw new Error('README.md has lost the marks of its settings table');
  const rows = settings().map(
    ({ key, description, default: value }) =>
      `| \`${key}\` | \`${JSON.stringify(value).replaceAll('|', '\\|')}\` | ${description.replaceAll('|', '\\|')} |`,
  );
  const table = ['| setting | default | |', '| --- | --- | --- |', ...rows].join('\n');
  return `${readme.slice(0, from)}${BEGIN}\n${table}\n${readme.slice(to)}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const present = readFileSync(README, 'utf8');
  const wanted = withSettings(present);
  if (process.argv.includes('--check')) {
    if (present !== wanted) {
      console.error('README.md: the settings table is not that of the schema; run node scripts/readme-settings.ts');
      process.exit(1);
    }
  } else writeFileSync(README, wanted);
}
