/** The operator's API, asked by hand. */
import { expect, it } from 'vitest';
import { createOperatorApp } from '../../host/control/operator/app.ts';

const app = createOperatorApp({ builtinApis: new Map(), tokenHash: '0'.repeat(64) } as never, true);
const post = async (path: string, body: string) => {
  const response = await app.request(path, { method: 'POST', body });
  return { status: response.status, ...((await response.json()) as { code: string; detail: string }) };
};

it.each(['/clock', '/payments/open/x'])('%s refuses a body that is not JSON', async (path) => {
  expect(await post(path, 'advanceMs=1')).toMatchObject({ status: 400, code: 'invalid_json' });
  expect(await post(path, '')).toMatchObject({ status: 400, code: 'invalid_field' });
});

it('names what is wrong of the body as a whole', async () => {
  expect((await post('/backup', '{"to":"x"}')).detail).toBe('The body: Unrecognized key: "to"');
});

it.each([
  ['127.0.0.1:8403', 200],
  ['localhost:8403', 200],
  ['LOCALHOST', 200],
  ['[::1]:8403', 200],
  ['metrics.internal:8403', 200],
  ['evil.example', 403],
  ['evil.example:8403', 403],
  ['127.0.0.1.evil.example', 403],
  ['localhost.evil.example', 403],
])('answers on the port only where it is called by a name of its own: %s', async (host, status) => {
  const parts = {
    builtinApis: new Map(),
    tokenHash: '0'.repeat(64),
    names: ['metrics.internal'],
    metrics: async () => '',
  };
  const strict = createOperatorApp(parts as never, false);
  expect((await strict.request('/metrics', { headers: { host } })).status).toBe(status);
});

it('tells who has no token where none is needed', async () => {
  const strict = createOperatorApp({ builtinApis: new Map(), tokenHash: '0'.repeat(64), names: [] } as never, false);
  expect(await (await strict.request('/tenants')).json()).toMatchObject({
    code: 'unauthorized',
    detail: expect.stringContaining('run/operator.sock'),
  });
});
