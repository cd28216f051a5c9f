/** The launcher in a project of its own, with a stand-in for npm that notes its calls. */
import { spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';

let project: string;

beforeEach(() => {
  project = mkdtempSync(join(tmpdir(), 'turnpike-launch-'));
  cpSync(fileURLToPath(new URL('../../scripts/launch.mjs', import.meta.url)), join(project, 'scripts/launch.mjs'));
  writeFileSync(join(project, 'package.json'), '{"type":"module"}');
  writeFileSync(
    join(project, 'scripts/run.mjs'),
    "import { launch } from './launch.mjs';\nawait launch({ entry: 'entry.mjs', args: process.argv.slice(2) });\n",
  );
  writeFileSync(
    join(project, 'entry.mjs'),
    "console.log(JSON.stringify(process.argv.slice(2)));\nif (process.argv.includes('--fail')) process.exitCode = 7;\n",
  );
  // Takes a moment, as the real one does, and installs what the lock file says.
  writeFileSync(
    join(project, 'npm-cli.js'),
    `import { appendFileSync, copyFileSync, mkdirSync } from 'node:fs';
appendFileSync('calls.txt', process.argv.slice(2).join(' ') + '\\n');
console.log('npm talks to its standard output');
await new Promise((resolve) => setTimeout(resolve, 150));
if (process.env.NPM_FAILS) process.exit(9);
mkdirSync('node_modules', { recursive: true });
copyFileSync('package-lock.json', 'node_modules/.package-lock.json');
`,
  );
  lockFile({ 'node_modules/one': { version: '1.0.0' } });
});
afterEach(() => rmSync(project, { recursive: true }));

function lockFile(packages: object): void {
  writeFileSync(join(project, 'package-lock.json'), JSON.stringify({ packages: { '': {}, ...packages } }));
}

function installed(packages: object): void {
  mkdirSync(join(project, 'node_modules'), { recursive: true });
  writeFileSync(join(project, 'node_modules/.package-lock.json'), JSON.stringify({ packages }));
}

function npmCalls(): string[] {
  const path = join(project, 'calls.txt');
  return existsSync(path) ? readFileSync(path, 'utf8').trim().split('\n') : [];
}

function run(args: string[] = [], env: Record<string, string> = {}) {
  return new Promise<{ code: number | null; stdout: string; stderr: string }>((resolve) => {
    const child = spawn(process.execPath, [join(project, 'scripts/run.mjs'), ...args], {
      env: { PATH: process.env.PATH ?? '', npm_execpath: join(project, 'npm-cli.js'), ...env },
    });
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (piece) => {
      stdout += piece;
    });
    child.stderr.on('data', (piece) => {
      stderr += piece;
    });
    child.once('close', (code) => resolve({ code, stdout, stderr }));
  });
}

test('installs once, without lifecycle scripts; hands on arguments and the exit code; stdout is the program’s alone', async () => {
  const first = await run(['--port', '0']);
  expect(first).toMatchObject({ code: 0, stdout: '["--port","0"]\n' });
  expect(first.stderr).toContain('installing packages');
  const second = await run(['--fail']);
  expect(second).toEqual({ code: 7, stdout: '["--fail"]\n', stderr: '' });
  expect(npmCalls()).toHaveLength(1);
  expect(npmCalls()[0]).toContain('--ignore-scripts');
});

test('installs again when the lock file asks for another version', async () => {
  await run();
  lockFile({ 'node_modules/one': { version: '1.0.1' } });
  await run();
  await run();
  expect(npmCalls()).toHaveLength(2);
});

test('optional packages of other systems, and tools, may be missing', async () => {
  lockFile({
    'node_modules/one': { version: '1.0.0' },
    'node_modules/for-others': { version: '1.0.0', optional: true },
    'node_modules/tool': { version: '1.0.0', dev: true },
  });
  installed({ 'node_modules/one': { version: '1.0.0' } });
  expect((await run()).code).toBe(0);
  expect(npmCalls()).toEqual([]);
});

test('three starts at once install once, and all run', async () => {
  const results = await Promise.all([run(['a']), run(['b']), run(['c'])]);
  expect(results.map(({ code, stdout }) => [code, stdout])).toEqual([
    [0, '["a"]\n'],
    [0, '["b"]\n'],
    [0, '["c"]\n'],
  ]);
  expect(npmCalls()).toHaveLength(1);
});

test('a preparation that was killed does not block the next one', async () => {
  mkdirSync(join(project, '.node'));
  const gone = spawn('true');
  await new Promise((resolve) => gone.once('close', resolve));
  writeFileSync(join(project, '.node/launch.lock'), String(gone.pid));
  expect((await run()).code).toBe(0);
});

test('when npm fails it says so, and the program does not run', async () => {
  const { code, stdout, stderr } = await run([], { NPM_FAILS: '1' });
  expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
  expect(stderr).toContain('npm ended with 9');
  expect((await run()).code).toBe(0);
});

