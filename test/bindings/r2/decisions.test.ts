/** What R2 decides without touching a disk: conditions, ranges, pages, parts. */
import { describe, expect, test } from 'vitest';
import { holds } from '../../../host/bindings/r2/conditions.ts';
import { list } from '../../../host/bindings/r2/listing.ts';
import { completedEtag, selectParts } from '../../../host/bindings/r2/multipart.ts';
import type { ObjectRow } from '../../../host/bindings/r2/objects.ts';
import { resolveRange } from '../../../host/bindings/r2/ranges.ts';
import { type Conditional, parseReadRequest, parseWriteRequest } from '../../../host/bindings/r2/requests.ts';
import { cut } from '../../../host/bindings/r2/store.ts';
import { behindKey, behindPrefix, prefixRange } from '../../../host/bindings/store-process/key-range.ts';
import { Finished, finish } from '../../../host/bindings/store-process/work.ts';

describe('conditions', () => {
  const object = { etag: 'e', uploaded: 10_500 };
  const strong = (value: string) => [{ type: 'strong' as const, value }];
  const weak = (value: string) => [{ type: 'weak' as const, value }];
  const any = [{ type: 'wildcard' as const }];
  const condition = (part: Partial<Conditional>): Conditional => ({
    uploadedBefore: undefined,
    uploadedAfter: undefined,
    ...part,
  });
  test.each<[string, Partial<Conditional>, boolean, boolean]>([
    // what, condition, holds for the object, holds where there is none
    ['nothing', {}, true, true],
    ['matches', { etagMatches: strong('e') }, true, false],
    ['matches another', { etagMatches: strong('x') }, false, false],
    ['matches weakly', { etagMatches: weak('e') }, false, false],
    ['matches any', { etagMatches: any }, true, false],
    ['matches one of two', { etagMatches: [...strong('x'), ...strong('e')] }, true, false],
    ['differs', { etagDoesNotMatch: strong('x') }, true, true],
    ['does not differ', { etagDoesNotMatch: strong('e') }, false, true],
    ['does not differ weakly', { etagDoesNotMatch: weak('e') }, false, true],
    ['is not there', { etagDoesNotMatch: any }, false, true],
    ['before later', { uploadedBefore: 10_501 }, true, true],
    ['before the same', { uploadedBefore: 10_500 }, false, true],
    ['after earlier', { uploadedAfter: 10_499 }, true, false],
    ['after the same', { uploadedAfter: 10_500 }, false, false],
    ['after, in seconds', { uploadedAfter: 10_100, secondsGranularity: true }, false, false],
    ['before, in seconds', { uploadedBefore: 10_900, secondsGranularity: true }, false, true],
    ['a match outranks before', { etagMatches: strong('e'), uploadedBefore: 1 }, true, false],
    ['a difference outranks after', { etagDoesNotMatch: strong('x'), uploadedAfter: 99_999 }, true, false],
  ])('%s', (_, part, there, absent) => {
    expect([holds(condition(part), object), holds(condition(part), undefined)]).toEqual([there, absent]);
  });
});

