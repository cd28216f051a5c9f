/** The operator's API, asked by hand. */
import { expect, it } from 'vitest';
import { createOperatorApp } from '../../host/control/api/operator/app.ts';
import { operatorEndpoints } from '../../host/control/api/operator/index.ts';

const make = (parts: object, trusted: boolean, names: string[] = []) =>
  createOperatorApp(
    {
      endpoints: operatorEndpoints({ payments: { ledger: {} }, ...parts } as never),
      builtinApis: new Map([['billing', async () => new Response('of the tenant')]]),
      tokenHash: '0'.repeat(64),
      names,
      audit: { begin: async () => 1, end: async () => undefined },
      version: '1.2.3',
      log: undefined as never,
    },
    trusted,
  );
const app = make({}, true);
const post = async (path: string, body: string) => {
  const response = await app.request(path, { method: 'POST', body });
  return { status: response.status, ...((await response.json()) as { code: string; detail: string }) };
};

it.each(['/clock', '/payments/open/x'])('%s refuses a body that is not JSON', async (path) => {
  expect(await post(path, 'advanceMs=1')).toMatchObject({ status: 400, code: 'invalid_json' });
  expect(await post(path, '')).toMatchObject({ status: 400, code: 'invalid_field' });
});

it('names what is wrong of the body as a whole', async () => {
  expect((await post('/backup', '{"to":"x"}')).detail).toBe(
    'Not acceptable: /to is not known; /openapi.json lists the fields.',
  );
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
  const strict = make({ metrics: async () => '' }, false, ['metrics.internal']);
  expect((await strict.request('/metrics', { headers: { host } })).status).toBe(status);
});

it('tells who has no token where none is needed', async () => {
  const strict = make({}, false);
  expect(await (await strict.request('/tenants')).json()).toMatchObject({
    code: 'unauthorized',
    detail: expect.stringContaining('run/operator.sock'),
  });
});

it('describes each endpoint, without a token, and forwards to tenants with one', async () => {
  const strict = make({}, false);
  const { paths, info } = (await (await strict.request('/openapi.json')).json()) as {
    info: { version: string };
    paths: Record<string, Record<string, { summary: string; security: object[]; requestBody?: object }>>;
  };
  expect(info.version).toBe('1.2.3');
  expect(Object.keys(paths)).toEqual(
    expect.arrayContaining(['/tenants', '/payments/open/{id}', '/backup', '/metrics']),
  );
  expect(paths['/tenants']?.get?.security).toEqual([{ operatorToken: [] }]);
  expect(paths['/healthz']?.get?.security).toEqual([]);
  expect(JSON.stringify(paths['/clock']?.post?.requestBody)).toContain('advanceMs');
  expect(Object.values(paths).flatMap((methods) => Object.values(methods).filter(({ summary }) => !summary))).toEqual(
    [],
  );
  expect((await strict.request('/billing/accounts')).status).toBe(401);
  expect(await (await app.request('/billing/accounts')).text()).toBe('of the tenant');
});

it('tells who asks for a path that is not there which there are', async () => {
  expect(await (await app.request('/nothing')).json()).toMatchObject({
    code: 'not_found',
    detail: expect.stringMatching(/\/tenants .*\/billing\/\*; GET \/openapi\.json/),
  });
});
