/** A start that fails before workerd has its configuration must not leave the sandbox that waits for it. */
import { existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import pino from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { DeploymentRunner, type RunnerOptions } from '../../host/runtime/deployment-runner.ts';
import { type PrewarmedSandbox, sandboxFolders } from '../../host/runtime/prewarmed-sandbox.ts';
import { SharedServices } from '../../host/runtime/shared-services.ts';
import type { InstanceSpec } from '../../host/shared/contracts.ts';

let folder: string;
let prewarmed: PrewarmedSandbox;
const kill = vi.fn();

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'start-'));
  const { promise, resolve } = Promise.withResolvers<{ code: number }>();
  kill.mockReset().mockImplementation(() => resolve({ code: 137 }));
  const { listenFolder, servicesFolder } = sandboxFolders(join(folder, 'c'));
  for (const made of [listenFolder, servicesFolder]) mkdirSync(made, { recursive: true });
  const process = { exited: promise, ended: promise, helper: undefined, pid: () => undefined, terminate: kill, kill };
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  prewarmed = {
    listenFolder,
    servicesFolder,
    uid: undefined,
    inside: { listen: '/run/listen', services: '/run/services' },
    process: { ...process, ...streams, control: new PassThrough() } as unknown as PrewarmedSandbox['process'],
    cgroup: undefined,
    judging: false,
  };
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function spec(over: Partial<InstanceSpec>): InstanceSpec {
  return {
    slug: 'hello',
    tenant: 't00000000000000000001',
    revision: '1',
    bundle: { modules: [], sourceMap: undefined },
    compatibilityDate: '2026-10-01',
    compatibilityFlags: [],
    vars: {},
    secrets: {},
    bindings: { kv: false, d1: false, r2: false, payments: false },
    crons: [],
    egressAllow: [],
    ...over,
  };
}

function runner(runFolder: string, over: Partial<InstanceSpec> = {}): DeploymentRunner {
  const nothing = async () => undefined;
  return new DeploymentRunner({
    slug: 'hello',
    databaseProgram: Promise.resolve(''),
    standby: { take: async () => prewarmed },
    cgroups: undefined,
    nextGeneration: () => 1,
    admit: nothing,
    servicesOf: () => new SharedServices(() => undefined),
    dependencies: {
      config: { heapMb: 128, startTimeoutMs: 200 },
      runFolder,
      logs: { append: nothing },
      log: pino({ level: 'silent' }),
      resolve: async () => spec(over),
      egress: { open: nothing, close: nothing },
      edges: { setInstance: nothing, retire: nothing, failed: nothing },
    },
  } as unknown as RunnerOptions);
}

test('a link that cannot be made ends the sandbox', async () => {
  await expect(runner(join(folder, 'missing')).acquire()).rejects.toThrow('ENOENT');
  await expect.poll(() => kill).toHaveBeenCalled();
  await expect.poll(() => existsSync(join(folder, 'c'))).toBe(false);
});

test('a configuration that cannot be written ends the sandbox', async () => {
  await expect(runner(folder, { compatibilityFlags: undefined as never }).acquire()).rejects.toThrow(TypeError);
  await expect.poll(() => kill).toHaveBeenCalled();
  await expect.poll(() => existsSync(join(folder, 'c'))).toBe(false);
  expect(existsSync(join(folder, 'hello'))).toBe(false);
});