describe('ranges', () => {
  const range = (offset?: number, length?: number, suffix?: number) => ({ range: { offset, length, suffix } });
  test.each([
    [{}, 10, { offset: 0, length: 10 }],
    [range(2, 3), 10, { offset: 2, length: 3 }],
    [range(2), 10, { offset: 2, length: 8 }],
    [range(undefined, 3), 10, { offset: 0, length: 3 }],
    [range(8, 100), 10, { offset: 8, length: 2 }],
    [range(undefined, undefined, 4), 10, { offset: 6, length: 4 }],
    [range(undefined, undefined, 40), 10, { offset: 0, length: 10 }],
    [{ rangeHeader: 'bytes=2-4' }, 10, { offset: 2, length: 3 }],
    [{ rangeHeader: ' BYTES = 2 - 4 ' }, 10, { offset: 2, length: 3 }],
    [{ rangeHeader: 'bytes=-3' }, 10, { offset: 7, length: 3 }],
    [{ rangeHeader: 'bytes=-30' }, 10, { offset: 0, length: 10 }],
    [{ rangeHeader: 'bytes=7-' }, 10, { offset: 7, length: 3 }],
    [{ rangeHeader: 'bytes=-' }, 10, { offset: 0, length: 10 }],
    [{ rangeHeader: 'bytes=0-1,3-4' }, 10, { offset: 0, length: 10 }],
    [{ rangeHeader: 'nonsense' }, 10, { offset: 0, length: 10 }],
    [{ rangeHeader: 'bytes=10-' }, 10, { offset: 0, length: 10 }],
  ])('%j of %i bytes', (request, size, expected) => {
    expect(resolveRange(request, size)).toEqual(expected);
  });

  test.each([
    [range(11), 10],
    [range(10), 10],
    [range(0, 0), 10],
    [range(undefined, undefined, 0), 10],
    [range(0), 0],
  ])('%j of %i bytes is not satisfiable', (request, size) => {
    expect(() => resolveRange(request, size)).toThrow('The requested range is not satisfiable');
  });

  test('a range is cut from segments without empty pieces; the checksum is that of a whole segment', () => {
    const segments = [
      { blob: 'a', size: 10, md5: 'of a' },
      { blob: 'b', size: 10, md5: 'of b' },
      { blob: 'c', size: 5, md5: 'of c' },
    ];
    expect(cut(segments, { offset: 0, length: 25 })).toEqual([
      { blob: 'a', offset: 0, length: 10, md5: 'of a' },
      { blob: 'b', offset: 0, length: 10, md5: 'of b' },
      { blob: 'c', offset: 0, length: 5, md5: 'of c' },
    ]);
    expect(cut(segments, { offset: 9, length: 2 })).toEqual([
      { blob: 'a', offset: 9, length: 1 },
      { blob: 'b', offset: 0, length: 1 },
    ]);
    expect(cut(segments, { offset: 10, length: 10 })).toEqual([{ blob: 'b', offset: 0, length: 10, md5: 'of b' }]);
  });
});

describe('listing', () => {
  const keys = ['a', 'b/1', 'b/2', 'b/3/x', 'c', 'd/', 'd/y', 'é'];
  const rows = keys.map(
    (key): ObjectRow => ({
      key: Buffer.from(key),
      version: 'v',
      size: 1,
      etag: 'e',
      uploaded: 1,
      checksums: '',
      http: null,
      custom: null,
      storageClass: 'Standard',
      charge: 1,
      blob: null,
      inline: true,
    }),
  );
  let reads = 0;
  const pages = {
    page(from: Buffer, to: Buffer, limit: number) {
      reads++;
      const within = rows.filter(({ key }) => Buffer.compare(key, from) >= 0 && Buffer.compare(key, to) < 0);
      return new Finished(within.slice(0, limit));
    },
  };
  const run = (request: object) => {
    const reply = JSON.parse(finish(list(pages, { method: 'list', ...request })));
    return [reply.objects.map((object: { name: string }) => object.name), reply.delimitedPrefixes, reply.truncated];
  };

  test.each([
    [{}, keys, [], false],
    [{ prefix: 'b/' }, ['b/1', 'b/2', 'b/3/x'], [], false],
    [{ delimiter: '/' }, ['a', 'c', 'é'], ['b/', 'd/'], false],
    [{ prefix: 'b/', delimiter: '/' }, ['b/1', 'b/2'], ['b/3/'], false],
    [{ prefix: 'd/', delimiter: '/' }, ['d/', 'd/y'], [], false],
    [{ delimiter: '/', limit: 2 }, ['a'], ['b/'], true],
    [{ limit: 8 }, keys, [], false],
    [{ limit: 7 }, keys.slice(0, 7), [], true],
    [{ startAfter: 'c' }, ['d/', 'd/y', 'é'], [], false],
    [{ startAfter: 'zz' }, ['é'], [], false],
    [{ prefix: 'x' }, [], [], false],
  ])('%j', (request, objects, prefixes, truncated) => {
    expect(run(request)).toEqual([objects, prefixes, truncated]);
  });

  test.each([1, 2, 3])('pages of %i make up the whole, with and without a delimiter', (limit) => {
    for (const delimiter of [undefined, '/']) {
      const found: string[] = [];
      let cursor: string | undefined;
      do {
        const reply = JSON.parse(finish(list(pages, { method: 'list', limit, delimiter, cursor })));
        found.push(...reply.objects.map((object: { name: string }) => object.name), ...reply.delimitedPrefixes);
        cursor = reply.cursor;
      } while (cursor);
      const [objects, prefixes] = run(delimiter ? { delimiter } : {});
      expect(found.sort()).toEqual([...objects, ...prefixes].sort());
    }
  });

  test('a group is skipped, not read', () => {
    const many = Array.from({ length: 5000 }, (_, i) => `g/${String(i).padStart(4, '0')}`);
    const before = rows.length;
    rows.push(...many.map((key) => ({ ...(rows[0] as ObjectRow), key: Buffer.from(key) })));
    rows.sort((a, b) => Buffer.compare(a.key, b.key));
    reads = 0;
    expect(run({ delimiter: '/' })[1]).toEqual(['b/', 'd/', 'g/']);
    expect(reads).toBeLessThan(8);
    rows.splice(0, rows.length, ...rows.filter(({ key }) => !key.toString().startsWith('g/')));
    expect(rows.length).toBe(before);
  });
});

