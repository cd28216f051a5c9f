// `npm test -- [--install-system] [--strict] [--times] [--unit | --e2e] [file or folder …]`: types, lint, unit tests,
// end-to-end tests. With files or folders (`test/edge`, or a piece of a name such as `x402`) only their tests run.
// `--strict`: nothing that fails is tried again.
// `--times`: limits on times count, too; they hold on a quiet machine only.
// The last line sums up: `N passed, N failed`. Each check counts as one.
import { existsSync, readdirSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { runChecks } from './check.mjs';
import { prepare, root } from './launch.mjs';
import { installSystemPackages } from './system-packages.mjs';
import { nameFailed, nameRetried, runTests, TRIES } from './vitest.mjs';

const FLAGS = ['--install-system', '--strict', '--times', '--unit', '--e2e'];
const args = process.argv.slice(2);
const unknown = args.find((arg) => arg.startsWith('--') && !FLAGS.includes(arg));
if (unknown) refuse(`Not known: ${unknown}.`);
// Vitest compares with paths from the root: ./test/edge and an absolute path are test/edge to it.
const files = args
  .filter((arg) => !arg.startsWith('--'))
  .map((arg) => (/^[./]/.test(arg) ? relative(root, resolve(process.env.INIT_CWD ?? '.', arg)) : arg));
const only = ['unit', 'e2e'].filter((kind) => args.includes(`--${kind}`));
const kinds = (only.length > 0 ? only : ['unit', 'e2e']).filter((kind) => files.length === 0 || hasTests(kind));
if (kinds.length === 0) refuse(`No test file matches ${files.join(', ')}.`);

if (args.includes('--times')) process.env.JUDGE_TIMES = '1';

// Side by side: each waits for the network most of the time.
const [node] = await Promise.all([
  prepare({ development: true }),
  args.includes('--install-system') && installSystemPackages(['run', 'test']),
]);
const total = { passed: 0, failed: 0, names: [], retried: [] };

if (files.length === 0 && only.length === 0) count(await runChecks(node));
// Those that are named together run side by side.
const projects = {
  unit: [existsSync('/usr/lib/postgresql') ? ['unit', 'postgres'] : ['unit']],
  e2e: [['e2e'], ['e2e-alone']],
};
for (const together of kinds.flatMap((kind) => projects[kind])) {
  console.log(`\n# ${together.join(' and ')} tests`);
  const again = together.some((project) => project.startsWith('e2e')) && !args.includes('--strict');
  count(await runTests(node, together, files, again ? TRIES : 1));
}

nameRetried(total.retried);
nameFailed(total.names);
console.log(`\n${total.passed} passed, ${total.failed} failed`);
process.exit(total.failed > 0 || total.passed === 0 ? 1 : 0);

function count({ passed, failed, names, retried = [] }) {
  total.passed += passed;
  total.failed += failed;
  total.names.push(...names);
  total.retried.push(...retried);
}

/** Whether one of the arguments names a test of this kind: to start Vitest for none of them takes seconds. */
function hasTests(kind) {
  const tests = (folder) =>
    readdirSync(join(root, folder), { withFileTypes: true }).flatMap((entry) => {
      const path = join(folder, entry.name);
      return entry.isDirectory() ? tests(path) : path.endsWith('.test.ts') ? [path] : [];
    });
  return tests('test').some(
    (path) => path.startsWith('test/e2e/') === (kind === 'e2e') && files.some((file) => path.includes(file)),
  );
}

function refuse(why) {
  console.error(
    `${why} Usage: npm test -- [--install-system] [--strict] [--times] [--unit | --e2e] [file or folder …]`,
  );
  process.exit(2);
}
