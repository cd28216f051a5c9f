// `npm test -- [--install-system] [--strict] [--times] [--unit | --e2e] [file …]`: type check, lint, unit tests, end-to-end
// tests. `--strict`: nothing that fails is tried again. `--times`: limits on times count, too; they hold
// on a quiet machine only.
// The last line sums up: `N passed, N failed`. Each type check and the lint count as one.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { prepare, root, run } from './launch.mjs';
import { installSystemPackages } from './system-packages.mjs';
import { nameFailed, runTests } from './vitest.mjs';

const args = process.argv.slice(2);
const files = args.filter((arg) => !arg.startsWith('--'));
const only = ['unit', 'e2e'].filter((project) => args.includes(`--${project}`));
const FLAGS = ['--install-system', '--strict', '--times', '--unit', '--e2e'];
const unknown = args.find((arg) => arg.startsWith('--') && !FLAGS.includes(arg));
if (unknown) {
  console.error(
    `Not known: ${unknown}. Usage: npm test -- [--install-system] [--strict] [--times] [--unit | --e2e] [file …]`,
  );
  process.exit(2);
}

if (args.includes('--times')) process.env.JUDGE_TIMES = '1';

// Side by side: each waits for the network most of the time.
const [node] = await Promise.all([
  prepare({ development: true }),
  args.includes('--install-system') && installSystemPackages(['run', 'test']),
]);
const total = { passed: 0, failed: 0 };
const names = [];

if (files.length === 0 && only.length === 0) {
  await check('type check', ['node_modules/typescript/bin/tsc', '-p', '.']);
  // Built-in tenants run in workerd, with types and settings of their own.
  for (const name of readdirSync(join(root, 'builtin-tenants'))) {
    const folder = join('builtin-tenants', name);
    if (!existsSync(join(root, folder, 'tsconfig.json'))) continue;
    await check(`type check of ${name}`, ['node_modules/typescript/bin/tsc', '-p', folder]);
  }
  await check('lint', ['node_modules/@biomejs/biome/bin/biome', 'ci', '--colors=off', '.']);
}
const projects = { unit: ['unit'], e2e: ['e2e', 'e2e-alone'] };
for (const project of (only.length > 0 ? only : ['unit', 'e2e']).flatMap((name) => projects[name])) {
  console.log(`\n# ${project} tests`);
  const { passed, failed, names: failedHere } = await runTests(node, project, files, args.includes('--strict'));
  count(passed, failed);
  names.push(...failedHere);
}

nameFailed(names);
console.log(`\n${total.passed} passed, ${total.failed} failed`);
process.exit(total.failed > 0 || total.passed === 0 ? 1 : 0);

async function check(name, command) {
  console.log(`\n# ${name}`);
  const code = await run(node, command, { cwd: root });
  count(code === 0 ? 1 : 0, code === 0 ? 0 : 1);
  if (code !== 0) names.push(name);
  console.log(code === 0 ? 'ok' : `${name} failed`);
}

function count(passed, failed) {
  total.passed += passed;
  total.failed += failed;
}
