/** What is read before a connection's own protocol: PROXY headers and ClientHellos, whole, cut and forged. */
import { expect, test } from 'vitest';
import { offeredProtocols } from '../../host/http/preface/client-hello.ts';
import { readProxyHeader } from '../../host/http/preface/proxy-header.ts';

const SIGNATURE = '0d0a0d0a000d0a515549540a';

function header(command: string, family: string, addresses: string): Buffer {
  const length = (addresses.length / 2).toString(16).padStart(4, '0');
  return Buffer.from(`${SIGNATURE}${command}${family}${length}${addresses}`, 'hex');
}

const IPV4 = header('21', '11', 'cb007109c0000201303901bb');

test('the caller is read, and what follows is left', () => {
  const bytes = Buffer.concat([IPV4, Buffer.from('GET /')]);
  expect(readProxyHeader(bytes)).toEqual({ kind: 'read', bytes: 28, address: '203.0.113.9' });
  const ipv6 = header('21', '21', `20010db8${'0'.repeat(23)}1${'0'.repeat(32)}303901bb`);
  expect(readProxyHeader(ipv6)).toEqual({ kind: 'read', bytes: 52, address: '2001:db8::1' });
  const mapped = header('21', '21', `${'0'.repeat(20)}ffffcb007107${'0'.repeat(32)}303901bb`);
  expect(readProxyHeader(mapped)).toEqual({ kind: 'read', bytes: 52, address: '203.0.113.7' });
});

test('extensions are passed over, and connections of the proxy itself have no caller', () => {
  const extended = header('21', '11', 'cb007109c0000201303901bb03000411223344');
  expect(readProxyHeader(extended)).toMatchObject({ bytes: 35, address: '203.0.113.9' });
  expect(readProxyHeader(header('20', '00', ''))).toEqual({ kind: 'read', bytes: 16, address: undefined });
});

test('a header in pieces is waited for', () => {
  for (let length = 0; length < IPV4.length; length += 1) {
    expect(readProxyHeader(IPV4.subarray(0, length))).toEqual({ kind: 'incomplete' });
  }
});

test.each([
  ['version 1', Buffer.from('PROXY TCP4 1.1.1.1 2.2.2.2 1 2\r\n')],
  ['a request', Buffer.from('GET / HTTP/1.1\r\n')],
  ['another version', header('31', '11', 'cb007109c0000201303901bb')],
  ['another command', header('22', '11', 'cb007109c0000201303901bb')],
  ['too short for its family', header('21', '11', 'cb007109')],
  ['UDP', header('21', '12', 'cb007109c0000201303901bb')],
  ['too long', Buffer.from(`${SIGNATURE}2111ffff`, 'hex')],
])('%s is malformed', (_name, bytes) => {
  expect(readProxyHeader(bytes)).toEqual({ kind: 'malformed' });
});

/** A ClientHello with these protocols, and an extension before them. */
function hello(...protocols: string[]): Buffer {
  const names = Buffer.concat(protocols.map((name) => Buffer.from([name.length, ...Buffer.from(name)])));
  const alpn = Buffer.from([0, 16, 0, names.length + 2, 0, names.length, ...names]);
  const extensions = Buffer.concat([Buffer.from([0, 23, 0, 0]), ...(protocols.length > 0 ? [alpn] : [])]);
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 1),
    Buffer.from([2, 9, 9]),
    Buffer.from([0, 2, 0x13, 1]),
    Buffer.from([1, 0]),
    Buffer.from([0, extensions.length]),
    extensions,
  ]);
  const message = Buffer.concat([Buffer.from([1, 0, 0, body.length]), body]);
  return Buffer.concat([Buffer.from([0x16, 3, 1, 0, message.length]), message]);
}

test('the offered protocols are read', () => {
  expect(offeredProtocols(hello('acme-tls/1'))).toEqual(['acme-tls/1']);
  expect(offeredProtocols(hello('h2', 'http/1.1'))).toEqual(['h2', 'http/1.1']);
  expect(offeredProtocols(hello())).toEqual([]);
  expect(offeredProtocols(Buffer.from('GET /'))).toBe('other');
});

test('a hello in pieces is waited for, and a damaged one is nothing', () => {
  const whole = hello('h2');
  for (let length = 0; length < whole.length; length += 1) {
    expect(offeredProtocols(whole.subarray(0, length))).toBe('incomplete');
  }
  for (let at = 5; at < whole.length; at += 1) {
    const damaged = Buffer.from(whole);
    damaged[at] = 0xff;
    expect(() => offeredProtocols(damaged)).not.toThrow();
  }
});
