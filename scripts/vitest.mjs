// Runs one project of the tests and counts what passed and failed. Plain JavaScript for Node 18 and newer.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { keepCompiledCode, root, run } from './launch.mjs';

/**
 * @param {string} node path of the Node that runs the tests
 * @param {string[]} projects of config/vitest.config.ts, run side by side
 * @param {string[]} files only these; none: all
 * @param {boolean} strict nothing is tried again
 * @returns {Promise<{ passed: number, failed: number, names: string[], retried: string[] }>}
 *   `names`: of what failed; `retried`: of what passed only when it was tried again
 */
export async function runTests(node, projects, files, strict = false) {
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
      ...(strict ? ['--retry=0'] : []),
      ...(files.length > 0 ? ['--passWithNoTests', ...files] : []),
    ],
    { cwd: root },
  );
  const result = read(report);
  rmSync(folder, { recursive: true, force: true });
  const failed = result ? result.numFailedTests + filesThatDidNotLoad(result) : 0;
  // A run that ends badly without a failed test (an error outside of tests, no report) is a failure too.
  return {
    passed: result?.numPassedTests ?? 0,
    failed: failed > 0 ? failed : code === 0 ? 0 : 1,
    names: result ? namesOfFailed(result) : [`${projects.join(', ')}: no report`],
    retried: result ? findRetried(result) : [],
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

/** Shows what the failed tries said, though they do not count. */
function findRetried({ testResults }) {
  const found = [];
  for (const { name, assertionResults } of testResults) {
    for (const { status, fullName, failureMessages } of assertionResults) {
      if (status !== 'passed' || failureMessages.length === 0) continue;
      found.push(`${relative(root, name)}: ${fullName}`);
      console.log(`tried again: ${found.at(-1)}`);
      for (const message of failureMessages) console.log(message.split('\n').slice(0, 3).join('\n'));
    }
  }
  return found;
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
