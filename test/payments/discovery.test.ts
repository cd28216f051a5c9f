import { declareDiscoveryExtension, validateDiscoveryExtension } from '@x402/extensions/bazaar';
import { expect, test } from 'vitest';
import { discoveryOf } from '../../host/payments/discovery.ts';
import { parsePaidRoutes } from '../../host/payments/paid-routes.ts';

type Extension = Parameters<typeof validateDiscoveryExtension>[0];

const query = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
const body = { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] };
const example = { query: { city: 'Rome' }, body: { text: 'Hi' } };
const output = { type: 'json', schema: { type: 'object' }, example: { warm: true } };

test.each([
  ['GET', {}],
  ['GET', { input: { query, example }, output }],
  ['DELETE', {}],
  ['POST', {}],
  ['POST', { input: { body, example }, output }],
  ['PUT', { input: { query, body, example } }],
  ['PATCH', { input: { bodyType: 'text' as const, example: { body: 'plain' } } }],
])('%s %j is what x402’s own check takes', (method, call) => {
  const found = discoveryOf(method, call);
  expect(validateDiscoveryExtension(found?.bazaar as unknown as Extension)).toEqual({ valid: true });
  expect(discoveryOf(method, call)).toBe(found);
});

test('an example that does not fit is seen by x402’s own check', () => {
  const found = discoveryOf('POST', { input: { body, example: { body: { text: 1 } } } });
  expect(validateDiscoveryExtension(found?.bazaar as unknown as Extension).valid).toBe(false);
});

test('says the same as x402’s own declaration', () => {
  const own = declareDiscoveryExtension({ method: 'GET', input: example.query, inputSchema: query } as never);
  expect(discoveryOf('GET', { input: { query, example } })?.bazaar.info).toMatchObject(
    (own as unknown as { bazaar: { info: object } }).bazaar.info,
  );
});

test('nobody lists a preflight', () => {
  expect(discoveryOf('OPTIONS', {})).toBeUndefined();
});

test('a route says how it is called, in few words and with no word of elsewhere', () => {
  const route = (input: unknown) => parsePaidRoutes([{ path: '/x', price: '1', input }]);
  expect(route({ query, example: { query: { city: 'Rome' } } })[0]?.input?.query).toEqual(query);
  expect(() => route({ query: { $ref: 'https://example.com/schema' } })).toThrow('another document');
  expect(route({ query: { $ref: '#/$defs/a' } })).toHaveLength(1);
  expect(() => route({ query: { description: 'x'.repeat(2_000) } })).toThrow('2000 characters');
  expect(() => route({ wrong: 1 })).toThrow('paidRoutes');
});
