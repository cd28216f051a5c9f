import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { createApp } from '../../host/control/app.ts';
import { KeyRing } from '../../host/control/deploy-keys.ts';
import { endpointTable } from '../../host/control/routes.ts';
import { DeployKeys, MOST_KEYS } from '../../host/registry/deploy-keys.ts';
import type { Registry } from '../../host/registry/index.ts';
import type { Deployment } from '../../host/registry/schema/deployments.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { configSchema } from '../../host/shared/config.ts';
import { deployKeyId, KEY_ACTION_NAMES } from '../../host/shared/deploy-keys.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const NOW = Date.parse('2026-11-01T00:00:00Z');
const HOUR = 3_600_000;

describe('the endpoint table', () => {
  const touched: string[] = [];
  const parts = {
    config: configSchema.parse(defaults),
    publicUrl: 'http://h',
    payments: {
      registerCompletion: () => undefined,
      paidOperation: async () => touched.push('paid'),
      proveOwner: async () => touched.push('proof'),
    },
    deployments: { bySlug: async () => touched.push('deployment') },
  };
  const endpoints = endpointTable(parts as never, undefined as never, undefined as never, undefined as never);
  const open = endpoints.filter(({ keyActions }) => keyActions);

  it('opens to keys these endpoints, and no others', () => {
    const table = open.map(({ method, path: of, keyActions }) => `${method} ${of}: ${keyActions?.join(', ')}`);
    expect(table).toEqual([
      'PUT /_admin/code/:slug: update, secrets',
      'GET /_admin/:slug/logs: logs',
      'GET /_admin/:slug/usage: usage',
      'GET /_admin/:slug/versions: rollback, update',
      'POST /_admin/:slug/rollback: rollback',
      'GET /_admin/:slug/crons: logs',
      'POST /_admin/:slug/assets: update',
      'PUT /_admin/:slug/assets/:sha256: update',
      'POST /_admin/:slug/data/:binding: data',
      'GET /_admin/:slug/data/:binding: data',
      'GET /_admin/:slug/data/:binding/value: data',
      'PUT /_admin/:slug/data/:binding/value: data',
      'DELETE /_admin/:slug/data/:binding/value: data',
    ]);
    expect(open.every(({ access }) => access === 'owner')).toBe(true);
    expect(new Set(open.flatMap(({ keyActions = [] }) => keyActions))).toEqual(new Set(KEY_ACTION_NAMES));
  });

  const closed = endpoints.filter(({ access, keyActions }) => access !== 'public' && !keyActions);

  it.each(closed.map(({ method, path: of }) => [method, of]))(
    '%s %s refuses a key before all else',
    async (method, of) => {
      const app = createApp({
        problemPages: { home: 'http://h', network: { name: 'local' } },
        endpoints,
        pages: async () => [],
        health: () => ({ ready: true, body: {} }),
        payments: { headers: { credentials: [], exposed: '' } },
        observe: () => undefined,
      } as never);
      const url = `http://h${of.replace(/:\w+/g, 'abc')}`;
      const headers = { authorization: `bearer tpk_0123456789ab_${'x'.repeat(43)}` };
      const answer = await app.fetch(new Request(url, { method, headers }));
      expect(touched).toEqual([]);
      expect(answer.status).toBe(403);
      expect(await answer.json()).toMatchObject({ code: 'forbidden' });
    },
  );

  it('there are such', () => {
    expect(closed.map(({ method, path: of }) => `${method} ${of}`)).toEqual(
      expect.arrayContaining([
        'POST /_admin/deploy',
        'POST /_admin/renew/:slug',
        'DELETE /_admin/:slug',
        'POST /_admin/session/:slug',
        'POST /_admin/keys',
        'DELETE /_admin/keys/:id',
        'POST /_admin/:slug/domains',
      ]),
    );
  });
});

