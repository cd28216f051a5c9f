/** Changes without code, on the real host: what would not start is refused, whether the deployment runs or not. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';

let host: TestHost;
let owner: Fetch;

beforeAll(async () => {
  host = await startHost();
  owner = mppFetch(host.network, 0);
});
afterAll(() => host?.stop());

const NEEDY = `import { env } from 'cloudflare:workers';
if (!env.KEY) throw new Error('KEY is missing');
export default { fetch: () => new Response('ok') };`;

it.each([
  ['a date that is not yet', { compatibilityDate: '2999-01-01' }, 400, '/compatibilityDate'],
  [
    'a flag that this host does not support',
    { compatibilityFlags: ['d1_binding_jsrpc'] },
    400,
    '/compatibilityFlags/0',
  ],
  ['a flag that workerd does not know', { compatibilityFlags: ['no_such_flag'] }, 422, '/compatibilityFlags'],
  ['secrets without which it does not load', { secrets: {} }, 422, '/code'],
  ['taking away a secret without which it does not load', { secretChanges: { KEY: null } }, 422, '/code'],
])('refuses %s for a deployment that does not run', async (_, change, status, pointer) => {
  const slug = `cold-${Math.random().toString(36).slice(2, 8)}`;
  await deploy(owner, host.url, { slug, code: NEEDY, secrets: { KEY: 'x' } });
  const response = await owner(`${host.url}/_admin/code/${slug}`, jsonPut(change));
  const answer = await response.json();
  const served = await fetch(`${host.url}/${slug}/`);
  const text = await served.text();
  expect([response.status, served.status, text]).toEqual([status, 200, 'ok']);
  expect(answer).toMatchObject({ errors: [{ pointer }] });
});

it('refuses to go back to a version that does not load with the secrets of now', async () => {
  await deploy(owner, host.url, { slug: 'back', code: NEEDY, secrets: { KEY: 'x' } });
  const plain = { code: "export default { fetch: () => new Response('plain') }", secrets: {} };
  expect((await owner(`${host.url}/_admin/code/back`, jsonPut(plain))).status).toBe(200);
  const response = await owner(`${host.url}/_admin/back/rollback`, jsonPost({ version: 1 }));
  expect([response.status, await (await fetch(`${host.url}/back/`)).text()]).toEqual([422, 'plain']);
});
