/** The head an instance and control get. */
import { expect, test } from 'vitest';
import { controlHead, fieldLine, instanceFields, instanceHead } from '../../host/http/instance/request.ts';
import { answerField, blockPairs, requestField } from '../../host/http/message/fields.ts';
import { parseRequestHead } from '../../host/http/message/head.ts';

const REQUEST = {
  method: 'POST',
  path: '/a?b',
  host: 'api.test:1',
  framing: { kind: 'length', length: 3 } as const,
  upgrade: false,
  fields: 'accept: x\r\n',
};
const CONTEXT = { requestId: 'id-123456', clientIp: '9.9.9.9', proto: 'https', prefix: '/hello' } as const;

test('an instance learns who called, and how', () => {
  const head = instanceHead(
    REQUEST,
    CONTEXT,
    { version: '2', tlsVersion: 'TLSv1.3', tlsCipher: 'X' },
    'x-payer: me\r\n',
  );
  expect(
    head.startsWith('POST https://api.test:1/a?b HTTP/1.1\r\nhost: api.test:1\r\naccept: x\r\ncontent-length: 3\r\n'),
  ).toBe(true);
  expect(head.endsWith('\r\n\r\n')).toBe(true);
  expect(Object.fromEntries(blockPairs(head.slice(head.indexOf('\r\n') + 2)))).toEqual({
    host: 'api.test:1',
    accept: 'x',
    'content-length': '3',
    'cf-connecting-ip': '9.9.9.9',
    'x-forwarded-for': '9.9.9.9',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'api.test:1',
    'x-forwarded-prefix': '/hello',
    'x-request-id': 'id-123456',
    'x-turnpike-cf': '{"httpProtocol":"HTTP/2","tlsVersion":"TLSv1.3","tlsCipher":"X"}',
    'x-payer': 'me',
  });
});

test('control gets the context, and the path as it was', () => {
  const context = { ...CONTEXT, host: 'api.test:1', slug: 'hello', tenantPath: '/a?b', via: 'path' } as const;
  const head = controlHead({ ...REQUEST, path: '/hello/a?b', expectContinue: true }, context);
  const fields = Object.fromEntries(blockPairs(head.slice(head.indexOf('\r\n') + 2)));
  expect(head.startsWith('POST /hello/a?b HTTP/1.1\r\n')).toBe(true);
  expect(fields.expect).toBe('100-continue');
  expect(JSON.parse(Buffer.from(fields['x-turnpike-context'] ?? '', 'base64url').toString())).toEqual(context);
});

test('headers that control got are cleaned again', () => {
  const raw = ['Host', 'x', 'X-Payer', 'me', 'Content-Length', '3', 'X-Turnpike-Context', 'e30', 'Accept', 'y'];
  expect(instanceFields(raw)).toBe('Accept: y\r\n');
});

test.each([
  ['a b', 'c'],
  ['a:', 'c'],
  ['', 'c'],
  ['a', 'b\r\nc: d'],
  ['a', 'b\nc'],
  ['a', '\0'],
  ['a', '\u{1f600}'],
])('the header %j: %j is no line of a head', (name, value) => {
  expect(() => fieldLine(name, value)).toThrow(TypeError);
  expect(() => instanceFields([name, value])).toThrow(TypeError);
});

test('what we write, we read', () => {
  const head = instanceHead(REQUEST, CONTEXT, { version: '1.1', tlsVersion: '', tlsCipher: '' });
  expect(parseRequestHead(head.slice(0, -2), requestField)).toMatchObject({
    method: 'POST',
    target: '/a?b',
    fields: 'accept: x\r\n',
  });
  expect(answerField('X-Charge')).not.toBe(0);
});
