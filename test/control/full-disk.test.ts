/** A disk that takes no log of a tenant: what a line would tell of has happened all the same. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { deployEndpoint } from '../../host/control/api/owner/deploy.ts';
import type { ControlDeps } from '../../host/control/deps.ts';
import { Lifecycle } from '../../host/control/lifecycle.ts';
import type { Completion } from '../../host/payments/types.ts';
import { Deployments, type NewDeployment } from '../../host/registry/deployments.ts';
import { openRegistry, type Registry } from '../../host/registry/index.ts';
import { LogStore } from '../../host/runtime/logs/log-store.ts';
import { configSchema } from '../../host/shared/config.ts';
import { newDeployment } from '../registry/support/new-deployment.ts';

const TERM_MS = 1_000;
const config = configSchema.parse(defaults);
let folder: string;
let registry: Registry;
let deployments: Deployments;
let logs: LogStore;

beforeEach(async () => {
  vi.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
  folder = mkdtempSync(path.join(tmpdir(), 'tp-full-'));
  mkdirSync(path.join(folder, 'tenants'));
  registry = await openRegistry(path.join(folder, 'registry.db'));
  deployments = new Deployments(registry.db);
  logs = new LogStore({ folder: path.join(folder, 'tenants'), clock: { now: () => 0 } as never, maxBytes: 1_000 });
});
afterEach(async () => {
  await logs.close();
  registry.close();
  rmSync(folder, { recursive: true });
  vi.restoreAllMocks();
});

const input = (slug: string): NewDeployment => newDeployment({ tenant: `t-${slug}`, slug, termMs: TERM_MS });

/** No folder can be made for its log. */
function refuseLogOf(slug: string): void {
  writeFileSync(path.join(folder, 'tenants', `t-${slug}`), '');
}

it('a paid deploy that is live is not called failed, which would owe its payer a refund', async () => {
  let complete: Completion | undefined;
  const parts = {
    config,
    clock: { now: () => 0 },
    log: { info: () => undefined },
    publicUrl: 'http://h',
    deployments,
    logs,
    domains: { ofTenant: async () => [] },
    routes: { push: async () => undefined },
    runtime: { status: () => ({ state: 'cold', inFlight: 0 }) },
    scheduleChanged: () => undefined,
    releaseCode: async () => undefined,
    payments: { registerCompletion: (_: string, completion: Completion) => (complete = completion) },
  } as unknown as ControlDeps;
  deployEndpoint(parts, async () => ({}));
  refuseLogOf('abc');
  expect(await complete?.(input('abc') as never, {} as never)).toMatchObject({ status: 201 });
});

it('all that expired is ended, not only what comes before the first log that cannot be written', async () => {
  for (const slug of ['one', 'two', 'three']) await deployments.create(input(slug), 0);
  refuseLogOf('one');
  const pushed: string[] = [];
  const stopped: string[] = [];
  const lifecycle = new Lifecycle({
    config: config.slugs,
    clock: { now: () => TERM_MS },
    log: { info: () => undefined, error: () => undefined },
    deployments,
    logs,
    routes: { push: async (slug: string) => void pushed.push(slug) },
    runtime: { stop: async (slug: string) => void stopped.push(slug) },
  } as never);
  await lifecycle.tick().catch(() => undefined);
  // The next tick: what is expired in the registry is not found again.
  await lifecycle.tick().catch(() => undefined);
  expect([pushed.sort(), stopped.sort()]).toEqual([
    ['one', 'three', 'two'],
    ['one', 'three', 'two'],
  ]);
});
