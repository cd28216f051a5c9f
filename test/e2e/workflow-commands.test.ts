/** `turnpike queues` and `turnpike workflows` on a real deployment. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';

const HANDLER = `
import { WorkflowEntrypoint } from 'cloudflare:workers';
export class Flow extends WorkflowEntrypoint {
  async run(event, step) {
    if (event.payload.n === undefined) throw new Error('no n');
    const heard = await step.waitForEvent('wait', { type: 'go', timeout: '1 hour' });
    return { n: event.payload.n, heard: heard.payload };
  }
}
export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (pathname === '/got') return Response.json((await env.STORE.list()).keys.map(({ name }) => name));
    await env.JOBS.send(pathname, { delaySeconds: pathname === '/' ? 600 : 0 });
    return new Response('sent');
  },
  async queue(batch, env) {
    for (const { body } of batch.messages) await env.STORE.put(body, '');
  },
};
`;

let folder: string;
let host: TestHost;
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-flows-'));
  host = await startHost({ flags: { 'log-level': 'error' } });
  const config = {
    name: 'flows',
    main: 'index.js',
    compatibility_date: '2026-01-01',
    queues: {
      producers: [{ binding: 'JOBS', queue: 'jobs' }],
      consumers: [{ queue: 'jobs', max_batch_timeout: 0 }, { queue: 'dead' }],
    },
    kv_namespaces: [{ binding: 'STORE', id: 'store' }],
    workflows: [{ binding: 'FLOW', name: 'flow', class_name: 'Flow' }],
  };
  writeFileSync(path.join(folder, 'wrangler.json'), JSON.stringify(config));
  writeFileSync(path.join(folder, 'index.js'), HANDLER);
  expect((await command('deploy', '--yes')).stderr).toBe('');
});
afterAll(async () => {
  await host?.stop();
  if (host) rmSync(host.data, { recursive: true, force: true });
  rmSync(folder, { recursive: true, force: true });
});

const command = (...args: string[]) =>
  turnpike(['--host-url', host.url, '--data', host.data, ...args], { cwd: folder });
async function ok(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await command(...args);
  expect([stderr, code]).toEqual(['', 0]);
  return stdout.trimEnd();
}
const status = async (id: string) => JSON.parse(await ok('workflows', 'status', id, '--json')) as { status: string };

it('shows what waits in a queue', async () => {
  await fetch(`${host.url}/flows/`);
  await fetch(`${host.url}/flows/`);
  expect(await ok('queues')).toMatch(/JOBS\s+jobs\s+2\s+\d+/);
});

const send = (body: string) => fetch(`${host.url}/flows/${body}`);
const got = async () => (await (await fetch(`${host.url}/flows/got`)).json()) as string[];

it('pauses a queue over a restart of the host, resumes and purges it', async () => {
  expect(await ok('queues', 'pause', 'jobs')).toBe('jobs is paused: 2 waiting');
  await send('paused');
  expect(await ok('queues', 'list')).toMatch(/JOBS\s+jobs\s+3\s+\d+\s+paused/);
  await host.kill();
  host = await host.restart();
  await send('paused-too');
  // Another queue is delivered meanwhile, and this one is not.
  expect(await ok('queues', 'purge', 'dead')).toBe('dead: 0 waiting');
  expect(await ok('queues')).toMatch(/jobs\s+4\s+\d+\s+paused/);
  expect(await got()).toEqual([]);
  expect(await ok('queues', 'resume', 'jobs')).toMatch(/^jobs: [234] waiting$/);
  await expect.poll(got).toEqual(['/paused', '/paused-too']);
  await ok('queues', 'pause', 'jobs');
  await send('purged');
  await ok('queues', 'purge', 'jobs');
  await expect.poll(() => ok('queues')).toMatch(/jobs\s+0\s+0\s+paused/);
  await ok('queues', 'resume', 'jobs');
  await send('after');
  await expect.poll(got).toEqual(['/after', '/paused', '/paused-too']);
});

it('starts an instance, directs it, and shows how it ended', async () => {
  expect(await ok('workflows', 'create', 'one', '--params', '{"n":7}')).toBe('one');
  await expect.poll(async () => (await status('one')).status).toBe('waiting');
  await ok('workflows', 'pause', 'one');
  await expect.poll(async () => (await status('one')).status).toBe('paused');
  await ok('workflows', 'resume', 'one');
  await ok('workflows', 'send', 'one', '--type', 'go', '--payload', '"now"');
  await expect.poll(async () => (await status('one')).status).toBe('complete');
  expect(await ok('workflows', 'status', 'one')).toContain('{"n":7,"heard":"now"}');
  await ok('workflows', 'restart', 'one');
  await ok('workflows', 'terminate', 'one');
  expect((await status('one')).status).toBe('terminated');
});

it('lists instances in pages, those that have ended included', async () => {
  await ok('workflows', 'create', 'two', '--params', '{"n":2}');
  await ok('workflows', 'create', 'three');
  type Page = { instances: { id: string; status: string; created: string; ended?: string }[]; cursor?: string };
  const list = async (...args: string[]) => JSON.parse(await ok('workflows', 'list', ...args, '--json')) as Page;
  await expect
    .poll(async () => (await list('flow')).instances.map(({ id, status }) => [id, status]))
    .toEqual([
      ['three', 'errored'],
      ['two', 'waiting'],
      ['one', 'terminated'],
    ]);
  const { instances } = await list('--status', 'terminated');
  expect(instances).toMatchObject([{ id: 'one' }]);
  expect(Date.parse(String(instances[0]?.ended))).toBeGreaterThanOrEqual(Date.parse(String(instances[0]?.created)));
  const first = await list('FLOW', '--limit', '2');
  expect(first.instances.map(({ id }) => id)).toEqual(['three', 'two']);
  const rest = await list('FLOW', '--limit', '2', '--cursor', String(first.cursor));
  expect(rest).toEqual({ instances });
  expect(await ok('workflows', 'list')).toMatch(/one\s+terminated\s+20/);
});

it.each([
  [['workflows', 'status', 'nobody'], /not.found/i],
  [['workflows', 'create', 'one'], /already exists/],
  [['workflows', 'list', '--status', 'odd'], /status is one of/],
  [['workflows', 'list', '--limit', '101'], /limit is 1 to 100/],
  [['workflows', 'list', '--cursor', '-1'], /cursor is of another list/],
  [['queues', 'purge', 'nobody'], /has no queue nobody. It has: jobs, dead/],
  [['workflows', 'create', 'two', '--params', '{'], /--params is no JSON/],
  [['workflows', 'send', 'one', '--type', 'go', '--payload', 'x'], /--payload is no JSON/],
  [['d1', 'execute', 'JOBS', '--command', 'SELECT 1'], /is a queue/],
])('%j says what is wrong', async (args, words) => {
  const { code, stderr } = await command(...args);
  expect(code).not.toBe(0);
  expect(stderr).toMatch(words);
});