describe('a key ring', () => {
  let folder: string;
  let registry: Registry;
  let clock: ManualClock;
  let ring: KeyRing;
  const shop = { slug: 'shop', tenant: 't1', owner: '0xa' } as Deployment;

  beforeEach(async () => {
    folder = mkdtempSync(path.join(tmpdir(), 'tp-keys-'));
    registry = await openTestRegistry(path.join(folder, 'registry.db'));
    clock = new ManualClock(NOW);
    ring = new KeyRing(new DeployKeys(registry.db), clock);
  });
  afterEach(() => {
    registry.close();
    rmSync(folder, { recursive: true });
  });

  const make = (asked: object = {}) =>
    ring.make({
      owner: '0xa',
      name: 'ci',
      slugs: [{ slug: 'shop', tenant: 't1' }],
      actions: ['update', 'logs'],
      expiresAt: NOW + HOUR,
      ...asked,
    });

  it('takes a key for its deployment, its actions and its time', async () => {
    const { key, row } = await make();
    expect(deployKeyId(key)).toBe(row.id);
    expect(await ring.present(key, '10.0.0.1', ['update', 'secrets'], shop)).toMatchObject({ id: row.id, name: 'ci' });
    const refused = (of: Partial<Deployment>, ...actions: 'rollback'[]) =>
      ring.present(key, '10.0.0.1', actions.length > 0 ? actions : ['update'], { ...shop, ...of });
    await expect(refused({}, 'rollback')).rejects.toMatchObject({ code: 'forbidden' });
    // An endpoint that names no action.
    await expect(ring.present(key, '10.0.0.1', [], shop)).rejects.toMatchObject({ code: 'forbidden' });
    // Another slug; another owner; the same slug, deployed anew.
    await expect(refused({ slug: 'other', tenant: 't2' })).rejects.toMatchObject({ code: 'forbidden' });
    await expect(refused({ owner: '0xb' })).rejects.toMatchObject({ code: 'forbidden' });
    await expect(refused({ tenant: 't3' })).rejects.toMatchObject({ code: 'forbidden' });
    clock.advance(HOUR);
    await expect(refused({})).rejects.toMatchObject({ code: 'unauthorized' });
  });

  it('takes a key for all slugs for those of its owner alone', async () => {
    const { key } = await make({ slugs: null });
    await ring.present(key, '10.0.0.1', ['update'], { ...shop, slug: 'later', tenant: 't9' });
    await expect(ring.present(key, '10.0.0.1', ['update'], { ...shop, owner: '0xb' })).rejects.toMatchObject({
      code: 'forbidden',
    });
  });

  it('keeps no key, and no revoked one works', async () => {
    const { key, row } = await make();
    const kept = await registry.client.execute('SELECT * FROM deploy_keys');
    expect(JSON.stringify(kept.rows)).not.toContain(key.slice(-43));
    const ended: string[] = [];
    const stop = ring.whileValid(row.id, () => ended.push('first'));
    ring.whileValid(row.id, () => ended.push('second'));
    stop();
    expect(await ring.revoke(row.id, '0xb')).toBe(false);
    expect(ended).toEqual([]);
    expect(await ring.revoke(row.id, '0xa')).toBe(true);
    expect(ended).toEqual(['second']);
    await expect(ring.present(key, '10.0.0.1', ['update'], shop)).rejects.toMatchObject({ code: 'unauthorized' });
    expect(await ring.isValid(row.id)).toBe(false);
  });

  it('looks at no more keys of a network that sends wrong ones, for a while', async () => {
    const { key } = await make();
    const wrong = `${key.slice(0, -43)}${'A'.repeat(43)}`;
    const codes: string[] = [];
    for (let attempt = 0; attempt < 25; attempt++)
      await ring
        .present(attempt % 2 ? wrong : 'tpk_nonsense', `2001:db8::${attempt + 1}`, ['update'], shop)
        .catch(({ code }) => codes.push(code));
    expect(codes.filter((code) => code === 'unauthorized')).toHaveLength(20);
    expect(codes.slice(20)).toEqual(Array(5).fill('rate_limited'));
    await expect(ring.present(key, '2001:db8::ff', ['update'], shop)).rejects.toMatchObject({
      code: 'rate_limited',
      headers: { 'retry-after': expect.stringMatching(/^\d+$/) },
    });
    await ring.present(key, '2001:db8:0:1::1', ['update'], shop);
  });

  it('has so many of an owner, those that have ended not counted', async () => {
    for (let made = 0; made < MOST_KEYS - 1; made++) await make();
    const two = await Promise.allSettled([make(), make()]);
    expect(two.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    await make({ owner: '0xb' });
    clock.advance(HOUR);
    await make({ expiresAt: NOW + 2 * HOUR });
    expect(await ring.ofOwner('0xa')).toHaveLength(1);
  });
});
