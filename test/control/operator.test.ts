/** The operator's API, asked by hand. */
import { expect, it } from 'vitest';
import { createOperatorApp } from '../../host/control/operator/app.ts';

const app = createOperatorApp({ tokenHash: '0'.repeat(64) } as never, true);
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

it('tells who has no token where none is needed', async () => {
  const strict = createOperatorApp({ tokenHash: '0'.repeat(64) } as never, false);
  expect(await (await strict.request('/tenants')).json()).toMatchObject({
    code: 'unauthorized',
    detail: expect.stringContaining('run/operator.sock'),
  });
});
