// `npm run check [-- --fix]`: types of every TypeScript project, lint and formatting of every file. Seconds, no services.
// `--fix` formats first and applies the safe fixes of the linter. scripts/test.mjs runs the same checks before its tests.
import { spawn } from 'node:child_process';
import { readdirSync, realpathSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { prepare, root } from './launch.mjs';

const TSC = 'node_modules/typescript/bin/tsc';
const BIOME = 'node_modules/@biomejs/biome/bin/biome';
/** Folders that hold no source of ours. */
const NOT_OURS = new Set(['node_modules', '.node', '.git', 'data', 'bench', 'coverage']);

/**
 * Runs all checks, some side by side, and prints what they find, in order.
 * @param {string} node path of the Node that runs them
 * @returns {Promise<{ passed: number, failed: number, names: string[] }>} each check counts as one; `names`: of what failed
 */
export async function runChecks(node) {
  const files = ourFiles();
  const checked = new Set();
  const names = [];
  let passed = 0;
  const note = (name, ok) => {
    console.log(ok ? 'ok' : `${name} failed`);
    if (ok) passed++;
    else names.push(name);
  };

  // One compiler works on one core.
  const projects = files.filter((file) => /(^|\/)tsconfig\.json$/.test(file));
  const results = sideBySide([
    ...projects.map((file) => () => tool(node, [TSC, '-p', file, '--listFiles'])),
    () => tool(node, [BIOME, 'ci', '--colors=off', '.']),
  ]);
  for (const [index, file] of projects.entries()) {
    const name = `type check of ${file}`;
    console.log(`\n# ${name}`);
    const { status, lines } = await results[index];
    for (const line of lines) {
      if (line.startsWith(`${root}/`)) checked.add(relative(root, line));
      else if (!line.startsWith('/')) console.log(line);
    }
    note(name, status === 0);
  }

  console.log('\n# every TypeScript file belongs to a project');
  const unchecked = files.filter((file) => /\.[mc]?tsx?$/.test(file) && !checked.has(file));
  for (const file of unchecked) console.log(`${file}: no tsconfig.json includes it; add it to "include" of one`);
  note('TypeScript files without a project', unchecked.length === 0);

  console.log('\n# lint and formatting');
  const { status, lines } = await results[projects.length];
  console.log(lines.join('\n'));
  note('lint and formatting', status === 0);

  return { passed, failed: names.length, names };
}

/** Paths from the root, sorted. Folders that a checkout does not have (packages, data) are left out. */
function ourFiles(folder = '') {
  return readdirSync(join(root, folder), { withFileTypes: true })
    .sort((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap((entry) => {
      const path = join(folder, entry.name);
      if (entry.isDirectory()) return NOT_OURS.has(entry.name) ? [] : ourFiles(path);
      return entry.isFile() ? [path] : [];
    });
}

/**
 * Starts as many as there are cores, the others as those end.
 * @returns a promise for each
 */
function sideBySide(works) {
  const waiting = [];
  const results = works.map(
    (work) =>
      new Promise((resolve) => {
        waiting.push(() => {
          const result = work();
          resolve(result);
          return result;
        });
      }),
  );
  const run = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) await next();
  };
  for (let lane = 0; lane < availableParallelism(); lane++) void run();
  return results;
}

async function tool(node, args) {
  const child = spawn(node, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  const parts = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part) => parts.push(part));
  const status = await new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', resolve);
  });
  return {
    status,
    lines: Buffer.concat(parts)
      .toString('utf8')
      .split('\n')
      .filter((line) => line !== ''),
  };
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const args = process.argv.slice(2);
  const unknown = args.find((arg) => arg !== '--fix');
  if (unknown !== undefined) {
    console.error(`Not known: ${unknown}. Usage: npm run check [-- --fix]`);
    process.exit(2);
  }
  const node = await prepare({ development: true });
  if (args.includes('--fix')) {
    console.log('# fixing what has a safe fix');
    const { lines } = await tool(node, [BIOME, 'check', '--write', '--colors=off', '.']);
    for (const line of lines) console.log(line);
  }
  const { passed, failed, names } = await runChecks(node);
  for (const name of names) console.log(`failed: ${name}`);
  console.log(`\n${passed} passed, ${failed} failed`);
  process.exit(failed > 0 ? 1 : 0);
}
