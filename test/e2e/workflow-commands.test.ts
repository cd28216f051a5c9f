/** `turnpike queues` and `turnpike workflows` on a real deployment. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-command.ts';

const HANDLER = `
import { WorkflowEntrypoint } from 'cloudflare:workers';
export class Flow extends WorkflowEntrypoint {
  async run(event, step) {
    const heard = await step.waitForEvent('wait', { type: 'go', timeout: '1 hour' });
    return { n: event.payload.n, heard: heard.payload };
  }
}
export default {
  async fetch(request, env) {
    await env.JOBS.send('later', { delaySeconds: 600 });
    return new Response('sent');
  },
  queue() {},
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
    queues: { producers: [{ binding: 'JOBS', queue: 'jobs' }], consumers: [{ queue: 'jobs' }] },
    workflows: [{ binding: 'FLOW', name: 'flow', class_name: 'Flow' }],
  };
  writeFileSync(path.join(folder, 'wrangler.json'), JSON.stringify(config));
  writeFileSync(path.join(folder, 'index.js'), HANDLER);
  expect((await command('deploy', '--yes')).stderr).toBe('');
}, 60_000);
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

it('starts an instance, directs it, and shows how it ended', async () => {
  expect(await ok('workflows', 'create', 'one', '--params', '{"n":7}')).toBe('one');
  await expect.poll(async () => (await status('one')).status, { timeout: 20_000 }).toBe('waiting');
  await ok('workflows', 'pause', 'one');
  await expect.poll(async () => (await status('one')).status, { timeout: 20_000 }).toBe('paused');
  await ok('workflows', 'resume', 'one');
  await ok('workflows', 'send', 'one', '--type', 'go', '--payload', '"now"');
  await expect.poll(async () => (await status('one')).status, { timeout: 20_000 }).toBe('complete');
  expect(await ok('workflows', 'status', 'one')).toContain('{"n":7,"heard":"now"}');
  await ok('workflows', 'restart', 'one');
  await ok('workflows', 'terminate', 'one');
  expect((await status('one')).status).toBe('terminated');
});

it.each([
  [['workflows', 'status', 'nobody'], /not.found/i],
  [['workflows', 'create', 'one'], /already exists/],
  [['workflows', 'create', 'two', '--params', '{'], /--params is no JSON/],
  [['workflows', 'send', 'one', '--type', 'go', '--payload', 'x'], /--payload is no JSON/],
  [['d1', 'execute', 'JOBS', '--command', 'SELECT 1'], /JOBS is a queue/],
])('%j says what is wrong', async (args, words) => {
  const { code, stderr } = await command(...args);
  expect(code).not.toBe(0);
  expect(stderr).toMatch(words);
});