test('a Node that was fetched in part is fetched again, and a whole one is not', async () => {
  installed({ 'node_modules/one': { version: '1.0.0' } });
  const name = `node-${process.platform}-${process.arch}`;
  const bin = join(project, '.node/node_modules', name, 'bin');
  mkdirSync(bin, { recursive: true });
  writeFileSync(join(bin, 'node'), 'half of it');
  // Says that it is Node 20; what it "fetches" runs programs by the Node of this test.
  writeFileSync(join(project, 'old.mjs'), "Object.defineProperty(process.versions, 'node', { value: '20.0.0' });\n");
  writeFileSync(
    join(project, 'npm-cli.js'),
    `import { appendFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
const [name, version] = process.argv.find((arg) => arg.startsWith('node-')).split('@');
appendFileSync('../calls.txt', (existsSync('node_modules') ? 'over a part' : 'anew') + '\\n');
const bin = 'node_modules/' + name + '/bin';
mkdirSync(bin, { recursive: true });
const script = '#!/bin/sh\\nif [ "$1" = --version ]; then echo v' + version + '; else unset NODE_OPTIONS; exec ${process.execPath} "$@"; fi\\n';
writeFileSync(bin + '/node', script, { mode: 0o755 });
const packages = { ['node_modules/' + name]: { version } };
writeFileSync('node_modules/.package-lock.json', JSON.stringify({ packages }));
`,
  );
  const env = { NODE_OPTIONS: `--import=${join(project, 'old.mjs')}` };
  cpSync(
    fileURLToPath(new URL('../../scripts/follow-launcher.mjs', import.meta.url)),
    join(project, 'scripts/follow-launcher.mjs'),
  );
  for (const arg of ['a', 'b']) expect(await run([arg], env)).toMatchObject({ code: 0, stdout: `["${arg}"]\n` });
  expect(npmCalls()).toEqual(['anew']);
});

test('compiled code is kept in the project, or where the environment says', async () => {
  installed({ 'node_modules/one': { version: '1.0.0' } });
  expect((await run([], { NODE_COMPILE_CACHE: join(project, 'elsewhere') })).code).toBe(0);
  expect(existsSync(join(project, '.node/compiled'))).toBe(false);
  expect(readdirSync(join(project, 'elsewhere'))).toHaveLength(1);
  expect((await run()).code).toBe(0);
  expect(readdirSync(join(project, '.node/compiled'))).toHaveLength(1);
});

test('packages are packed once for each lock file, and the program is told where', async () => {
  installed({ 'node_modules/one': { version: '1.0.0' } });
  writeFileSync(join(project, 'entry.mjs'), "console.log(process.env.PACKED_PACKAGES ?? 'nowhere');\n");
  const script = join(project, 'scripts/pack-packages.mjs');
  const packed = async () => (await run()).stdout.trim();
  writeFileSync(script, 'process.exit(1);\n');
  expect(await packed()).toBe('nowhere');
  writeFileSync(
    script,
    "import { mkdirSync } from 'node:fs';\nmkdirSync(process.argv[2], { recursive: true });\nmkdirSync(process.argv[2] + '/once');\n",
  );
  const first = await packed();
  expect(first.startsWith(join(project, '.node/packed/'))).toBe(true);
  expect(existsSync(join(first, 'once'))).toBe(true);
  expect(await packed()).toBe(first);
  lockFile({ 'node_modules/one': { version: '1.0.1' } });
  installed({ 'node_modules/one': { version: '1.0.1' } });
  expect(await packed()).not.toBe(first);
});

test('a project folder that cannot be written to keeps nobody from running', async () => {
  installed({ 'node_modules/one': { version: '1.0.0' } });
  writeFileSync(join(project, '.node'), 'a file stands in the way, for root too');
  expect(await run(['a'])).toMatchObject({ code: 0, stdout: '["a"]\n' });
});

test('a signal to npm reaches the program, whatever shell npm uses', async () => {
  const { scripts } = JSON.parse(readFileSync(fileURLToPath(new URL('../../package.json', import.meta.url)), 'utf8'));
  expect(Object.values(scripts).filter((script) => !String(script).startsWith('exec node scripts/'))).toEqual([]);
  installed({ 'node_modules/one': { version: '1.0.0' } });
  writeFileSync(join(project, 'package.json'), JSON.stringify({ type: 'module', scripts: { start: scripts.start } }));
  cpSync(join(project, 'scripts/run.mjs'), join(project, 'scripts/start.mjs'));
  writeFileSync(
    join(project, 'entry.mjs'),
    "process.on('SIGTERM', () => process.exit(0));\nsetInterval(() => {}, 1_000);\nconsole.log('pid ' + process.pid);\n",
  );
  // Where another Node is first on the path, the launcher would fetch this one.
  const PATH = `${dirname(process.execPath)}${delimiter}${process.env.PATH}`;
  const env = { ...process.env, PATH };
  const npm = spawn('npm', ['start'], { cwd: project, env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => npm.once('exit', resolve));
  let said = '';
  const pid = await new Promise<number>((resolve) => {
    npm.stdout.on('data', (piece) => {
      said += piece;
      const [, found] = /^pid (\d+)$/m.exec(said) ?? [];
      if (found !== undefined) resolve(Number(found));
    });
  });
  npm.kill('SIGTERM');
  await ended;
  // Its own end, where the signal did not come.
  expect(() => process.kill(pid, 'SIGKILL')).toThrow('ESRCH');
});
