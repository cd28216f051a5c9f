/** What the Cache API decides without touching a disk. */
import { describe, expect, test } from 'vitest';
import { keptHead, parseAnswerHead } from '../../../host/bindings/cache-api/freshness.ts';
import { keyOf } from '../../../host/bindings/cache-api/protocol.ts';
import { replyTo } from '../../../host/bindings/cache-api/reply.ts';
import { expectTime } from '../../times.ts';

const NOW = Date.parse('2026-11-26T00:00:00Z');

/** Seconds from now until an answer ends; undefined: it is not kept. */
function seconds(fields: Record<string, string>, status = 200, authorized = false): number | undefined {
  const kept = keptHead({ status, fields: Object.entries(fields).flat() }, authorized, NOW);
  return kept && (kept.until - NOW) / 1_000;
}
const control = (value: string) => ({ 'Cache-Control': value });

describe('how long an answer is kept', () => {
  test.each<[Record<string, string>, number | undefined]>([
    [control('max-age=60'), 60],
    [control('Max-Age = "60" , public'), 60],
    [control('max-age=60, max-age=10'), 60],
    [control('max-age=60, s-maxage=10'), 10],
    [control('max-age=-1'), 0],
    [control('max-age='), 0],
    [control(`max-age=${'9'.repeat(400)}`), 2 ** 31],
    [{ ...control('max-age=60'), Age: '20' }, 40],
    [{ ...control('max-age=60'), Age: 'x' }, 60],
    [{ Expires: 'Thu, 26 Nov 2026 00:01:00 GMT' }, 60],
    [{ Expires: 'Thu, 26 Nov 2026 00:01:00 GMT', Date: 'Thu, 26 Nov 2026 00:00:30 GMT' }, 30],
    [control('x-no-store=1, max-age=60'), 60],
    [control('ext="no-store, private", max-age=60'), 60],
    [control('private="x-a, x-b", max-age=60'), 60],
    [control('private, max-age=60'), undefined],
    [control('private="", max-age=60'), undefined],
    [{ ...control('no-cache="set-cookie", max-age=60'), 'Set-Cookie': 'a=b' }, 60],
    [{ ...control('private=x-a, max-age=60'), 'Set-Cookie': 'a=b' }, undefined],
    [{ ...control('max-age=60'), Vary: 'a, *' }, undefined],
    [{}, 7_200],
    [control('public'), 7_200],
  ])('%j: %s s', (fields, expected) => {
    expect(seconds(fields)).toBe(expected);
  });

  test.each<[number, number | undefined]>([
    [301, 7_200],
    [303, 1_200],
    [410, 180],
    [204, undefined],
    [206, undefined],
    [304, undefined],
    [500, undefined],
  ])('one of status %i that says nothing: %s s', (status, expected) => {
    expect(seconds({}, status)).toBe(expected);
  });

  test('the answer to a request with credentials only where it says so', () => {
    expect(seconds(control('max-age=60'), 200, true)).toBeUndefined();
    expect(seconds(control('max-age=60, must-revalidate'), 200, true)).toBe(60);
  });

  test('hostile text takes no time', () => {
    const before = performance.now();
    for (const text of ['a="', 'a =', '"', ' ', 'private="', 'a,']) {
      const value = text.repeat(32_000 / text.length);
      keptHead({ status: 200, fields: ['cache-control', value, 'vary', value, 'expires', value] }, false, NOW);
      parseAnswerHead(`HTTP/1.1 200 OK\r\na: ${value}`);
      replyTo({ status: 200, fields: ['etag', '"e"'], size: 1 }, { ifNoneMatch: value, range: value, ifRange: value });
    }
    expectTime('hostile fields of the cache', performance.now() - before, 2_000);
  });
});

test.each<[string, string, boolean]>([
  ['http://a/', 'http://A:80', true],
  ['http://a/b#c', 'http://a/b', true],
  ['http://a/b?c', 'http://a/b', false],
  ['http://a/%62', 'http://a/b', false],
  ['https://a/', 'http://a/', false],
])('%s and %s are one key: %s', (one, other, same) => {
  expect(keyOf(undefined, one).equals(keyOf(undefined, other))).toBe(same);
});

test('a name of a cache is a part of the key, and cannot be put into a URL', () => {
  const keys = [
    keyOf(undefined, 'http://a/'),
    keyOf('', 'http://a/'),
    keyOf('a', 'http://a/'),
    keyOf('b', 'http://a/'),
  ];
  expect(new Set(keys.map((key) => key.toString('hex'))).size).toBe(4);
});
