import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { Lifecycle, type LifecycleDeps } from '../../host/control/lifecycle.ts';
import { DAY_MS, Deployments } from '../../host/registry/deployments.ts';
import type { Registry } from '../../host/registry/index.ts';
import { advance, TrustedClock } from '../../host/registry/trusted-clock.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { newDeployment } from '../registry/support/new-deployment.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const NOW = Date.parse('2026-11-01T00:00:00Z');
const TERM = 30 * DAY_MS;
const GRACE_DAYS = 30;

let folder: string;
let registry: Registry;
let deployments: Deployments;
let clock: ManualClock;
let pushed: string[];
let stopped: string[];

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-lifecycle-'));
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
  deployments = new Deployments(registry.db);
  clock = new ManualClock(NOW);
  pushed = [];
  stopped = [];
});
afterEach(() => {
  registry.close();
  rmSync(folder, { recursive: true });
});

const lifecycle = (parts: Partial<LifecycleDeps> = {}) =>
  new Lifecycle({
    config: { reserved: [], termDays: 30, graceDays: GRACE_DAYS, cooldownDays: 30 },
    clock,
    log: pino({ level: 'silent' }),
    deployments,
    trustedClock: new TrustedClock(registry.db, parts.clock ?? clock),
    routes: { push: async (slug: string) => void pushed.push(slug) } as unknown as LifecycleDeps['routes'],
    runtime: { stop: async (slug: string) => void stopped.push(slug) },
    logs: { append: async () => undefined } as unknown as LifecycleDeps['logs'],
    tenantsFolder: folder,
    purgeStorage: async () => undefined,
    removeCode: async () => undefined,
    post: async () => undefined,
    ...parts,
  });

async function deploy(slug: string, termMs = TERM): Promise<string> {
  const deployment = newDeployment({ slug, code: { digest: slug, bytes: 1, handlers: ['fetch'] }, termMs });
  await deployments.create(deployment, NOW);
  return deployment.tenant;
}

it('expires all that is due, whatever requests of one of them still go on', async () => {
  for (const slug of ['one', 'two', 'three']) await deploy(slug);
  clock.advance(TERM);
  const busy = lifecycle({ runtime: { stop: () => new Promise(() => undefined) } });
  const ended = await Promise.race([busy.tick().then(() => 'in time'), new Promise((done) => setTimeout(done, 1_000))]);
  expect(pushed.toSorted()).toEqual(['one', 'three', 'two']);
  expect(ended).toBe('in time');
});

it('keeps what is renewed while others, whose grace period is over too, are ended', async () => {
  await deploy('first');
  const renewed = await deploy('second', TERM + 1);
  clock.advance(TERM + GRACE_DAYS * DAY_MS + 1);
  await deployments.terms.expireDue(clock.now());
  const push = async (slug: string) => {
    // The owner's payment settles now.
    if (slug === 'first') await deployments.terms.renew(renewed, 'pay_1', TERM, clock.now());
  };
  await lifecycle({ routes: { push } as unknown as LifecycleDeps['routes'] }).tick();
  expect(await deployments.bySlug('first')).toMatchObject({ state: 'decommissioned' });
  expect(await deployments.byTenant(renewed)).toMatchObject({ state: 'active', purgeAt: null });
});

it('a purge keeps code that somebody pays to deploy just now', async () => {
  const digest = 'd'.repeat(64);
  const tenant = await deploy(digest);
  await registry.client.execute({
    sql: `INSERT INTO payments (id, credential_id, credential_hash, rail, kind, name, scope, asset, payer, payer_did, recipient, pay_to, custody, authorized, state, terms, prepared, created_at, updated_at)
      VALUES ('pay_1','c','h','tempo/charge','operation','deploy','operation:deploy','a','p','d','r','t','direct',1,'settling','{}',?,0,0)`,
    args: [JSON.stringify({ code: { digest } })],
  });
  await deployments.terms.decommission(tenant, NOW, 0, 0);
  const removed: string[] = [];
  await lifecycle({ removeCode: async (digests) => void removed.push(...digests) }).tick();
  expect(await deployments.byTenant(tenant)).toMatchObject({ purgedAt: NOW });
  expect(removed).toEqual([]);
});

