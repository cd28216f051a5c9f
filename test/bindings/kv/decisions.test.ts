/** What KV decides without touching a disk, and the memory cache. */
import { describe, expect, test } from 'vitest';
import {
  checkedExpiration,
  checkedKey,
  checkedListOptions,
  checkedMetadata,
  encodeCursor,
  keyOfPath,
} from '../../../host/bindings/kv/validate.ts';
import { ByteCache } from '../../../host/bindings/store-process/cache.ts';

describe('keys', () => {
  test.each([
    ['/a%20b', true, 'a b'],
    ['/a+b', true, 'a+b'],
    ['/a%2Fb', true, 'a/b'],
    ['/a/b', true, 'a/b'],
    ['/%25', true, '%'],
    ['/%E2%98%83', true, '☃'],
    ['/a%20b', false, 'a%20b'],
  ])('%s, urlencoded %s, is %s', (path, urlencoded, key) => {
    expect(keyOfPath(path, urlencoded)).toBe(key);
  });

  test.each(['', '.', '..', 'x'.repeat(513), 'ü'.repeat(257)])('%s is refused', (key) => {
    expect(() => checkedKey(key)).toThrow();
  });
});

describe('expiration', () => {
  const NOW = 1000;
  test.each([
    [null, null, null],
    ['1060', null, 1060],
    [null, '60', 1060],
    ['5000', '60', 1060],
    ['1060.9', null, 1060],
  ])('time %s, ttl %s: %s', (at, ttl, expected) => {
    expect(checkedExpiration(at, ttl, NOW)).toBe(expected);
  });

  test.each([
    ['1059', null, /at least 60 seconds in the future/],
    ['1000', null, /greater than the current number/],
    ['x', null, /greater than the current number/],
    [null, '59', /must be at least 60/],
    [null, '0', /integer greater than 0/],
    [null, 'x', /integer greater than 0/],
  ])('time %s, ttl %s is refused', (at, ttl, message) => {
    expect(() => checkedExpiration(at, ttl, NOW)).toThrow(message);
  });
});

test('metadata is UTF-8 in a header of one character per byte', () => {
  const header = Buffer.from('"ü☃"').toString('latin1');
  expect(checkedMetadata(header)?.toString()).toBe('"ü☃"');
  expect(checkedMetadata(undefined)).toBeNull();
  expect(() => checkedMetadata('{')).toThrow('Metadata must be valid JSON.');
  expect(() => checkedMetadata(`"${'x'.repeat(1023)}"`)).toThrow('Metadata length of 1025 exceeds limit of 1024.');
});

test('a cursor leads back to its key, and nothing else is one', () => {
  const key = Buffer.from('schlüssel');
  const options = checkedListOptions(new URLSearchParams({ cursor: encodeCursor(key), prefix: 'a b' }));
  expect([options.after, options.prefix.toString(), options.limit]).toEqual([key, 'a b', 1000]);
  for (const cursor of ['%%%', 'a b', 'YQ==', 'x'.repeat(2000)])
    expect(() => checkedListOptions(new URLSearchParams({ cursor }))).toThrow(/Invalid cursor/);
});

describe('the cache', () => {
  test('forgets what was used longest ago when its bytes pass the budget', () => {
    const cache = new ByteCache<string>(1500);
    cache.set('a', 'A', 400);
    cache.set('b', 'B', 400);
    expect(cache.get('a')).toBe('A');
    cache.set('c', 'C', 400);
    expect([cache.get('a'), cache.get('b'), cache.get('c')]).toEqual(['A', undefined, 'C']);
    expect(cache.bytes).toBeLessThanOrEqual(1500);
  });

  test('weighs what it replaces and deletes, and takes nothing that is too large', () => {
    const cache = new ByteCache<string>(1000);
    for (let i = 0; i < 100; i++) cache.set('a', `${i}`, 500);
    expect(cache.get('a')).toBe('99');
    cache.set('b', 'x', 5000);
    expect([cache.get('b'), cache.get('a')]).toEqual([undefined, '99']);
    cache.delete('a');
    expect(cache.bytes).toBe(0);
  });
});
