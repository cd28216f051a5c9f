/** Who the caller is, with and without proxies in front. */
import { describe, expect, test } from 'vitest';
import { TrustedProxies } from '../../host/edge/caller.ts';
import { requestField } from '../../host/http/message/fields.ts';
import { parseRequestHead } from '../../host/http/message/head.ts';
import { plainIp } from '../../host/shared/network-of.ts';

function callerOf(trusted: string[], address: string, headers: string, encrypted = false) {
  const head = parseRequestHead(`GET / HTTP/1.1\r\nHost: own.test\r\n${headers}`, requestField);
  return new TrustedProxies(trusted).callerOf({ address, encrypted, tlsVersion: '', tlsCipher: '' }, head);
}

const CLAIMS = 'X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: other.test\r\n';

test('a caller that is no proxy is not believed', () => {
  expect(callerOf([], '1.2.3.4', CLAIMS)).toEqual({ ip: '1.2.3.4', proto: 'http', host: 'own.test' });
  expect(callerOf(['10.0.0.0/8'], '11.0.0.1', CLAIMS)).toMatchObject({ ip: '11.0.0.1', host: 'own.test' });
});

describe('behind a trusted proxy', () => {
  test('its words are taken', () => {
    expect(callerOf(['10.0.0.0/8'], '10.0.0.1', CLAIMS)).toEqual({ ip: '9.9.9.9', proto: 'https', host: 'other.test' });
    expect(callerOf(['fd00::/8'], 'fd00::1', CLAIMS)).toMatchObject({ ip: '9.9.9.9' });
  });

  test('what the caller itself claimed before it is not', () => {
    const chain = 'X-Forwarded-For: 6.6.6.6, 9.9.9.9, 10.0.0.7\r\n';
    expect(callerOf(['10.0.0.0/8'], '10.0.0.1', chain).ip).toBe('9.9.9.9');
    expect(callerOf(['10.0.0.0/8'], '10.0.0.1', 'X-Forwarded-For: <script>, 10.0.0.7\r\n').ip).toBe('10.0.0.7');
  });

  test('nonsense falls back to what is seen', () => {
    const nonsense = 'X-Forwarded-For: unknown\r\nX-Forwarded-Proto: gopher\r\nX-Forwarded-Host: a b\r\n';
    expect(callerOf(['10.0.0.1'], '10.0.0.1', nonsense)).toEqual({ ip: '10.0.0.1', proto: 'http', host: 'own.test' });
  });

  test('ports are taken off', () => {
    expect(callerOf(['10.0.0.1'], '10.0.0.1', 'X-Forwarded-For: 9.9.9.9:5000\r\n').ip).toBe('9.9.9.9');
    expect(callerOf(['10.0.0.1'], '10.0.0.1', 'X-Forwarded-For: [2001:db8::1]:5000\r\n').ip).toBe('2001:db8::1');
  });
});

test('an encrypted connection is https', () => {
  expect(callerOf([], '1.2.3.4', '', true).proto).toBe('https');
});

test.each(['10.0.0.0/33', 'localhost', '10.0.0.0/x', '::/129', ''])('the range %s is refused', (range) => {
  expect(() => new TrustedProxies([range])).toThrow(/not an address range/);
});

test('IPv4 in IPv6 spelling is IPv4', () => {
  expect(plainIp('::ffff:1.2.3.4')).toBe('1.2.3.4');
  expect(plainIp('::1')).toBe('::1');
});