it('a clock that leaps ahead removes nothing, also after a restart, and what it made expire comes back', async () => {
  const tenant = await deploy('kept');
  const deleted = await deploy('deleted');
  await deployments.terms.decommission(deleted, NOW, GRACE_DAYS * DAY_MS, 0);
  let leap = 0;
  const system = { now: () => NOW + leap, offsetMs: 0, onStep: () => () => undefined };
  const removed: string[] = [];
  const host = () => lifecycle({ clock: system, purgeStorage: async (one) => void removed.push(one) });
  await host().tick();
  leap = 3 * 365 * DAY_MS;
  const ahead = host();
  await ahead.tick();
  await ahead.tick();
  await host().tick();
  expect(await deployments.byTenant(tenant)).toMatchObject({ state: 'expired' });
  leap = 60_000;
  await host().tick();
  expect(await deployments.byTenant(tenant)).toMatchObject({ state: 'active', expiresAt: NOW + TERM });
  expect(await deployments.byTenant(deleted)).toMatchObject({ purgedAt: null });
  expect(removed).toEqual([]);
  expect(pushed).toEqual(['kept', 'kept']);
});

it('a century by the operator’s hand, and back, ends nothing, warns of nothing and frees no slug', async () => {
  const tenant = await deploy('kept');
  const deleted = await deploy('deleted');
  await deployments.terms.decommission(deleted, NOW, GRACE_DAYS * DAY_MS, 30 * DAY_MS);
  const removed: string[] = [];
  const host = lifecycle({ purgeStorage: async (one) => void removed.push(one) });
  await host.tick();
  const other = `0x${'9'.repeat(40)}`;
  clock.advance(100 * 365 * DAY_MS);
  await host.tick();
  expect(await deployments.claims.availability('deleted', other, clock.now())).toBe('cooling');
  clock.advance(-100 * 365 * DAY_MS);
  await host.tick();
  expect(await deployments.byTenant(tenant)).toMatchObject({ state: 'active', warnedAt: null });
  expect(removed).toEqual([]);
  // A month by the same hand is followed.
  clock.advance(31 * DAY_MS);
  await host.tick();
  expect(removed).toEqual([deleted]);
  expect(await deployments.claims.availability('deleted', other, clock.now())).toBe('free');
});

it('while it runs on its own, the trusted clock tells whole milliseconds', async () => {
  let leap = 0;
  const system = { now: () => NOW + leap, offsetMs: 0, onStep: () => () => undefined };
  const trusted = new TrustedClock(registry.db, system);
  await trusted.now();
  leap = 2 * DAY_MS;
  for (const told of [await trusted.now(), await trusted.highest(), trusted.latest()]) expect(told % 1).toBe(0);
  // The registry takes no other.
  const tenant = await deploy('warned');
  expect(await deployments.terms.takeExpiryWarnings(trusted.latest(), NOW + TERM)).toMatchObject([{ tenant }]);
});

it('a jump of the clock is trusted after half a day, a small one at once', () => {
  const HOUR = 3_600_000;
  const start = { at: NOW, doubtedMs: 0 };
  expect(advance(start, NOW + HOUR, 1_000)).toMatchObject({ at: NOW + HOUR, doubtedMs: 0 });
  const doubted = advance(start, NOW + 70 * DAY_MS, HOUR);
  expect(doubted).toMatchObject({ at: NOW + HOUR, doubtedMs: HOUR });
  expect(advance(doubted, NOW + 70 * DAY_MS, 10 * HOUR)).toMatchObject({ at: NOW + 11 * HOUR, doubtedMs: 11 * HOUR });
  expect(advance(doubted, NOW + 70 * DAY_MS, 11 * HOUR)).toMatchObject({ at: NOW + 70 * DAY_MS, doubtedMs: 0 });
  // What was over stays over.
  expect(advance(doubted, NOW, HOUR)).toEqual({ at: NOW, doubtedMs: 0, highest: NOW + HOUR });
});
