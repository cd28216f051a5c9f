import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { domainEndpoints } from '../../host/control/api/owner/domains.ts';
import { logsEndpoint } from '../../host/control/api/owner/logs.ts';
import { updateEndpoint } from '../../host/control/api/owner/update.ts';
import type { ControlDeps } from '../../host/control/deps.ts';
import type { Call } from '../../host/control/endpoint.ts';
import { NodeLogs } from '../../host/control/node-logs.ts';
import { LogStore } from '../../host/runtime/logs/log-store.ts';
import { KeyedLock } from '../../host/shared/mutex.ts';
import { NO_OTHERS } from '../../host/shared/others.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'turnpike-endpoints-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const owner = { address: '0xaa', did: 'did' };
const deployment = {
  slug: 'abc',
  tenant: 't1',
  owner: '0xaa',
  state: 'active',
  handlers: ['fetch'],
  bindings: {},
  vars: {},
  crons: [],
  payTo: '0xold',
  paidRoutes: [],
};

function call(method: string, url: string, headers: Record<string, string> = {}): Call {
  return {
    request: new Request(`http://h${url}`, { method, headers: { authorization: 'Bearer x', ...headers } }),
    context: { requestId: 'r', clientIp: '127.0.0.1', proto: 'http', host: 'h' },
    params: { slug: 'abc' },
  };
}

const nodeLogs = (logs: Pick<LogStore, 'read' | 'tail'>) =>
  new NodeLogs({
    logs,
    liveRequests: { watch: () => ({ told: Promise.resolve(), end: () => undefined }) },
    others: NO_OTHERS,
    now: Date.now,
  });

it('a follower of a log that does not read costs a bounded amount of memory', async () => {
  const logs = new LogStore({ folder, clock: { now: () => Date.now() } as never, maxBytes: 100_000 });
  let begun = 0;
  let ended = 0;
  const followed = {
    read: logs.read.bind(logs),
    async *tail(...args: Parameters<LogStore['tail']>) {
      try {
        begun++;
        yield* logs.tail(...args);
      } finally {
        ended++;
      }
    },
  };
  const parts = {
    nodeLogs: nodeLogs(followed as unknown as LogStore),
    deployments: { bySlug: async () => deployment },
    payments: { hostWallets: [], ownerTokens: { verify: async () => owner } },
    runtime: { expectUpdate: () => undefined },
  } as unknown as ControlDeps;
  const response = (await logsEndpoint(parts).handle(
    call('GET', '/_admin/abc/logs', { accept: 'text/event-stream' }),
  )) as Response;
  const reader = response.body?.getReader();
  if (!reader) throw new Error('no body');
  await expect.poll(() => begun).toBe(1);
  for (let i = 0; i < 20_000; i++) {
    await logs.append('t1', { kind: 'console', level: 'log', text: `${i} ${'x'.repeat(1_000)}` } as never);
    if (i % 100 === 0) await setImmediate();
  }
  // Now it reads: what comes up to the last line is what was held for it.
  let bytes = 0;
  for (let last = ''; !last.includes('"19999 '); ) {
    const { value = new Uint8Array() } = await reader.read();
    bytes += value.byteLength;
    last = new TextDecoder().decode(value);
  }
  await logs.append('t1', { kind: 'console', level: 'log', text: 'not taken' } as never);
  await logs.append('t1', { kind: 'console', level: 'log', text: 'not taken' } as never);
  await reader.cancel();
  await expect.poll(() => ended).toBe(1);
  await logs.close();
  expect(bytes).toBeLessThan(2_000_000);
}, 30_000);

it.each([
  ['since', '?since=2026-01-01T00:00:00Z', {}, ['new']],
  ['limit', '?limit=0', {}, ['new']],
  ['last-event-id', '?limit=1', { 'last-event-id': '2' }, ['old 3', 'old 4', 'new']],
])('a follower gets what it asked for with %s', async (_name, query, headers, wanted) => {
  let now = Date.parse('2025-01-01T00:00:00Z');
  const logs = new LogStore({ folder, clock: { now: () => now } as never, maxBytes: 100_000 });
  const say = (text: string) => logs.append('t1', { kind: 'console', level: 'log', text });
  for (let line = 1; line <= 4; line++) await say(`old ${line}`);
  now = Date.parse('2026-06-01T00:00:00Z');
  const parts = {
    nodeLogs: nodeLogs(logs),
    deployments: { bySlug: async () => deployment },
    payments: { hostWallets: [], ownerTokens: { verify: async () => owner } },
    runtime: { expectUpdate: () => undefined },
  } as unknown as ControlDeps;
  const response = (await logsEndpoint(parts).handle(
    call('GET', `/_admin/abc/logs${query}`, { accept: 'text/event-stream', ...headers }),
  )) as Response;
  const reader = response.body?.getReader();
  const seen: string[] = [];
  setTimeout(() => void say('new'), 200);
  while (seen.at(-1) !== 'new') {
    const text = new TextDecoder().decode((await reader?.read())?.value);
    if (text !== ': live\n\n') seen.push(/"text":"([^"]*)"/.exec(text)?.[1] ?? '?');
  }
  await reader?.cancel();
  await logs.close();
  expect(seen).toEqual(wanted);
});

