import { describe, expect, test } from 'vitest';
import { canonical, whyRefused } from '../../host/egress/address.ts';

const none = new Set<string>();

describe('addresses that handlers may not reach', () => {
  test.each([
    '0.0.0.0',
    '0.1.2.3',
    '10.0.0.1',
    '10.255.255.255',
    '100.64.0.1',
    '100.100.100.200',
    '100.127.255.255',
    '127.0.0.1',
    '127.255.255.254',
    '168.63.129.16',
    '169.254.0.1',
    '169.254.169.254',
    '172.16.0.1',
    '172.31.255.255',
    '192.0.0.192',
    '192.0.2.1',
    '192.88.99.1',
    '192.168.0.1',
    '192.168.255.255',
    '198.18.0.1',
    '198.19.255.255',
    '198.51.100.1',
    '203.0.113.1',
    '224.0.0.1',
    '239.255.255.255',
    '240.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    '::127.0.0.1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '::ffff:8.8.8.8',
    '0:0:0:0:0:ffff:a9fe:a9fe',
    '::ffff:0:127.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b::8.8.8.8',
    '64:ff9b:1::1',
    '100::1',
    '2001::1',
    '2001:db8::1',
    '2001:2::1',
    '2002:7f00:1::',
    '2002:a00:1::1',
    '3fff::1',
    '5f00::1',
    'fc00::1',
    'fd00:ec2::254',
    'fe80::1',
    'fe80::1%eth0',
    'fe80::1%1',
    '2606:4700::1111%eth0',
    'fec0::1',
    'ff02::1',
    '4000::1',
    '',
    'localhost',
    '1.2.3',
  ])('%s', (address) => {
    expect(whyRefused(address, none)).toEqual(expect.any(String));
  });
});

describe('addresses that handlers may reach', () => {
  test.each([
    '1.1.1.1',
    '8.8.8.8',
    '93.184.216.34',
    '172.15.255.255',
    '172.32.0.1',
    '100.63.255.255',
    '100.128.0.1',
    '192.167.255.255',
    '198.17.255.255',
    '223.255.255.255',
    '2606:4700:4700::1111',
    '2a00:1450:4001:81b::200e',
  ])('%s', (address) => {
    expect(whyRefused(address, none)).toBeUndefined();
  });
});

test("a public address of this machine is refused in every spelling, another one isn't", () => {
  const own = new Set([canonical('2606:4700:0:0::0001'), '8.8.8.8']);
  expect(whyRefused('2606:4700::1', own)).toBe('an address of this host');
  expect(whyRefused('8.8.8.8', own)).toBe('an address of this host');
  expect(whyRefused('8.8.4.4', own)).toBeUndefined();
});
