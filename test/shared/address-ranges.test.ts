/** Ranges of addresses: their spelling, and what is in them. */
import { describe, expect, it } from 'vitest';
import { AddressRanges, canonicalRange } from '../../host/shared/address-ranges.ts';

it.each([
  ['203.0.113.9/24', '203.0.113.0/24'],
  ['203.0.113.130/25', '203.0.113.128/25'],
  ['1.2.3.4', '1.2.3.4/32'],
  ['0.0.0.0/0', '0.0.0.0/0'],
  ['2001:DB8::1', '2001:db8::1/128'],
  ['2001:db8:ffff::/33', '2001:db8:8000::/33'],
  ['::/0', '::/0'],
  ['::ffff:1.2.3.9/120', '1.2.3.0/24'],
  ['::ffff:1.2.3.4', '1.2.3.4/32'],
  ['::ffff:1.2.3.4/95', '::fffe:0:0/95'],
])('%s is %s', (given, canonical) => {
  expect(canonicalRange(given)).toBe(canonical);
  expect(canonicalRange(canonical)).toBe(canonical);
});

it.each([
  '',
  'x',
  '10.1',
  '010.1.1.1',
  '1.2.3.4/33',
  '1.2.3.4/',
  '1.2.3.4/-1',
  '1.2.3.4/8/8',
  '::1/129',
  'fe80::1%eth0',
])('%j is no range', (text) => expect(canonicalRange(text)).toBeUndefined());

describe('membership', () => {
  const ranges = new AddressRanges([
    '203.0.113.0/25',
    '198.51.100.7/32',
    '10.0.0.0/9',
    '2001:db8:8000::/33',
    '2001:db8:1:2::/64',
    'none',
  ]);

  it.each([
    ['203.0.113.0', true],
    ['203.0.113.127', true],
    ['203.0.113.128', false],
    ['198.51.100.7', true],
    ['198.51.100.6', false],
    ['10.127.255.255', true],
    ['10.128.0.0', false],
    ['2001:db8:8000::', true],
    ['2001:db8:ffff:ffff:ffff:ffff:ffff:ffff', true],
    ['2001:db8:7fff:ffff:ffff:ffff:ffff:ffff', false],
    ['2001:0db8:0001:0002::5', true],
    ['2001:db8:1:3::5', false],
    ['::ffff:198.51.100.7', true],
    ['::cb00:7101', false],
    ['', false],
    ['not an address', false],
  ])('%s: %s, also when it is asked again', (address, isIn) => {
    expect([ranges.has(address), ranges.has(address)]).toEqual([isIn, isIn]);
  });

  it('agrees with plain arithmetic for every length of prefix', () => {
    const number = (text: string) => text.split('.').reduce((sum, part) => sum * 256n + BigInt(part), 0n);
    const base = '172.173.174.175';
    for (let bits = 0; bits <= 32; bits++) {
      const one = new AddressRanges([`${base}/${bits}`]);
      for (const other of ['172.173.174.174', '172.173.174.47', '172.173.46.175', '172.45.174.175', '44.173.174.175'])
        expect([bits, other, one.has(other)]).toEqual([
          bits,
          other,
          number(base) >> BigInt(32 - bits) === number(other) >> BigInt(32 - bits),
        ]);
    }
  });

  it('asks no more of memory, however many callers there are', () => {
    const few = new AddressRanges(['10.0.0.0/8']);
    for (let at = 0; at < 30_000; at++) few.has(`11.${at >> 16}.${(at >> 8) & 255}.${at & 255}`);
    expect([few.has('10.1.1.1'), few.has('11.0.0.1')]).toEqual([true, false]);
  });

  it('has nothing where there are none', () => {
    expect(new AddressRanges([]).has('1.2.3.4')).toBe(false);
  });
});