it('a follower is told that it is live when the edges have been told, and not before', async () => {
  const logs = new LogStore({ folder, clock: { now: () => Date.now() } as never, maxBytes: 100_000 });
  const told = Promise.withResolvers<void>();
  const liveRequests = { watch: () => ({ told: told.promise, end: () => undefined }) };
  const parts = {
    nodeLogs: new NodeLogs({ logs, liveRequests, others: NO_OTHERS, now: Date.now }),
    deployments: { bySlug: async () => deployment },
    payments: { hostWallets: [], ownerTokens: { verify: async () => owner } },
    runtime: { expectUpdate: () => undefined },
  } as unknown as ControlDeps;
  const asked = call('GET', '/_admin/abc/logs?requests=true', { accept: 'text/event-stream' });
  const response = (await logsEndpoint(parts).handle(asked)) as Response;
  const reader = response.body?.getReader();
  const next = async () => new TextDecoder().decode((await reader?.read())?.value);
  const first = next();
  await logs.append('t1', { kind: 'console', level: 'log', text: 'before' });
  expect(await first).toContain('before');
  told.resolve();
  expect(await next()).toBe(': live\n\n');
  await reader?.cancel();
  await logs.close();
});

it('a follower who left while the deployment was looked up is not followed for ever', async () => {
  const logs = new LogStore({ folder, clock: { now: () => Date.now() } as never, maxBytes: 100_000 });
  const leaving = new AbortController();
  const parts = {
    nodeLogs: nodeLogs(logs),
    deployments: {
      bySlug: async () => {
        leaving.abort();
        return deployment;
      },
    },
    payments: { hostWallets: [], ownerTokens: { verify: async () => owner } },
    runtime: { expectUpdate: () => undefined },
  } as unknown as ControlDeps;
  const made = call('GET', '/_admin/abc/logs', { accept: 'text/event-stream' });
  const request = new Request(made.request, { signal: leaving.signal });
  const response = (await logsEndpoint(parts).handle({ ...made, request })) as Response;
  expect(await response.text()).toBe('');
  await logs.close();
});

it('an update of the code leaves what another update set meanwhile', async () => {
  const changes: { settings?: object }[] = [];
  const parts = {
    config: { runtime: { maxSecrets: 64 } },
    clock: { now: () => 0 },
    blocks: { hasWallet: () => false },
    deployments: {
      bySlug: async () => deployment,
      snapshot: async () => ({}),
      secretNames: async () => [],
      update: async (_tenant: string, change: { settings?: object }) => {
        changes.push(change);
        throw new Error('enough');
      },
    },
    secrets: { reveal: async () => ({}), keepingKeys: (work: () => unknown) => work() },
    payments: { hostWallets: [], ownerTokens: { verify: async () => owner } },
    runtime: { expectUpdate: () => undefined },
    planInstance: async () => ({}),
    updates: new KeyedLock(),
    // Meanwhile the owner sets another payee: deployment was read before.
    pipeline: { accept: async () => ({ digest: 'd', bytes: 1, handlers: ['fetch'] }) },
    releaseCode: async () => undefined,
  } as unknown as ControlDeps;
  const endpoint = updateEndpoint(parts, async () => ({ code: 'export default {}' }));
  await expect(Promise.resolve(endpoint.handle(call('PUT', '/_admin/code/abc')))).rejects.toThrow('enough');
  expect(changes[0]?.settings ?? {}).not.toHaveProperty('payTo');
}, 10_000);

it('a body that nobody has proved to own is read no further than an attachment needs', async () => {
  const parts = {
    config: { baseDomain: 'localhost' },
    publicUrl: 'http://h',
    deployments: { bySlug: async () => undefined },
  } as unknown as ControlDeps;
  const [attach] = domainEndpoints(parts, { vouches: () => false } as never);
  const body = `{"domain":[${'[],'.repeat(7_000_000)}0]}`;
  const request = new Request('http://h/_admin/abc/domains', { method: 'POST', body });
  await expect(Promise.resolve(attach?.handle({ ...call('POST', '/'), request }))).rejects.toMatchObject({
    code: 'too_large',
  });
});
