/** Changes of one deployment that come at once, over a real registry and a runtime that does not start everything. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { updateEndpoint } from '../../host/control/api/owner/update.ts';
import type { ControlDeps } from '../../host/control/deps.ts';
import type { Call } from '../../host/control/endpoint.ts';
import { Deployments } from '../../host/registry/deployments.ts';
import type { Registry } from '../../host/registry/index.ts';
import { SecretBox } from '../../host/registry/secret-box.ts';
import { Secrets } from '../../host/registry/secrets.ts';
import { KeyedLock } from '../../host/shared/mutex.ts';
import { Problem } from '../../host/shared/problem.ts';
import { newDeployment } from '../registry/support/new-deployment.ts';
import { openTestRegistry } from '../registry/support/open.ts';

let folder: string;
let registry: Registry;
let deployments: Deployments;
let secrets: Secrets;
let parts: ControlDeps;
const removed: string[] = [];
const released: string[] = [];
/** Bytes of what is accepted. */
let bytes = 1;
const owner = { address: '0xa', did: 'did' };

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-updates-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  deployments = new Deployments(registry.db);
  secrets = new Secrets(registry.db, await SecretBox.open(path.join(folder, 'secrets.key')));
  let versions = 1;
  bytes = 1;
  removed.length = 0;
  released.length = 0;
  parts = {
    config: { runtime: { maxSecrets: 2 }, storage: {}, baseDomain: 'localhost' },
    clock: { now: () => 1 },
    log: { warn: () => undefined },
    publicUrl: 'http://h',
    deployments,
    blocks: { hasWallet: () => false },
    secrets,
    domains: { ofTenant: async () => [] },
    logs: { append: async () => undefined },
    routes: { push: async () => undefined },
    scheduleChanged: () => undefined,
    payments: { hostWallets: [], ownerTokens: { verify: () => owner } },
    pipeline: {
      accept: async () => ({ digest: `d${++versions}`, bytes, handlers: ['fetch'] }),
      check: async () => undefined,
    },
    updates: new KeyedLock(),
    removeCode: async (digests: string[]) => void removed.push(...digests),
    assets: { collect: async () => undefined },
    releaseCode: async (digest: string) => void released.push(digest),
    planInstance: async () => ({}),
    runtime: {
      expectUpdate: () => undefined,
      status: () => ({ state: 'warm', inFlight: 0 }),
      // What runs is the deployment as it is when the start begins.
      endPreviews: () => undefined,
      async activate(slug: string) {
        const row = await deployments.bySlug(slug);
        const values = await secrets.reveal(row?.tenant ?? '');
        await delay(50);
        if ('BAD' in values) throw new Problem('start_failed', 'BAD does not start');
      },
    },
  } as unknown as ControlDeps;
  await deployments.create(newDeployment({ tenant: 't1', slug: 'abc' }), 0);
});
afterEach(() => {
  registry.close();
  rmSync(folder, { recursive: true });
  vi.restoreAllMocks();
});

/** @returns the code of the refusal, or undefined */
async function put(input: object): Promise<string | undefined> {
  const call: Call = {
    request: new Request('http://h/_admin/code/abc', { method: 'PUT', headers: { authorization: 'Bearer x' } }),
    context: { requestId: 'r', clientIp: '127.0.0.1', proto: 'http', host: 'h' },
    params: { slug: 'abc' },
  };
  try {
    await updateEndpoint(parts, async () => input).handle(call);
    return undefined;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    return error.code;
  }
}

it('a change that does not start is taken back, whatever else is changed at the same time', async () => {
  const bad = put({ secretChanges: { BAD: 'x' } });
  await delay(20);
  const good = put({ payTo: `0x${'b'.repeat(40)}` });
  expect([await bad, await good]).toEqual(['start_failed', undefined]);
  expect(await secrets.reveal('t1')).toEqual({});
  expect((await deployments.byTenant('t1'))?.payTo).toBe(`0x${'b'.repeat(40)}`);
});

it('changes at the same time do not set more secrets than there may be', async () => {
  const answers = await Promise.all(['A', 'B', 'C'].map((name) => put({ secretChanges: { [name]: 'x' } })));
  // Which of them comes too late is nobody's promise.
  expect(answers.sort()).toEqual(['invalid_field', undefined, undefined]);
});

it('the newest 50 versions are kept, and code that nothing else needs goes with the older ones', async () => {
  for (let at = 0; at < 51; at++) expect(await put({ code: 'x' })).toBeUndefined();
  const kept = await deployments.versions.of('t1');
  expect([kept.length, kept[0]?.version, kept.at(-1)?.version]).toEqual([50, 52, 3]);
  expect(removed).toEqual(['d1', 'd2']);
}, 20_000);

it('versions past 100 MB together go, however few; the newest two stay', async () => {
  bytes = 60_000_000;
  for (let at = 0; at < 2; at++) expect(await put({ code: 'x' })).toBeUndefined();
  expect([(await deployments.versions.of('t1')).map(({ version }) => version), removed]).toEqual([[3, 2], ['d1']]);
  bytes = 20_000_000;
  for (let at = 0; at < 2; at++) expect(await put({ code: 'x' })).toBeUndefined();
  expect((await deployments.versions.of('t1')).map(({ version }) => version)).toEqual([5, 4, 3]);
  expect(removed).toEqual(['d1', 'd2']);
});

it('code is not held any longer once it is in service, or did not start', async () => {
  expect(await put({ code: 'x', secrets: { BAD: 'x' } })).toBe('start_failed');
  expect(await put({ code: 'x' })).toBeUndefined();
  expect(await put({ payTo: `0x${'b'.repeat(40)}` })).toBeUndefined();
  expect(released).toEqual(['d2', 'd3']);
});
