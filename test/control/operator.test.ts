/** The operator's API, asked by hand. */
import { expect, it } from 'vitest';
import { createOperatorApp, type OperatorAppOptions } from '../../host/control/api/operator/app.ts';
import { operatorEndpoints } from '../../host/control/api/operator/index.ts';

const acts: object[] = [];
const PARTS = { payments: { ledger: {} } };
const options = (parts: object, names: string[] = []): OperatorAppOptions => ({
  endpoints: operatorEndpoints({ ...PARTS, ...parts } as never),
  builtinApis: new Map([['billing', async () => new Response('of the tenant')]]),
  tokens: { roleOf: (token) => (token === 'all' ? 'operator' : token === 'some' ? 'reader' : undefined) },
  names,
  audit: {
    begin: async (act) => acts.push(act),
    end: async (id, outcome) => void Object.assign(acts[id - 1] ?? {}, { outcome }),
  },
  version: '1.2.3',
  log: undefined as never,
});
const make = (parts: object, trusted: boolean, names: string[] = []) =>
  createOperatorApp(options(parts, names), trusted);
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

const BODIES: Record<string, object> = {
  '/tenants/:slug/suspend': { reason: 'why' },
  '/tenants/:slug/extend': { days: 1 },
  '/tenants/:slug/limits': { 'storage.kvBytes': 1 },
  '/tenants/:slug/note': { note: 'x' },
  '/blocks': { subject: '10.0.0.0/8' },
  '/clock': { advanceMs: 1 },
  '/tokens': { role: 'reader' },
  '/payments/open/:id': { action: 'retry' },
};

it('writes down every act, by table, before it is done, also what then fails', async () => {
  const log = { error: () => undefined };
  const strange = createOperatorApp({ ...options({}), log: log as never }, true);
  const changing = operatorEndpoints(PARTS as never).filter(({ method }) => method !== 'GET');
  expect(changing.length).toBeGreaterThan(12);
  for (const { method, path } of changing) {
    acts.length = 0;
    const body = method === 'DELETE' ? null : JSON.stringify(BODIES[path] ?? {});
    const answer = await strange.request(path.replace(/:\w+/g, 'abc'), { method, body });
    // There is no host behind it.
    expect([`${method} ${path}`, answer.status]).toEqual([`${method} ${path}`, expect.any(Number)]);
    expect(acts).toMatchObject([{ act: `${method} ${path}`, address: 'operator.sock', outcome: answer.status }]);
  }
});

it('writes down what a tenant’s own API was asked for, and nothing of its bodies; reading is no act', async () => {
  acts.length = 0;
  await app.request('/billing/keys?x=1', { method: 'POST', body: '{"secret":"s3"}' });
  await app.request('/billing/keys');
  await app.request('/openapi.json');
  expect(acts).toEqual([
    {
      act: 'POST /billing/keys',
      subject: 'billing',
      parameters: {},
      reason: null,
      address: 'operator.sock',
      role: 'operator',
      outcome: 200,
    },
  ]);
});

it('writes down nothing of a body that is refused', async () => {
  acts.length = 0;
  expect(await post('/tenants/abc/extend', '{"days": 0, "secret": "s3"}')).toMatchObject({ status: 400 });
  expect(await post('/tenants/abc/suspend', `{"reason": "${'x'.repeat(501)}"}`)).toMatchObject({ status: 400 });
  expect(await post('/tenants/abc/suspend', '{"reason": " "}')).toMatchObject({ status: 400 });
  expect(await post('/tenants/abc/suspend', '{"reason": "a\\u001b[2J"}')).toMatchObject({ status: 400 });
  expect(acts).toEqual([]);
});

it('does nothing that cannot be written down', async () => {
  let rotated = false;
  const rotate = async () => {
    rotated = true;
  };
  const audit = { begin: async () => Promise.reject(new Error('the disk is full')), end: async () => undefined };
  const full = createOperatorApp(
    { ...options({ secrets: { rotate } }), audit, log: { error: () => undefined } as never },
    true,
  );
  expect((await full.request('/secrets/rotate', { method: 'POST' })).status).toBe(500);
  expect(rotated).toBe(false);
});

it('tells who asks for a path that is not there which there are', async () => {
  expect(await (await app.request('/nothing')).json()).toMatchObject({
    code: 'not_found',
    detail: expect.stringMatching(/\/tenants .*\/billing\/\*; GET \/openapi\.json/),
  });
});

it('lets who may only read GET, and nothing else; wrong tokens not even that', async () => {
  const strict = make({ deployments: { all: async () => [] } }, false);
  const ask = async (token: string, method: string, path: string) =>
    (await strict.request(path, { method, headers: { authorization: `Bearer ${token}` } })).status;
  acts.length = 0;
  expect(await ask('some', 'GET', '/tenants')).toBe(200);
  for (const [method, path] of [
    ['POST', '/secrets/rotate'],
    ['DELETE', '/tenants/abc'],
    ['PUT', '/tenants/abc/note'],
    ['POST', '/tokens'],
    ['POST', '/billing/keys'],
  ] as const)
    expect([path, await ask('some', method, path)]).toEqual([path, 403]);
  expect(await ask('wrong', 'GET', '/tenants')).toBe(401);
  expect(await ask('', 'GET', '/tenants')).toBe(401);
  expect(acts).toEqual([]);
});
