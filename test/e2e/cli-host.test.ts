/** The command against the real host: deploy, update, logs, secrets, versions, renew, delete; by owner and stranger. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { hostCommands } from '../../host/cli/host-commands.ts';
import { run as runCommand } from '../../host/cli/run.ts';
import { fakeTerminal } from '../cli/fake-terminal.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-command.ts';
import { until } from './support/until.ts';

let host: TestHost;
let project: string;
/** A folder without a manifest. */
let elsewhere: string;

beforeAll(async () => {
  host = await startHost();
  project = await mkdtemp(join(tmpdir(), 'turnpike-cli-'));
  elsewhere = join(project, 'node_modules');
  await mkdir(join(elsewhere, 'greeting'), { recursive: true });
  await writeFile(
    join(project, 'node_modules/greeting/package.json'),
    '{"name":"greeting","type":"module","main":"main.js"}',
  );
  await writeFile(join(project, 'node_modules/greeting/main.js'), "export const greeting = 'hello from a package';");
  await writeFile(
    join(project, 'index.ts'),
    `import { greeting } from 'greeting';
interface Env { TOKEN: string; STORE: { put(key: string, value: string): Promise<void>; get(key: string): Promise<string | null> } }
export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    console.log('called', new URL(request.url).pathname);
    await env.STORE.put('key', greeting);
    return new Response([await env.STORE.get('key'), env.TOKEN?.length, VERSION].join());
  },
};
const VERSION: number = 1;
`,
  );
  await writeFile(join(project, 'token.txt'), 'the secret token\n');
  await writeFile(
    join(project, 'turnpike.json'),
    JSON.stringify({ slug: 'hello', entry: 'index.ts', bindings: { kv: true } }),
  );
});

afterAll(async () => {
  await host?.stop();
  await rm(project, { recursive: true, force: true });
});

/** In this process: starting one for each call would take most of the test's time. */
const run = (...args: string[]) => runIn(project, ...args);

async function runIn(cwd: string, ...args: string[]) {
  const terminal = fakeTerminal({ cwd, home: project });
  const code = await runCommand(
    [...args, '--host-url', host.url, '--data', host.data],
    '0.0.0',
    { terminal, fetch },
    hostCommands({ terminal, fetch }),
  );
  const { stdout, stderr } = terminal;
  return { code, stdout, stderr, json: () => JSON.parse(stdout) };
}

/** In a process of its own, as a person runs it. */
const turnpikeHere = (...args: string[]) =>
  turnpike([...args, '--host-url', host.url, '--data', host.data], { cwd: project });

const body = async () => (await fetch(`${host.url}/hello/x`)).text();

test.each([
  [['deplyo'], "unknown command 'deplyo' (Did you mean deploy?)"],
  [['get', '--jsn'], "unknown option '--jsn'"],
  [['logs', '-n', 'ten'], 'It takes a whole number'],
  [['rollback'], "missing required argument 'slug'"],
  [[], 'no command is named'],
])('%j with --json answers with one document that says what is not understood', async (args, words) => {
  const { code, stderr, json } = await run('--json', ...args);
  expect({ code, stderr }).toEqual({ code: 2, stderr: '' });
  expect(json()).toEqual({ error: { exit: 'usage', message: expect.stringContaining(words) } });
  // Without it commander tells the person, on stderr alone.
  const told = await run(...args);
  expect(told).toMatchObject({ code: 2, stdout: '', stderr: expect.stringMatching(/^(error: |Usage: )/) });
});

test('up runs the host on the folder of --data', async () => {
  const args = ['up', '--data', host.data, '--port', '0', '--admin-port', '0'];
  // Where no manifest is taken for the host's configuration.
  const { code, stdout, stderr } = await turnpike(args, { cwd: elsewhere });
  expect(code).toBe(1);
  expect(stdout + stderr).toContain(`Another host (process ${host.pid}`);
});

