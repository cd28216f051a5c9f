/** `turnpike dev` in a folder of a stranger's project: reloads what is saved, keeps its data, and leaves nothing running. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { turnpike } from './support/turnpike-command.ts';
import { until } from './support/until.ts';

const ENTRY = fileURLToPath(new URL('../../scripts/turnpike.mjs', import.meta.url));
const handler = (text: string) => `import { tail } from './lib/tail.js';
export default { async fetch(request, env) {
  if (new URL(request.url).pathname === '/paid') return new Response('sold');
  const count = Number((await env.COUNTS.get('n')) ?? 0) + 1;
  await env.COUNTS.put('n', String(count));
  console.log('asked', count);
  return new Response('${text} ' + count + tail + (env.SECRET ?? ''));
} };`;

let folder: string;
let port: number;
let child: ChildProcess;
let said = '';
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-dev-'));
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  ({ port } = server.address() as { port: number });
  server.close();
  mkdirSync(path.join(folder, 'lib'));
  writeFileSync(
    path.join(folder, 'wrangler.jsonc'),
    '{ "name": "my-dev", "main": "index.js", "compatibility_date": "2026-01-01", "kv_namespaces": [{ "binding": "COUNTS", "id": "counts" }] }',
  );
  writeFileSync(
    path.join(folder, 'turnpike.json'),
    '{ "paidRoutes": [{ "method": "GET", "path": "/paid", "price": "0.01" }] }',
  );
  writeFileSync(path.join(folder, '.dev.vars'), 'SECRET=" hush"\n');
  writeFileSync(path.join(folder, 'index.js'), handler('first'));
  writeFileSync(path.join(folder, 'lib/tail.js'), "export const tail = '.';");
});
afterAll(async () => {
  if (child && child.exitCode === null) {
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  rmSync(folder, { recursive: true, force: true });
});

async function start(): Promise<void> {
  said = '';
  child = spawn(process.execPath, [ENTRY, 'dev', '--port', String(port)], {
    cwd: folder,
    env: { PATH: process.env.PATH ?? '', HOME: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (text) => (said += String(text)));
  await until(
    () => said.includes(`http://localhost:${port}/my-dev/`),
    () => said,
  );
}
const ask = async (target = '') => (await fetch(`http://localhost:${port}/my-dev/${target}`)).text();
const command = (...args: string[]) => turnpike(args, { cwd: folder });

it('serves the project, with its log, its data and a price', async () => {
  await start();
  expect(await ask()).toBe('first 1. hush');
  await until(
    () => said.includes('asked 1'),
    () => said,
  );
  expect((await command('kv', 'get', 'n', '--local')).stdout).toBe('1');
  expect((await fetch(`http://localhost:${port}/my-dev/paid`)).status).toBe(402);
  const paid = await command('--data', '.turnpike/dev', '--yes', 'pay', `http://localhost:${port}/my-dev/paid`);
  expect(paid.stderr).toBe('');
  expect(paid.stdout).toContain('sold');
});

it('reloads what is written, replaced or made anew within a second, and goes on after a fault', async () => {
  const soon = (text: string) =>
    until(
      async () => (await ask()).startsWith(text),
      () => said,
    );
  writeFileSync(path.join(folder, 'index.js'), handler('second'));
  await soon('second');
  // It is in service a moment before the command hears of it.
  const told = await until(
    () => /reloaded, (\d+) ms/.exec(said)?.[1],
    () => said,
  );
  expect(Number(told)).toBeLessThan(3_000);
  writeFileSync(path.join(folder, 'index.js.new'), handler('third'));
  renameSync(path.join(folder, 'index.js.new'), path.join(folder, 'index.js'));
  await soon('third');
  writeFileSync(path.join(folder, 'index.js'), 'export default {');
  await until(
    () => said.includes('The code does not bundle'),
    () => said,
  );
  expect(await ask()).toMatch(/^third/);
  writeFileSync(path.join(folder, 'lib/tail.js'), "export const tail = '!';");
  writeFileSync(path.join(folder, 'index.js'), handler('fourth'));
  await until(
    async () => /^fourth \d+! hush$/.test(await ask()),
    () => said,
  );
});

it('ends with all that it started, and has its data the next time', async () => {
  child.kill('SIGINT');
  const [code] = (await once(child, 'exit')) as [number];
  expect(code).toBe(0);
  await expect(fetch(`http://localhost:${port}/healthz`)).rejects.toThrow();
  const without = await command('kv', 'list', '--local');
  expect(without.code).not.toBe(0);
  // A project decides nothing about the host: it would be refused for this.
  writeFileSync(path.join(folder, '.turnpike/dev/turnpike.host.json'), '{ "unknown": true }');
  await start();
  expect(Number(/fourth (\d+)!/.exec(await ask())?.[1])).toBeGreaterThan(3);
});

it('uses no data that came with a project, and writes through none of its links', async () => {
  const project = path.join(folder, 'downloaded');
  const precious = path.join(folder, 'precious');
  mkdirSync(path.join(project, '.turnpike/dev'), { recursive: true });
  writeFileSync(precious, 'kept');
  symlinkSync(precious, path.join(project, '.turnpike/.gitignore'));
  writeFileSync(path.join(project, 'index.js'), "export default { fetch: () => new Response('hi') };");
  const { code, stderr } = await turnpike(['dev', 'index.js', '--port', '0'], { cwd: project });
  expect([code, stderr, readFileSync(precious, 'utf8')]).toEqual([2, expect.stringContaining('came with'), 'kept']);
});

it('does not take another host at its port for its own', async () => {
  const other = createHttpServer((_request, response) => response.end('{}')).listen(0, '127.0.0.1');
  await once(other, 'listening');
  const project = path.join(folder, 'second');
  mkdirSync(project);
  writeFileSync(path.join(project, 'index.js'), "export default { fetch: () => new Response('hi') };");
  const { port: taken } = other.address() as { port: number };
  const { code, stderr, stdout } = await turnpike(['dev', 'index.js', '--port', String(taken)], { cwd: project });
  other.close();
  expect(code).not.toBe(0);
  expect(stdout).toBe('');
  expect(stderr).toMatch(/The host does not start: .*in use/s);
});
