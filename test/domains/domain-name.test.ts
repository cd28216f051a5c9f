import { describe, expect, it } from 'vitest';
import { parseDomain } from '../../host/domains/domain-name.ts';

const own = { publicHost: 'host.example', baseDomain: 'tenants.example' };

describe('names of domains', () => {
  it.each([
    ['api.example.com', 'api.example.com'],
    ['API.Example.COM.', 'api.example.com'],
    ['bücher.example', 'xn--bcher-kva.example'],
    ['xn--bcher-kva.example', 'xn--bcher-kva.example'],
    ['a.b.c.d.example', 'a.b.c.d.example'],
  ])('takes %s', (given, expected) => {
    expect(parseDomain(given, own)).toBe(expected);
  });

  it.each([
    undefined,
    5,
    '',
    ' ',
    'localhost',
    '*.example.com',
    'https://example.com',
    'example.com/x',
    'example.com:80',
    '1.2.3.4',
    '[::1]',
    '0x7f.1',
    'exa mple.com',
    '-a.example',
    'a-.example',
    'a..example',
    `${'a'.repeat(64)}.com`,
    `${'a.'.repeat(130)}com`,
    'user@example.com',
    'example.123',
    'host.example',
    'tenants.example',
    'x.tenants.example',
    'a_b.example',
    'xn--a.example\0',
  ])('refuses %j', (given) => {
    expect(() => parseDomain(given, own)).toThrow(expect.objectContaining({ code: 'invalid_field' }));
  });
});
