import { expect, test } from 'vitest';
import { Field, requestField } from '../../host/http/message/fields.ts';

/** Whatever a handler or its library may take for the word of a proxy: who calls, and what was asked for. */
test.each([
  'Forwarded',
  'Forwarded-For',
  'X-Forwarded',
  'X-Real-IP',
  'X-Client-IP',
  'X-Cluster-Client-IP',
  'True-Client-IP',
  'Fastly-Client-IP',
  'X-Appengine-User-IP',
  'CF-Connecting-IP',
  'CF-Pseudo-IPv4',
  'X-Original-URL',
  'X-Rewrite-URL',
  'X-Payer',
  'X-Turnpike-Slug',
])('%s of a caller does not reach a handler', (name) => {
  expect(requestField(name)).toBe(Field.drop);
});
