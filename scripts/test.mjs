// `npm test -- [--install-system] [--unit | --e2e] [file …]`: type check, lint, unit tests, end-to-end tests.
// The last line sums up: `N passed, N failed`. The type check and the lint count as one each.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { prepare, root, run } from './launch.mjs';
import { installSystemPackages } from './system-packages.mjs';

const args = process.argv.slice(2);
const files = args.filter((arg) => !arg.startsWith('--'));
const only = ['unit', 'e2e'].filter((project) => args.includes(`--${project}`));
const unknown = args.find((arg) => arg.startsWith('--') && !['--install-system', '--unit', '--e2e'].includes(arg));
if (unknown) {
  console.error(`Not known: ${unknown}. Usage: npm test -- [--install-system] [--unit | --e2e] [file …]`);
  process.exit(2);
}

if (args.includes('--install-system')) installSystemPackages(['run', 'test']);
const node = await prepare({ development: true });
const total = { passed: 0, failed: 0 };

if (files.length === 0 && only.length === 0) {
  await check('type check', ['node_modules/typescript/bin/tsc', '-p', '.']);
  await check('lint', ['node_modules/@biomejs/biome/bin/biome', 'ci', '--colors=off', '.']);
}
for (const project of only.length > 0 ? only : ['unit', 'e2e']) await vitest(project);

console.log(`\n${total.passed} passed, ${total.failed} failed`);
process.exit(total.failed > 0 || total.passed === 0 ? 1 : 0);

async function check(name, command) {
  console.log(`\n# ${name}`);
  const code = await run(node, command, { cwd: root });
  count(code === 0 ? 1 : 0, code === 0 ? 0 : 1);
  console.log(code === 0 ? 'ok' : `${name} failed`);
}

async function vitest(project) {
  console.log(`\n# ${project} tests`);
  const folder = mkdtempSync(join(tmpdir(), 'turnpike-test-'));
  const report = join(folder, 'report.json');
  const code = await run(
    node,
    [
      'node_modules/vitest/vitest.mjs',
      'run',
      '--config=config/vitest.config.ts',
      `--project=${project}`,
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${report}`,
      ...(files.length > 0 ? ['--passWithNoTests', ...files] : []),
    ],
    { cwd: root },
  );
  const result = read(report);
  rmSync(folder, { recursive: true, force: true });
  const failed = result ? result.numFailedTests + filesThatDidNotLoad(result) : 0;
  // A run that ends badly without a failed test (an error outside of tests, no report) is a failure too.
  count(result?.numPassedTests ?? 0, failed > 0 ? failed : code === 0 ? 0 : 1);
}

/** A file that fails before its first test has no failed test to count. */
function filesThatDidNotLoad(result) {
  return result.testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && !assertionResults.some((one) => one.status === 'failed'),
  ).length;
}

function count(passed, failed) {
  total.passed += passed;
  total.failed += failed;
}

function read(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}
