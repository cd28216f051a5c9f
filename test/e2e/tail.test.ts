/** `turnpike tail`: requests, console lines and exceptions as they come, of the real host with two edges. */
import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { deploy, type Fetch, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

let host: TestHost;
let owner: Fetch;
beforeAll(async () => {
  host = await startHost({ flags: { 'log-level': 'error', 'edge-processes': '2' } });
  owner = mppFetch(host.network, 0);
  await deploy(owner, host.url, {
    slug: 'tailed',
    code: `export default { fetch(request) {
      const { pathname } = new URL(request.url);
      if (pathname === '/throw') throw new Error('thrown on purpose');
      if (pathname === '/say') console.warn('said by the handler');
      return new Response(pathname, { status: pathname === '/teapot' ? 418 : 200 });
    } }`,
    paidRoutes: [{ method: 'GET', path: '/priced', price: '0.01' }],
  });
  await deploy(owner, host.url, { slug: 'other', code: 'export default { fetch: () => new Response("other") }' });
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
});

/** Calls every path again and again, so that none is only before the tail began; then ends. */
async function tail(args: string[], paths: string[], stopWhen: (stdout: string) => boolean) {
  const command = ['--host-url', host.url, '--data', host.data, 'tail', 'tailed', ...args];
  let over = false;
  const result = turnpike(command, { cwd: host.data, stopWhen }).finally(() => {
    over = true;
  });
  while (!over) {
    for (const path of paths) await fetch(`${host.url}${path}`, { method: path.endsWith('#put') ? 'PUT' : 'GET' });
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  return result;
}
const has =
  (...texts: string[]) =>
  (stdout: string) =>
    texts.every((text) => stdout.includes(text));

it('shows the requests of both edges, paid paths, console lines and exceptions, of that slug alone', async () => {
  const paths = ['/tailed/a?b=c', '/tailed/say', '/tailed/throw', '/tailed/priced', '/other/never', '/tailed/put#put'];
  const parts = ['GET /a?b=c  200', 'said by the handler', 'GET /throw  500', 'GET /priced  402', 'PUT /put  200'];
  const { code, stdout } = await tail([], paths, has(...parts, 'Error: thrown on purpose'));
  expect(code).toBe(0);
  expect(stdout).toMatch(/^\S+Z {2}request {4}GET \/a\?b=c {2}200 {2}\d+ ms$/m);
  expect(stdout).not.toContain('/never');
  expect(stdout).not.toContain('version 1 is live');
  // Nothing of them is kept.
  const kept = await (await owner(`${host.url}/_admin/tailed/logs?limit=5000`)).text();
  expect(kept).toContain('said by the handler');
  expect(kept).not.toContain('/a?b=c');
});

it('filters, and prints one document a line', async () => {
  const paths = ['/tailed/teapot', '/tailed/throw', '/tailed/say'];
  const { stdout } = await tail(
    ['--format', 'json', '--status', 'error', '--search', 'throw'],
    paths,
    has('"request"', '"exception"'),
  );
  const lines = stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  for (const line of lines) expect(['request', 'exception']).toContain(line.kind);
  expect(lines.find(({ kind }) => kind === 'request')).toEqual({
    kind: 'request',
    time: expect.stringMatching(/Z$/),
    method: 'GET',
    path: '/throw',
    status: 500,
    ms: expect.any(Number),
  });
});

it('goes on when the host was killed and is there again', async () => {
  let seen = '';
  let over = false;
  const following = turnpike(['--host-url', host.url, '--data', host.data, 'tail', 'tailed'], {
    cwd: host.data,
    stopWhen: (stdout) => {
      seen = stdout;
      return seen.includes('GET /after ');
    },
  }).finally(() => {
    over = true;
  });
  await until(async () => {
    await fetch(`${host.url}/tailed/before`);
    return seen.includes('GET /before ');
  });
  await host.kill();
  host = await host.restart();
  await until(async () => {
    await fetch(`${host.url}/tailed/after`);
    return over;
  });
  const { code, stderr } = await following;
  expect([code, stderr]).toEqual([0, expect.any(String)]);
});

it('a stranger sees nothing', async () => {
  const response = await mppFetch(host.network, 1)(`${host.url}/_admin/tailed/logs?requests=true`, {
    headers: { accept: 'text/event-stream' },
  });
  expect(response.status).toBe(403);
  await response.body?.cancel();
});
