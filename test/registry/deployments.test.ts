import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { DAY_MS, Deployments, type NewDeployment, newTenantId } from '../../host/registry/deployments.ts';
import type { Registry } from '../../host/registry/index.ts';
import { SecretBox } from '../../host/registry/secret-box.ts';
import { Secrets } from '../../host/registry/secrets.ts';
import { newDeployment } from './support/new-deployment.ts';
import { openTestRegistry } from './support/open.ts';

let folder: string;
let registry: Registry;
let deployments: Deployments;
let secrets: Secrets;
const NOW = Date.parse('2026-11-01T00:00:00Z');
const TERM = 30 * DAY_MS;

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-registry-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  deployments = new Deployments(registry.db);
  secrets = new Secrets(registry.db, await SecretBox.open(path.join(folder, 'secrets.key')));
});
afterEach(() => {
  registry.close();
  rmSync(folder, { recursive: true });
});

function input(slug: string, owner = '0xa', values: Record<string, string> = {}): NewDeployment {
  const tenant = newTenantId();
  const sealed = secrets
    .seal(tenant, values)
    .map((secret) => ({ ...secret, sealed: secret.sealed.toString('base64') }));
  return newDeployment({ tenant, slug, owner, secrets: sealed, termMs: TERM });
}

describe('deployments', () => {
  it('lets one of two claimants have a slug, and frees it when the claim is given back or over', async () => {
    await deployments.claims.take('hello', 'first', '0xa', NOW, 1_000);
    await expect(deployments.claims.take('hello', 'second', '0xb', NOW, 1_000)).rejects.toMatchObject({
      code: 'slug_taken',
    });
    await deployments.claims.take('hello', 'first', '0xa', NOW, 1_000);
    await deployments.claims.take('hello', 'second', '0xb', NOW + 1_000, 1_000);
    await deployments.claims.release('hello', 'second');
    await deployments.claims.take('hello', 'third', '0xc', NOW + 1_000, 1_000);
  });

  it('remembers active deployments by slug until one is changed', async () => {
    const { tenant } = await deployments.create(input('hello'), NOW);
    expect(deployments.remembered('hello')).toBeUndefined();
    const first = await deployments.lookUp('hello');
    expect(first?.tenant).toBe(tenant);
    expect(deployments.remembered('hello')).toBe(first);
    const reading = deployments.lookUp('hello');
    const changed = await deployments.update(tenant, { settings: { payTo: '0xnew' } }, NOW);
    expect((await reading)?.tenant).toBe(tenant);
    expect((await deployments.lookUp('hello'))?.payTo).toBe('0xnew');
    await deployments.restore({ row: first!, secrets: [] }, changed, NOW);
    expect((await deployments.lookUp('hello'))?.payTo).toBe('0xa');
    await deployments.terms.expireDue(NOW + TERM);
    expect((await deployments.lookUp('hello'))?.state).toBe('expired');
    expect(deployments.remembered('hello')).toBeUndefined();
    await deployments.terms.renew(tenant, 'pay_1', TERM, NOW + TERM);
    expect((await deployments.lookUp('hello'))?.state).toBe('active');
    await deployments.terms.decommission(tenant, NOW, 0, 0);
    expect((await deployments.lookUp('hello'))?.state).toBe('decommissioned');
  });

  it('creates once, however often it is asked', async () => {
    const wanted = input('hello');
    const [first, second] = [await deployments.create(wanted, NOW), await deployments.create(wanted, NOW + 5)];
    expect(second).toEqual(first);
    expect(first).toMatchObject({ state: 'active', version: 1, expiresAt: NOW + TERM });
    await expect(deployments.create(input('hello', '0xb'), NOW)).rejects.toMatchObject({ code: 'slug_taken' });
  });

  it('renews from the later of now and the expiry, once per payment', async () => {
    const { tenant } = await deployments.create(input('hello'), NOW);
    const early = await deployments.terms.renew(tenant, 'p1', TERM, NOW + DAY_MS);
    expect(early.expiresAt).toBe(NOW + 2 * TERM);
    expect((await deployments.terms.renew(tenant, 'p1', TERM, NOW + DAY_MS)).expiresAt).toBe(NOW + 2 * TERM);
    const late = NOW + 3 * TERM;
    expect(await deployments.terms.expireDue(late)).toHaveLength(1);
    expect(await deployments.terms.renew(tenant, 'p2', TERM, late)).toMatchObject({
      state: 'active',
      expiresAt: late + TERM,
    });
  });

  it('expires to the millisecond and only once', async () => {
    await deployments.create(input('hello'), NOW);
    expect(await deployments.terms.nextExpiry()).toBe(NOW + TERM);
    expect(await deployments.terms.expireDue(NOW + TERM - 1)).toEqual([]);
    expect(await deployments.terms.expireDue(NOW + TERM)).toHaveLength(1);
    expect(await deployments.terms.expireDue(NOW + TERM)).toEqual([]);
  });

  it('keeps a decommissioned slug for its former owner until the cooldown is over', async () => {
    const { tenant } = await deployments.create(input('hello'), NOW);
    await deployments.terms.decommission(tenant, NOW, TERM, TERM);
    expect(await deployments.claims.availability('hello', '0xb', NOW + TERM - 1)).toBe('cooling');
    expect(await deployments.claims.availability('hello', '0xb', NOW + TERM)).toBe('free');
    expect(await deployments.claims.availability('hello', '0xa', NOW)).toBe('free');
    expect(await deployments.routable(NOW)).toMatchObject([{ slug: 'hello', state: 'decommissioned' }]);
    expect(await deployments.routable(NOW + TERM)).toEqual([]);
    await deployments.create(input('hello'), NOW + 1);
    expect(await deployments.routable(NOW + 1)).toMatchObject([{ slug: 'hello', state: 'active' }]);
  });

  it('purges when due and tells which code nobody uses any more', async () => {
    const gone = await deployments.create(input('gone', '0xa', { KEY: 'v' }), NOW);
    const stays = await deployments.create(input('stays'), NOW);
    await deployments.update(gone.tenant, { code: { digest: 'd2', bytes: 1, handlers: [], note: 'update' } }, NOW);
    await deployments.terms.decommission(gone.tenant, NOW, TERM, TERM);
    expect(await deployments.terms.duePurges(NOW + TERM - 1)).toEqual([]);
    expect(await deployments.terms.duePurges(NOW + TERM)).toHaveLength(1);
    expect(await deployments.terms.markPurged(gone.tenant, NOW + TERM)).toEqual(['d2']);
    expect(await secrets.reveal(gone.tenant)).toEqual({});
    expect(await deployments.terms.duePurges(NOW + TERM)).toEqual([]);
    expect(await deployments.versions.of(stays.tenant)).toHaveLength(1);
  });

  it('keeps versions that are not live, each at an address of its own', async () => {
    const { tenant } = await deployments.create(input('hello'), NOW);
    const code = { digest: 'd2', bytes: 1, handlers: ['fetch'], assets: null, madeBy: '0xa' };
    const added = await Promise.all([1, 2, 3].map(() => deployments.versions.add(tenant, code, NOW)));
    // Which of them is first is nobody's promise.
    added.sort((a, b) => a.version - b.version);
    expect(added.map(({ version }) => version)).toEqual([2, 3, 4]);
    expect(await deployments.byTenant(tenant)).toMatchObject({ version: 1, digest: 'd1', revision: 1 });
    const ids = (await deployments.versions.previews()).get(tenant) ?? [];
    expect(new Set(ids).size).toBe(4);
    expect(ids.every((id) => /^[0-9a-f]{12}$/.test(id))).toBe(true);
    const [second] = added;
    expect(await deployments.versions.preview(tenant, second?.preview ?? '')).toEqual(second);
    const other = await deployments.create(input('other'), NOW);
    expect(await deployments.versions.preview(other.tenant, second?.preview ?? '')).toBeUndefined();
    // What is live is kept, however many come after it.
    await deployments.versions.forget(tenant, { count: 2, bytes: 1_000 });
    expect((await deployments.versions.of(tenant)).map(({ version }) => version)).toEqual([4, 3, 1]);
    const change = { code: { digest: 'd3', bytes: 1, handlers: [], note: 'update' } };
    expect((await deployments.update(tenant, change, NOW)).version).toBe(5);
    await deployments.terms.decommission(tenant, NOW, 0, 0);
    await expect(deployments.versions.add(tenant, code, NOW)).rejects.toMatchObject({ code: 'gone' });
  });

  it('takes back a change that did not start, secrets included', async () => {
    const { tenant } = await deployments.create(input('hello', '0xa', { KEEP: 'old' }), NOW);
    const before = await deployments.snapshot(tenant);
    const failed = await deployments.update(
      tenant,
      { code: { digest: 'bad', bytes: 1, handlers: [], note: 'update' }, secrets: secrets.seal(tenant, { NEW: 'x' }) },
      NOW + 1,
    );
    await deployments.restore(before, failed, NOW + 2);
    expect(await deployments.byTenant(tenant)).toMatchObject({ digest: 'd1', version: 1, revision: 3 });
    expect(await secrets.reveal(tenant)).toEqual({ KEEP: 'old' });
    expect(await deployments.versions.of(tenant)).toHaveLength(1);
  });

  it('takes back no warning that came while a change did not start', async () => {
    const { tenant } = await deployments.create(input('hello'), NOW);
    const before = await deployments.snapshot(tenant);
    const failed = await deployments.update(tenant, { settings: { payTo: '0xnew' } }, NOW + 1);
    expect(await deployments.terms.takeExpiryWarnings(NOW + 2, NOW + TERM)).toHaveLength(1);
    await deployments.restore(before, failed, NOW + 3);
    expect(await deployments.terms.takeExpiryWarnings(NOW + 4, NOW + TERM)).toEqual([]);
  });

  it('does not call code unused that a version runs or a deploy is being paid for', async () => {
    await deployments.create(input('hello'), NOW);
    const [waited, stray] = ['a'.repeat(64), 'b'.repeat(64)];
    await registry.client.execute({
      sql: `INSERT INTO payments (id, credential_id, credential_hash, rail, kind, name, scope, asset, payer, payer_did, recipient, pay_to, custody, authorized, state, terms, prepared, created_at, updated_at)
        VALUES ('pay_1','c','h','tempo/charge','operation','deploy','operation:deploy','a','p','d','r','t','direct',1,'settling','{}',?,0,0)`,
      args: [JSON.stringify({ code: { digest: waited } })],
    });
    expect(await deployments.versions.unusedCode(['d1', waited, stray])).toEqual([stray]);
  });

  it('takes nothing back of a deployment that its owner ended meanwhile', async () => {
    const { tenant } = await deployments.create(input('hello'), NOW);
    const before = await deployments.snapshot(tenant);
    const failed = await deployments.update(tenant, { settings: { payTo: '0xb' } }, NOW);
    await deployments.terms.decommission(tenant, NOW, TERM, TERM);
    await deployments.restore(before, failed, NOW);
    expect(await deployments.byTenant(tenant)).toMatchObject({ purgeAt: NOW + TERM, freeAt: NOW + TERM });
    expect(await deployments.claims.availability('hello', '0xstranger', NOW)).toBe('cooling');
    expect(await deployments.routable(NOW)).toHaveLength(1);
    expect(await deployments.terms.duePurges(NOW + TERM)).toHaveLength(1);
  });

  it('warns anew of a term that was paid for while a change was tried', async () => {
    const { tenant } = await deployments.create(input('hello'), NOW);
    await deployments.terms.takeExpiryWarnings(NOW, NOW + TERM);
    const before = await deployments.snapshot(tenant);
    const failed = await deployments.update(tenant, { settings: { payTo: '0xb' } }, NOW);
    await deployments.terms.renew(tenant, 'p', TERM, NOW);
    await deployments.restore(before, failed, NOW);
    expect(await deployments.terms.takeExpiryWarnings(NOW, NOW + 2 * TERM)).toHaveLength(1);
  });

  it('changes single secrets and keeps the others', async () => {
    const { tenant } = await deployments.create(input('hello', '0xa', { A: '1', B: '2' }), NOW);
    await deployments.update(
      tenant,
      { secretChanges: { set: secrets.seal(tenant, { A: 'new' }), remove: ['B'] } },
      NOW,
    );
    expect(await secrets.reveal(tenant)).toEqual({ A: 'new' });
  });

  it('warns once per term', async () => {
    const { tenant } = await deployments.create(input('hello'), NOW);
    expect(await deployments.terms.takeExpiryWarnings(NOW, NOW + TERM)).toHaveLength(1);
    expect(await deployments.terms.takeExpiryWarnings(NOW, NOW + TERM)).toEqual([]);
    await deployments.terms.renew(tenant, 'p', TERM, NOW);
    expect(await deployments.terms.takeExpiryWarnings(NOW, NOW + 2 * TERM)).toHaveLength(1);
  });

  it('survives many writers at once', async () => {
    const made = await Promise.all(Array.from({ length: 40 }, (_, i) => deployments.create(input(`slug-${i}`), NOW)));
    await Promise.all(made.map(({ tenant }) => deployments.terms.renew(tenant, `pay-${tenant}`, TERM, NOW)));
    expect((await deployments.all()).every((row) => row.expiresAt === NOW + 2 * TERM)).toBe(true);
  });
});
