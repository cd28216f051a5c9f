/** Limits of one tenant in place of the host's settings. */
import { describe, expect, it } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { configSchema } from '../../host/shared/config.ts';
import {
  changedLimits,
  LIMIT_NAMES,
  limitsInForce,
  limitsOf,
  limitsSchema,
  tenantConfig,
} from '../../host/shared/tenant-limits.ts';

const config = configSchema.parse(defaults);

it('each is a setting, which has a value and a description', () => {
  const inForce = limitsInForce(config, {});
  for (const name of LIMIT_NAMES) {
    expect(inForce[name]).toEqual({ value: expect.any(Number), source: 'setting' });
    expect(limitsSchema.shape[name].description).toMatch(/\w+.*; null: the host’s setting$/);
  }
});

describe('what an operator may set', () => {
  it.each([
    [{ 'storage.kvBytes': 5 }, true],
    [{ 'storage.kvBytes': null }, true],
    [{ 'storage.kvBytes': 0 }, false],
    [{ 'storage.kvBytes': -1 }, false],
    [{ 'storage.kvBytes': 1.5 }, false],
    [{ 'storage.kvBytes': '5' }, false],
    [{ 'runtime.cpuStallMs': 2 ** 31 }, false],
    [{ 'runtime.idleMs': 5 }, false],
    [{ kvBytes: 5 }, false],
  ])('%j: %s', (change, isAllowed) => {
    expect(limitsSchema.safeParse(change).success).toBe(isAllowed);
  });
});

it('changes set some, take back others and leave the rest', () => {
  const present = { 'storage.kvBytes': 1, 'runtime.heapMb': 2 };
  expect(changedLimits(present, { 'storage.kvBytes': null, 'runtime.subrequests': 3 } as never)).toEqual({
    'runtime.heapMb': 2,
    'runtime.subrequests': 3,
  });
  expect(changedLimits({}, { 'storage.kvBytes': null } as never)).toEqual({});
});

it('stand in the place of the settings, for that tenant alone', () => {
  const limits = { 'storage.kvBytes': 1, 'runtime.heapMb': 2 };
  const own = tenantConfig(config, limits);
  expect([own.storage.kvBytes, own.runtime.heapMb]).toEqual([1, 2]);
  expect(own.storage.sqlBytes).toBe(config.storage.sqlBytes);
  expect(config.storage.kvBytes).not.toBe(1);
  expect(tenantConfig(config, {})).toBe(config);
  expect([limitsOf('runtime', limits), limitsOf('storage', limits)]).toEqual([{ heapMb: 2 }, { kvBytes: 1 }]);
  expect(limitsInForce(config, limits)['runtime.heapMb']).toEqual({ value: 2, source: 'operator' });
});
