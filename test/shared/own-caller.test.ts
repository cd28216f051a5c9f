/** Who of this host's own tenants calls. */
import { isIPv6 } from 'node:net';
import { expect, test } from 'vitest';
import { TrustedProxies } from '../../host/edge/caller.ts';
import { outgoing } from '../../host/egress/headers.ts';
import { requestField } from '../../host/http/message/fields.ts';
import { parseRequestHead } from '../../host/http/message/head.ts';
import { ownCaller, ownCallerAddress } from '../../host/shared/own-caller.ts';

const PEER = { address: '127.0.0.1', encrypted: false, tlsVersion: '', tlsCipher: '' };
const head = (fields: string) =>
  parseRequestHead(`GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 1.2.3.4\r\n${fields}`, requestField);

test('each tenant has an address of its own, in a /64 of its own, the same each time', () => {
  const [a, again, b] = ['t1', 't1', 't2'].map((tenant) => ownCallerAddress(ownCaller(tenant, 'key'), 'key') ?? '');
  expect(a).toBe(again);
  expect(isIPv6(a as string)).toBe(true);
  expect(a?.split('::')[0]).not.toBe(b?.split('::')[0]);
});

test.each(['', 't1', 't1.x', ownCaller('t1', 'another key'), ownCaller('t2', 'key').replace('t2', 't1')])(
  '%j is nobody',
  (header) => expect(ownCallerAddress(header, 'key')).toBeUndefined(),
);

test('a tenant is no trusted proxy, although it calls from the address of one', () => {
  const proxies = new TrustedProxies(['127.0.0.0/8']);
  const own = head(`x-turnpike-caller: ${ownCaller('t1', 'key')}\r\n`);
  expect(own.fields).not.toContain('turnpike');
  expect(proxies.callerOf(PEER, own, 'key').ip).toMatch(/^fd/);
  expect(proxies.callerOf(PEER, head('x-turnpike-caller: t1.forged\r\n'), 'key').ip).toBe('1.2.3.4');
});

test('a handler cannot name itself', () => {
  expect(outgoing(['X-Turnpike-Caller', 'x', 'a', 'b'], 'h', true)).toEqual(['host', 'h', 'a', 'b']);
});