test('deploy from the manifest: npm imports, a secret from a file, a price; it answers at once', async () => {
  const refused = await run('deploy', '--json');
  expect(refused.code).toBe(2);
  expect(refused.json().error.message).toContain('0.20');

  const { code, stdout, stderr } = await turnpikeHere(
    'deploy',
    '--secret',
    'TOKEN=@token.txt',
    '--price',
    'GET /paid=0.05',
    '--yes',
  );
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(stdout.trim()).toMatch(/\/hello\/$/);
  expect(await body()).toBe('hello from a package,16,1');

  const again = await run('deploy', '--max-pay', '0.20');
  expect(again.code).toBe(3);
  expect(again.stderr).toContain('turnpike update');
});

test('deploy does not call the handler: the first request is the first caller’s', async () => {
  await writeFile(
    join(elsewhere, 'counts.ts'),
    'let calls = 0; export default { fetch: () => new Response(String(++calls)) };',
  );
  const { code, stdout } = await runIn(elsewhere, 'deploy', 'counts.ts', '--slug', 'counts', '--yes');
  expect({ code, stdout: stdout.trim() }).toEqual({ code: 0, stdout: expect.stringMatching(/\/counts\/$/) });
  expect(await (await fetch(`${host.url}/counts/`)).text()).toBe('1');
});

test('a paid route is paid with pay', async () => {
  const { code, stdout } = await run('pay', `${host.url}/hello/paid`, '--max-pay', '0.05');
  expect({ code, stdout }).toEqual({ code: 0, stdout: 'hello from a package,16,1' });
});

test('get, usage, versions, logs', async () => {
  const got = (await run('get', '--json')).json();
  expect(got).toMatchObject({ slug: 'hello', state: 'active', version: 1, bindings: { kv: true } });
  expect((await run('get')).stdout).toContain('GET /paid  0.05 USD');
  expect((await run('usage', '--json')).json()).toMatchObject({ slug: 'hello' });
  expect((await run('versions', '--json')).json()).toMatchObject({ current: 1 });
  expect((await run('logs')).stdout).toMatch(/called \/x/);
});

test('update takes new code and leaves the rest', async () => {
  await writeFile(
    join(project, 'second.js'),
    "export default { fetch: (_, env) => new Response('second ' + env.TOKEN.length) }",
  );
  expect((await run('update', 'second.js')).code).toBe(0);
  expect(await body()).toBe('second 16');
});

test('update of one binding leaves the others', async () => {
  // Where no manifest names the bindings.
  expect((await runIn(elsewhere, 'update', '--slug', 'hello', '--r2')).code).toBe(0);
  expect((await run('get', '--json')).json().bindings).toMatchObject({ kv: true, r2: true });
});

test('bad code is refused with its place, by the bundler and by the host', async () => {
  await writeFile(join(project, 'broken.ts'), 'export default {\n  fetch( {\n};\n');
  const bundler = await run('update', 'broken.ts');
  expect(bundler.code).toBe(2);
  expect(bundler.stderr).toMatch(/broken\.ts:\d+:\d+/);
  await writeFile(join(project, 'empty.js'), 'export default {}');
  const refused = await run('update', 'empty.js', '--json');
  expect(refused.code).toBe(3);
  expect(refused.json()).toMatchObject({ error: { problem: { code: 'code_rejected' } } });
  expect(await body()).toBe('second 16');
});

test('crons shows the schedule and what came of it', async () => {
  expect((await run('crons')).stdout).toContain('no schedule');
  await writeFile(
    join(project, 'scheduled.js'),
    "export default { fetch: () => new Response('x'), scheduled() { if (Math.random() < 2) throw new Error('not today') } }",
  );
  expect((await run('deploy', 'scheduled.js', '--slug', 'timed', '--cron', '*/5 * * * *', '--yes')).code).toBe(0);
  expect((await run('crons', 'timed')).stdout).toContain('*/5 * * * *\nIt has not run yet.');
  await host.advance(5 * 60_000);
  await until(async () => (await run('crons', 'timed', '--json')).json().runs.length > 0 || undefined);
  const line = /\*\/5 \* \* \* \* .*T.*Z .*T.*Z {2}exception .*not today/;
  await until(async () => line.test((await run('crons', 'timed')).stdout) || undefined);
  expect((await run('crons', 'nobody')).code).not.toBe(0);
  expect((await run('crons', 'timed', '--wallet', 'test:1')).code).toBe(6);
});