describe('parts', () => {
  const MB5 = 5 * 1024 * 1024;
  const part = (number: number, size: number) => ({ number, size, blob: `b${number}`, md5: `${number}`.repeat(32) });
  const uploaded = [part(1, MB5), part(2, MB5), part(3, 10), part(4, MB5 + 1), part(5, 20)];
  const named = (...numbers: number[]) => numbers.map((n) => ({ part: n, etag: `${n}`.repeat(32) }));

  test.each([
    [[1], 1],
    [[1, 2], 2],
    [[2, 1], 2],
    [[1, 2, 3], 3],
    [[3], 1],
    [[], 0],
  ])('%j are complete', (numbers, count) => {
    const parts = selectParts(named(...numbers), uploaded);
    expect(parts.map(({ number }) => number)).toEqual([...numbers].sort());
    expect(parts.length).toBe(count);
  });

  test.each([
    [[1, 1], /could not be found/],
    [[9], /could not be found/],
    [[3, 1], /smaller than the minimum/],
    [[3, 5], /smaller than the minimum/],
    [[1, 4], /problem with the multipart upload/],
    [[1, 5, 2], /smaller than the minimum/],
  ])('%j are refused', (numbers, message) => {
    expect(() => selectParts(named(...numbers), uploaded)).toThrow(message);
  });

  test('a part with another etag is refused', () => {
    expect(() => selectParts([{ part: 1, etag: 'x' }], uploaded)).toThrow(/could not be found/);
  });

  test('the etag is that of every S3', () => {
    // Of the parts "a" and "b": the concatenated MD5s through `xxd -r -p | md5sum`.
    expect(
      completedEtag([{ md5: '0cc175b9c0f1b6a831c399e269772661' }, { md5: '92eb5ffee6ae2fec3ad71c777531578f' }]),
    ).toBe('96e024ba2074fe77e8e965ba43a704be-2');
  });
});

describe('keys in byte order', () => {
  test('ranges by prefix end behind the last of it', () => {
    expect(prefixRange(Buffer.from('ab')).to).toEqual(Buffer.from('ac'));
    expect(behindPrefix(Buffer.from('é'))).toEqual(Buffer.from([0xc3, 0xaa]));
    expect(Buffer.compare(behindKey(Buffer.from('a')), Buffer.from('a'))).toBe(1);
    expect(Buffer.compare(behindKey(Buffer.from('a')), Buffer.from('a\u0001'))).toBe(-1);
  });
});

describe('requests', () => {
  test('64-bit numbers come as strings, and the unset ones are not there', () => {
    const request = parseReadRequest(
      '{"method":"get","object":"x","range":{"offset":"5","length":"18446744073709551615"},"onlyIf":{"uploadedBefore":"7"}}',
    );
    expect(request).toMatchObject({ range: { offset: 5 }, onlyIf: { uploadedBefore: 7 } });
    expect(request.method === 'get' && request.range?.length).toBeUndefined();
  });

  test('md5 is base64, the others are hexadecimal', () => {
    const request = parseWriteRequest(
      Buffer.from(`{"method":"put","object":"x","md5":"1B2M2Y8AsgTpgAmY7PhCfg==","sha1":"${'0'.repeat(40)}"}`),
    );
    expect(request.method === 'put' && [request.md5?.toString('hex'), request.sha1?.length]).toEqual([
      'd41d8cd98f00b204e9800998ecf8427e',
      20,
    ]);
  });

  test.each([
    '',
    '{',
    'null',
    '[]',
    '{"method":"get"}',
    '{"method":"nope","object":"x"}',
    '{"method":"get","object":1}',
  ])('%s is refused', (header) => {
    expect(() => parseReadRequest(header)).toThrow('Metadata missing or invalid');
  });
});
