// `npm test -- [--install-system] [--strict] [--times] [--unit | --e2e] [file …]`: type check, lint, unit tests, end-to-end
// tests. `--strict`: nothing that fails is tried again. `--times`: limits on times count, too; they hold
// on a quiet machine only.
// The last line sums up: `N passed, N failed`. Each type check and the lint count as one.
import { runChecks } from './check.mjs';
import { prepare } from './launch.mjs';
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
  const { passed, failed, names: failedHere } = runChecks(node);
  count(passed, failed);
  names.push(...failedHere);
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

function count(passed, failed) {
  total.passed += passed;
  total.failed += failed;
}