test('secrets are set and removed, and their values are never shown', async () => {
  const set = await run('secrets', 'set', 'hello', 'TOKEN=@second.js');
  expect(set.stdout).toBe('set TOKEN\n');
  expect(await body()).not.toBe('second 16');
  expect((await run('secrets', 'rm', 'hello', 'TOKEN')).code).toBe(0);
});

test('a secret that is not set cannot be removed, and nothing is where one of several is not', async () => {
  expect((await run('secrets', 'set', 'hello', 'KEPT=value')).code).toBe(0);
  const removed = await run('secrets', 'rm', 'hello', 'KEPT', 'TOKEN', '--json');
  expect(removed.code).toBe(3);
  expect(removed.json().error).toMatchObject({
    message: 'hello has no secret TOKEN. Nothing was changed.',
    problem: { code: 'not_found' },
  });
  expect((await run('secrets', 'rm', 'hello', 'KEPT')).stdout).toBe('removed KEPT\n');
});

test('rollback and renew', async () => {
  expect((await run('rollback', 'hello', '1')).code).toBe(0);
  expect(await body()).toContain('hello from a package');
  const before = (await run('get', '--json')).json().expiresAt;
  expect((await run('renew', '--yes')).code).toBe(0);
  const after = (await run('get', '--json')).json().expiresAt;
  expect(Date.parse(after) - Date.parse(before)).toBe(30 * 86_400_000);
  expect(await run('renew', '--yes', '--protocol', 'x402')).toMatchObject({ code: 0, stderr: '' });
});

test('logs -f shows what happens from now on, until it is stopped', async () => {
  const following = turnpike(['logs', '-f', '-n', '1', '--host-url', host.url, '--data', host.data], {
    cwd: project,
    stopWhen: (stdout) => stdout.includes('called /followed'),
  });
  const poke = setInterval(() => void fetch(`${host.url}/hello/followed`).catch(() => undefined), 200);
  const { stdout } = await following;
  clearInterval(poke);
  expect(stdout).toContain('called /followed');
});

test('a stranger is refused, with a code of its own', async () => {
  for (const args of [['delete', 'hello', '--yes'], ['logs'], ['secrets', 'rm', 'hello', 'TOKEN']]) {
    expect((await run(...args, '--wallet', 'test:1')).code).toBe(6);
  }
  expect((await fetch(`${host.url}/hello/`)).status).toBe(200);
});

test('domains are attached, listed and detached', async () => {
  const added = await run('domains', 'add', 'hello', 'api.example.com', '--json');
  expect(added.json()).toMatchObject({ domain: 'api.example.com', state: 'pending' });
  expect((await run('domains', 'ls', 'hello')).stdout).toContain('_turnpike.api.example.com');
  expect((await run('domains', 'rm', 'hello', 'api.example.com')).code).toBe(0);
  expect((await run('domains', 'ls', 'hello')).stdout).toBe('no domains\n');
});

test('the operator sees tenants and payments, and the books agree with the chain', async () => {
  expect((await run('tenants')).stdout).toMatch(/hello\s+active/);
  expect((await run('payments')).stdout).toContain('nothing is stuck or owed');
  const reconciled = await run('payments', 'reconcile', '--json');
  expect(reconciled.json()).toMatchObject({ ok: true, differences: [] });
});

test('doctor finds nothing wrong', async () => {
  const { code, stdout } = await run('doctor', '--json');
  const { findings } = JSON.parse(stdout) as { findings: { name: string; state: string }[] };
  expect(findings.filter(({ state }) => state === 'fault')).toEqual([]);
  expect(findings.find(({ name }) => name === 'host')?.state).toBe('ok');
  expect(code).toBe(0);
});

test('delete asks for a yes, then the URL is gone', async () => {
  expect((await run('delete', 'hello')).code).toBe(2);
  expect((await run('delete', 'hello', '--yes')).code).toBe(0);
  expect((await fetch(`${host.url}/hello/`)).status).toBe(410);
});
