/** What the registry keeps of the operator's decisions: suspensions, days, blocks, and the audit log. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Audit } from '../../host/registry/audit.ts';
import { Blocks } from '../../host/registry/blocks.ts';
import { DAY_MS, Deployments } from '../../host/registry/deployments.ts';
import type { Registry } from '../../host/registry/index.ts';
import { newDeployment } from './support/new-deployment.ts';
import { isPostgres, openTestRegistry } from './support/open.ts';

let folder: string;
let file: string;
let registry: Registry;
let deployments: Deployments;
const NOW = Date.parse('2026-11-01T00:00:00Z');

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-operator-'));
  file = path.join(folder, 'registry.db');
  registry = await openTestRegistry(file);
  deployments = new Deployments(registry.db);
  await deployments.create(newDeployment({ tenant: 't1', slug: 'abc' }), NOW);
});
afterEach(() => {
  registry.close();
  rmSync(folder, { recursive: true });
});

describe('a suspension', () => {
  it('keeps its first day, takes the last reason, and ends as if it had not been', async () => {
    const before = await deployments.bySlug('abc');
    await deployments.decisions.suspend('t1', 'one', NOW + 1);
    expect(await deployments.decisions.suspend('t1', 'two', NOW + 2)).toMatchObject({
      state: 'active',
      suspendedAt: NOW + 1,
      suspendedReason: 'two',
    });
    expect(await deployments.decisions.resume('t1')).toEqual(before);
    expect(await deployments.decisions.resume('t1')).toEqual(before);
  });

  it('is remembered by nobody as a deployment that serves', async () => {
    await deployments.lookUp('abc');
    expect(deployments.remembered('abc')).toBeDefined();
    await deployments.decisions.suspend('t1', 'why', NOW);
    expect(deployments.remembered('abc')).toBeUndefined();
    await deployments.lookUp('abc');
    expect(deployments.remembered('abc')).toBeUndefined();
  });

  it('stays through expiry, renewal and a change that is taken back', async () => {
    const snapshot = await deployments.snapshot('t1');
    const failed = await deployments.update('t1', { settings: { crons: ['* * * * *'] } }, NOW);
    await deployments.decisions.suspend('t1', 'why', NOW);
    expect(await deployments.scheduled()).toEqual([]);
    await deployments.restore(snapshot, failed, NOW);
    await deployments.terms.expireDue(NOW + 1_000 * DAY_MS);
    await deployments.terms.renew('t1', 'pay_1', DAY_MS, NOW);
    expect(await deployments.bySlug('abc')).toMatchObject({ state: 'active', suspendedReason: 'why', crons: [] });
  });

  it('is not of what was decommissioned, which a note may still be about', async () => {
    await deployments.terms.decommission('t1', NOW, 0, 0);
    for (const decide of [
      () => deployments.decisions.suspend('t1', 'why', NOW),
      () => deployments.decisions.resume('t1'),
      () => deployments.decisions.limit('t1', () => ({})),
      () => deployments.terms.extend('t1', DAY_MS, NOW),
    ])
      await expect(decide()).rejects.toMatchObject({ code: 'gone' });
    expect(await deployments.decisions.note('t1', 'gone for good')).toMatchObject({ note: 'gone for good' });
  });
});

it('days are given from the later of now and the expiry', async () => {
  const { expiresAt } = (await deployments.bySlug('abc')) ?? { expiresAt: 0 };
  expect(await deployments.terms.extend('t1', DAY_MS, NOW)).toMatchObject({ expiresAt: expiresAt + DAY_MS });
  const late = expiresAt + 100 * DAY_MS;
  await deployments.terms.expireDue(late);
  expect(await deployments.terms.extend('t1', DAY_MS, late)).toMatchObject({
    state: 'active',
    expiresAt: late + DAY_MS,
  });
  await deployments.create(newDeployment({ tenant: 't2', slug: 'pay', builtin: true }), NOW);
  await expect(deployments.terms.extend('t2', DAY_MS, NOW)).rejects.toMatchObject({ code: 'conflict' });
});

it('blocks are in force at once, and again after a restart', async () => {
  const blocks = await Blocks.open(registry);
  const wallet = `0x${'a'.repeat(40)}`;
  expect([blocks.hasWallet(wallet), blocks.ranges()]).toEqual([false, []]);
  await blocks.add({ subject: wallet, kind: 'wallet', reason: 'one' }, NOW);
  await blocks.add({ subject: wallet, kind: 'wallet', reason: 'two' }, NOW + 1);
  await blocks.add({ subject: '10.0.0.0/8', kind: 'range', reason: null }, NOW + 2);
  const again = await Blocks.open(registry);
  for (const one of [blocks, again]) expect([one.hasWallet(wallet), one.ranges()]).toEqual([true, ['10.0.0.0/8']]);
  expect((await blocks.list()).map(({ reason, createdAt }) => [reason, createdAt])).toEqual([
    ['two', NOW],
    [null, NOW + 2],
  ]);
  const raced = await Promise.all([
    blocks.remove(wallet),
    blocks.add({ subject: wallet, kind: 'wallet', reason: null }, NOW),
    blocks.remove(wallet),
    blocks.remove(wallet),
  ]);
  expect([raced[0], raced[2], raced[3], blocks.hasWallet(wallet)]).toEqual([true, true, false, false]);
});

describe('the audit log', () => {
  const clock = { now: () => NOW };
  const act = (subject: string, more: object = {}) => ({
    act: 'POST /x',
    subject,
    parameters: {},
    reason: null,
    address: 'operator.sock',
    ...more,
  });

  it('has an act before it is done, and its outcome once', async () => {
    const audit = new Audit(registry.db, clock);
    const id = await audit.begin(act('abc', { parameters: { days: 3 }, reason: 'why' }));
    const [begun] = await audit.list({ limit: 5 });
    expect(begun).toMatchObject({ id, at: NOW, subject: 'abc', parameters: { days: 3 }, reason: 'why', outcome: null });
    await audit.end(id, 200);
    expect(await audit.list({ limit: 5 })).toMatchObject([{ id, outcome: 200 }]);
    await expect(audit.end(id, 500)).rejects.toThrow();
  });

  it.each([
    "UPDATE audit SET reason = 'another'",
    'UPDATE audit SET at = 0',
    "UPDATE audit SET subject = 'other', outcome = 200",
    'DELETE FROM audit',
    'DELETE FROM audit WHERE id = 1',
  ])('takes no other change: %s', async (statement) => {
    const audit = new Audit(registry.db, clock);
    await audit.begin(act('abc'));
    await audit.begin(act('abc'));
    const before = await audit.list({ limit: 5 });
    await expect(registry.client.execute(statement)).rejects.toThrow(/audit log/);
    expect(await audit.list({ limit: 5 })).toEqual(before);
  });

  it('keeps the newest 100,000, and parameters of a size', async () => {
    const audit = new Audit(registry.db, clock);
    await registry.client.execute(
      `INSERT INTO audit (id, at, system_at, act, parameters, address) VALUES (1, 0, 0, 'first', '{}', ''), (2, 0, 0, 'second', '{}', ''), (100000, 0, 0, 'late', '{}', '')`,
    );
    // There an id that was given is not what the next one follows.
    if (isPostgres) await registry.client.execute('ALTER SEQUENCE audit_id_seq RESTART 100001');
    const id = await audit.begin(act('abc', { parameters: { reference: 'x'.repeat(60_000) } }));
    expect(id).toBe(100_001);
    const kept = await audit.list({ limit: 9 });
    expect(kept.map((entry) => entry.id)).toEqual([100_001, 100_000, 2]);
    expect(JSON.stringify(kept[0]?.parameters).length).toBeLessThan(2_100);
  });

  it('is read by subject and by page', async () => {
    const audit = new Audit(registry.db, clock);
    for (const subject of ['a', 'b', 'a', 'b', 'a']) await audit.begin(act(subject));
    expect((await audit.list({ subject: 'a', limit: 2 })).map(({ id }) => id)).toEqual([5, 3]);
    expect((await audit.list({ subject: 'a', before: 3, limit: 2 })).map(({ id }) => id)).toEqual([1]);
    expect(await audit.list({ subject: 'c', limit: 2 })).toEqual([]);
  });
});
