import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { ControlDeps } from '../../host/control/deps.ts';
import { bringIntoService } from '../../host/control/versions.ts';
import { Deployments, newTenantId } from '../../host/registry/deployments.ts';
import type { Registry } from '../../host/registry/index.ts';
import type { Deployment } from '../../host/registry/schema/deployments.ts';
import { SecretBox } from '../../host/registry/secret-box.ts';
import { Secrets } from '../../host/registry/secrets.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { KeyedLock } from '../../host/shared/mutex.ts';
import { newDeployment } from '../registry/support/new-deployment.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const NOW = Date.parse('2026-11-01T00:00:00Z');

let folder: string;
let registry: Registry;
let deployments: Deployments;
let secrets: Secrets;
let present: Deployment;
/** What a start of the newest revision comes to. */
let start: () => Promise<void>;

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-versions-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  deployments = new Deployments(registry.db);
  secrets = new Secrets(registry.db, await SecretBox.open(path.join(folder, 'secrets.key')));
  const tenant = newTenantId();
  const sealed = secrets
    .seal(tenant, { KEY: 'kept' })
    .map((secret) => ({ ...secret, sealed: secret.sealed.toString('base64') }));
  const code = { digest: 'works', bytes: 1, handlers: ['fetch'] };
  present = await deployments.create(newDeployment({ tenant, code, secrets: sealed }), NOW);
});
afterEach(() => {
  registry.close();
  rmSync(folder, { recursive: true });
});

const updates = new KeyedLock();

const put = (digest: string) => {
  const parts = {
    deployments,
    secrets,
    clock: new ManualClock(NOW),
    runtime: { activate: () => start(), endPreviews: () => undefined },
    routes: { push: async () => undefined },
    scheduleChanged: () => undefined,
    removeCode: async () => undefined,
    assets: { collect: async () => undefined },
  } as unknown as ControlDeps;
  const code = { digest, bytes: 1, handlers: ['fetch'], note: 'update' };
  return updates.run(present.tenant, () =>
    bringIntoService(parts, present, { code, secrets: secrets.seal(present.tenant, { KEY: digest }) }),
  );
};

it('two changes at once that do not start leave what was there before', async () => {
  const begun = Promise.withResolvers<void>();
  start = async () => {
    begun.resolve();
    await new Promise((resolve) => setTimeout(resolve, 100));
    throw new Error('does not start');
  };
  const first = put('broken');
  await Promise.race([begun.promise, first]);
  const done = await Promise.allSettled([first, put('broken too')]);
  expect(done.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  expect(await deployments.byTenant(present.tenant)).toMatchObject({ digest: 'works', version: 1 });
  expect(await deployments.versions.of(present.tenant)).toHaveLength(1);
  expect(await secrets.reveal(present.tenant)).toEqual({ KEY: 'kept' });
});

it('a change that is taken back after a rotation brings back secrets that can be read', async () => {
  start = async () => {
    await secrets.rotate();
    throw new Error('does not start');
  };
  await expect(put('broken')).rejects.toThrow('does not start');
  expect(await secrets.reveal(present.tenant)).toEqual({ KEY: 'kept' });
  // Nothing goes on: now the old keys are forgotten.
  await secrets.rotate();
  expect(await secrets.reveal(present.tenant)).toEqual({ KEY: 'kept' });
});
