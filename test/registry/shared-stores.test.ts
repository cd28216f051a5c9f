import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { DAY_MS, Deployments, newTenantId } from '../../host/registry/deployments.ts';
import type { Registry } from '../../host/registry/index.ts';
import { SharedStores } from '../../host/registry/shared-stores.ts';
import type { BindingSet } from '../../host/shared/contracts.ts';
import { newDeployment } from './support/new-deployment.ts';
import { openTestRegistry } from './support/open.ts';

const NOW = Date.parse('2026-11-01T00:00:00Z');
let folder: string;
let registry: Registry;
let deployments: Deployments;
let shared: SharedStores;
beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-registry-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  deployments = new Deployments(registry.db);
  shared = new SharedStores(registry.db);
});
afterEach(() => {
  registry.close();
  rmSync(folder, { recursive: true });
});

const SESSIONS: BindingSet = { kv: { S: { id: 'sessions', shared: true }, OWN: { id: 'own' } }, d1: true };

async function create(slug: string, owner: string, bindings: BindingSet): Promise<string> {
  const made = newDeployment({ tenant: newTenantId(), slug, owner, secrets: [], termMs: 30 * DAY_MS });
  const { tenant } = await deployments.create({ ...made, settings: { ...made.settings, bindings } }, NOW);
  return tenant;
}

it('a store is one deployment’s alone until another of the owner names it', async () => {
  const first = await create('first', '0xa', SESSIONS);
  expect(await shared.onlyOf(first)).toEqual([{ owner: '0xa', kind: 'kv', id: 'sessions' }]);
  const second = await create('second', '0xa', SESSIONS);
  expect(await shared.onlyOf(first)).toEqual([]);
  await shared.forget(first);
  expect(await shared.onlyOf(first)).toEqual([]);
  expect(await shared.onlyOf(second)).toEqual([{ owner: '0xa', kind: 'kv', id: 'sessions' }]);
});

it('what another owner names counts for nothing', async () => {
  const one = await create('one', '0xa', SESSIONS);
  await create('other', '0xb', SESSIONS);
  expect(await shared.onlyOf(one)).toEqual([{ owner: '0xa', kind: 'kv', id: 'sessions' }]);
});

it('a deployment that names it no more still holds it; one that begins to name it holds it, too', async () => {
  const one = await create('one', '0xa', SESSIONS);
  const late = await create('late', '0xa', {});
  await deployments.update(one, { settings: { bindings: {} } }, NOW);
  expect(await shared.onlyOf(one)).toHaveLength(1);
  await deployments.update(late, { settings: { bindings: SESSIONS } }, NOW);
  await deployments.update(late, { settings: { bindings: SESSIONS } }, NOW);
  expect(await shared.onlyOf(one)).toEqual([]);
});
