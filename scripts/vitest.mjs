// Runs one project of the tests and counts what passed and failed. Plain JavaScript for Node 18 and newer.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { keepCompiledCode, root, run } from './launch.mjs';

/** Times that a file is begun before it counts as failed. */
export const TRIES = 3;
/** Where more files fail, something is broken, and to try again takes time. */
const MOST_AGAIN = 10;

/**
 * @param {string} node path of the Node that runs the tests
 * @param {string[]} projects of config/vitest.config.ts, run side by side
 * @param {string[]} files only these; none: all
 * @param {number} tries of a file with a test that fails; it is run again whole, in a new process, after all others
 * @returns {Promise<{ passed: number, failed: number, names: string[], retried: string[] }>}
 *   `names`: of what failed; `retried`: of what passed only when it was tried again
 */
export async function runTests(node, projects, files, tries = 1) {
  const first = await runOnce(node, projects, files);
  const again = first.failedFiles;
  if (tries < 2 || again.length === 0 || again.length > MOST_AGAIN) return first;
  console.log(`\n# tried again: ${again.join(' ')}`);
  const next = await runTests(node, projects, again, tries - 1);
  return {
    passed: first.passed - first.passedBesides + next.passed,
    failed: next.failed,
    names: next.names,
    retried: [...new Set([...first.names.filter((name) => !next.names.includes(name)), ...next.retried])],
  };
}

async function runOnce(node, projects, files) {
  // Hosts that tests start find theirs.
  keepCompiledCode();
  const folder = mkdtempSync(join(tmpdir(), 'turnpike-test-'));
  const report = join(folder, 'report.json');
  const code = await run(
    node,
    [
      'node_modules/vitest/vitest.mjs',
      'run',
      '--config=config/vitest.config.ts',
      ...projects.map((project) => `--project=${project}`),
      '--reporter=default',
      '--reporter=json',
      `--outputFile.json=${report}`,
      ...(files.length > 0 ? ['--passWithNoTests', ...files] : []),
    ],
    { cwd: root },
  );
  const result = read(report);
  rmSync(folder, { recursive: true, force: true });
  const ofFailed = result?.testResults.filter(({ status }) => status === 'failed') ?? [];
  const failed = result ? result.numFailedTests + filesThatDidNotLoad(result) : 0;
  return {
    passed: result?.numPassedTests ?? 0,
    // A run that ends badly without a failed test (an error outside of tests, no report) is a failure too.
    failed: failed > 0 ? failed : code === 0 ? 0 : 1,
    names: result ? namesOfFailed(result) : [`${projects.join(', ')}: no report`],
    retried: [],
    failedFiles: ofFailed.map(({ name }) => relative(root, name)),
    // In files with a test that failed.
    passedBesides: ofFailed.flatMap(({ assertionResults }) => assertionResults).filter((one) => one.status === 'passed')
      .length,
  };
}

function namesOfFailed({ testResults }) {
  return testResults.flatMap(({ name, status, assertionResults }) => {
    const file = relative(root, name);
    const tests = assertionResults.filter((one) => one.status === 'failed');
    if (tests.length > 0) return tests.map(({ fullName }) => `${file}: ${fullName}`);
    return status === 'failed' ? [file] : [];
  });
}

/** Said again at the end, where it is found. @param {string[]} names */
export function nameFailed(names) {
  if (names.length > 0) console.log('');
  for (const name of names) console.log(`failed: ${name}`);
}

/** Said at the end too: a fault that comes now and then hides behind a retry. @param {string[]} names */
export function nameRetried(names) {
  if (names.length > 0) console.log('');
  for (const name of names) console.log(`passed only when tried again: ${name}`);
}

/** A file that fails before its first test has no failed test to count. */
function filesThatDidNotLoad(result) {
  return result.testResults.filter(
    ({ status, assertionResults }) => status === 'failed' && !assertionResults.some((one) => one.status === 'failed'),
  ).length;
}

function read(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch {
    return undefined;
  }
}
