/** Deploy keys on a real host: what they open and what they do not, their end, and the workflow that the README prints. */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { deploy, type Fetch, jsonPost, jsonPut, mppFetch } from './support/callers.ts';
import { type EmptyFolder, emptyFolder } from './support/empty-folder.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';

const DAY_MS = 86_400_000;

let host: TestHost;
let folder: EmptyFolder;
let owner: Fetch;
let stranger: Fetch;

const code = (text: string) => `export default { fetch: () => new Response(${JSON.stringify(text)}) }`;
const paidRoutes = [{ method: 'GET', path: '/paid', price: '0.01' }];

beforeAll(async () => {
  [host, folder] = await Promise.all([startHost({ flags: { 'clock-movable': 'true' } }), emptyFolder()]);
  owner = mppFetch(host.network, 0);
  stranger = mppFetch(host.network, 1);
  await deploy(owner, host.url, { slug: 'shop', code: code('one'), paidRoutes, bindings: { kv: true } });
  await deploy(owner, host.url, { slug: 'other', code: code('other') });
  await deploy(stranger, host.url, { slug: 'theirs', code: code('theirs') });
});
afterAll(async () => {
  await Promise.all([host?.stop(), folder?.remove()]);
});

interface Key {
  id: string;
  key: string;
}

async function makeKey(asked: object = {}, wallet = owner): Promise<Key> {
  const until = new Date(Date.now() + 30 * DAY_MS).toISOString();
  const body = { slugs: ['shop'], actions: ['update', 'rollback'], until, name: 'ci', ...asked };
  const answer = await wallet(`${host.url}/_admin/keys`, jsonPost(body));
  expect(answer.status, await answer.clone().text()).toBe(201);
  return (await answer.json()) as Key;
}

const by = ({ key }: Key, url: string, init: RequestInit = {}) =>
  fetch(`${host.url}${url}`, { ...init, headers: { ...init.headers, authorization: `Bearer ${key}` } });
const says = async (slug: string) => (await fetch(`${host.url}/${slug}/`)).text();
const problem = async (answer: Promise<Response>) => {
  const { status, detail } = (await (await answer).json()) as { status: number; detail: string };
  return `${status} ${detail}`;
};

test('a key updates and rolls back its slug, and the versions say so', async () => {
  const key = await makeKey();
  expect((await by(key, '/_admin/code/shop', jsonPut({ code: code('two'), paidRoutes }))).status).toBe(200);
  expect(await says('shop')).toBe('two');
  expect((await by(key, '/_admin/shop/rollback', jsonPost({ version: 1 }))).status).toBe(200);
  expect(await says('shop')).toBe('one');
  const { versions } = (await (await by(key, '/_admin/shop/versions')).json()) as { versions: { by: string }[] };
  const label = `key ${key.id} (ci)`;
  expect(versions.map((one) => one.by)).toEqual([label, label, host.network.wallets[0]?.address.toLowerCase()]);
  const { entries } = (await (await owner(`${host.url}/_admin/shop/logs`)).json()) as { entries: { text: string }[] };
  expect(entries.map(({ text }) => text).join('\n')).toMatch(
    new RegExp(`version 2 is live, by key ${key.id} \\(ci\\)`),
  );
  expect(JSON.stringify(entries)).not.toContain(key.key);
  expect(host.output()).not.toContain(key.key);
});

test('a key does nothing else', async () => {
  const key = await makeKey();
  const update = (slug: string, body: object) => problem(by(key, `/_admin/code/${slug}`, jsonPut(body)));
  // Other slugs, of the owner and of others.
  expect(await update('other', { code: code('no') })).toMatch(/^403 .*not for other, but for shop/);
  expect(await update('theirs', { code: code('no') })).toMatch(/^403 .*not for theirs/);
  // Secrets, logs and data are actions of their own.
  expect(await update('shop', { secretChanges: { TOKEN: 'x' } })).toMatch(/^403 .*may secrets/);
  expect(await update('shop', { code: code('no'), secrets: {} })).toMatch(/^403 .*may secrets/);
  expect(await problem(by(key, '/_admin/shop/logs'))).toMatch(/^403 .*may logs/);
  expect(await problem(by(key, '/_admin/shop/data/STORE'))).toMatch(/^403 .*may data/);
  // Money.
  const dearer = [{ method: 'GET', path: '/paid', price: '0.02' }];
  expect(await update('shop', { code: code('no'), paidRoutes: dearer })).toMatch(/^403 .*does not change paidRoutes/);
  expect(await update('shop', { code: code('no'), paidRoutes: [] })).toMatch(/^403 .*does not change paidRoutes/);
  expect(await update('shop', { payTo: host.network.wallets[1]?.address })).toMatch(/^403 .*does not change payTo/);
  expect(await update('shop', { bindings: { kv: true, payments: true } })).toMatch(/^403 .*bindings\/payments/);
  // Other deployments of the owner, and what they share, by way of the slug that it is for.
  for (const bindings of [
    { kv: true, services: { OTHER: { service: 'other' } } },
    { kv: true, tails: { OTHER: { service: 'other' } } },
    { kv: { STORE: { id: 'sessions', shared: true } } },
    { kv: true, r2: { FILES: { id: 'files', shared: true } } },
    { kv: true, queues: { JOBS: { queue: 'jobs', shared: true } } },
  ])
    expect(await update('shop', { bindings })).toMatch(/^403 .*binds no other deployment/);
  const deployed = by(key, '/_admin/deploy', jsonPost({ slug: 'fresh', code: code('no') }));
  expect(await problem(deployed)).toMatch(/^403 .*the owner's wallet/);
  // What would be more than the key, and what ends things.
  for (const [method, url] of [
    ['POST', '/_admin/renew/shop'],
    ['POST', '/_admin/session/shop'],
    ['DELETE', '/_admin/shop'],
    ['POST', '/_admin/keys'],
    ['GET', '/_admin/keys'],
    ['DELETE', `/_admin/keys/${key.id}`],
    ['POST', '/_admin/shop/domains'],
    ['GET', '/_admin/deployments'],
  ] as const)
    expect(await problem(by(key, url, { method })), url).toMatch(/^403 /);
  expect(await says('shop')).toBe('one');
  expect(await says('other')).toBe('other');
  const shop = (await (await fetch(`${host.url}/_admin/get/shop`)).json()) as { paidRoutes: { price: string }[] };
  expect(shop.paidRoutes.map(({ price }) => price)).toEqual(['0.01']);
});

test('a wallet makes keys for its own slugs alone, and revokes its own alone', async () => {
  const until = new Date(Date.now() + DAY_MS).toISOString();
  const ask = (wallet: Fetch, body: object) =>
    problem(wallet(`${host.url}/_admin/keys`, jsonPost({ slugs: ['shop'], actions: ['update'], until, ...body })));
  expect(await ask(stranger, {})).toMatch(/^403 shop belongs to/);
  expect(await ask(owner, { slugs: ['shop', 'theirs'] })).toMatch(/^403 theirs belongs to/);
  expect(await ask(mppFetch(host.network, 2), { slugs: 'all' })).toMatch(/^403 .*owns no deployment/);
  expect(await ask(owner, { slugs: ['none-such'] })).toMatch(/^404 /);
  expect(await ask(owner, { actions: ['deploy'] })).toMatch(/^400 /);
  expect(await ask(owner, { actions: [] })).toMatch(/^400 /);
  expect(await ask(owner, { until: new Date(Date.now() + 400 * DAY_MS).toISOString() })).toMatch(/^400 .*until/);
  expect(await ask(owner, { until: '2020-01-01T00:00:00Z' })).toMatch(/^400 .*has passed/);
  const key = await makeKey({ slugs: 'all' });
  expect(await problem(stranger(`${host.url}/_admin/keys/${key.id}`, { method: 'DELETE' }))).toMatch(/^404 /);
  const all = await by(key, '/_admin/code/other', jsonPut({ code: code('by all') }));
  expect(all.status).toBe(200);
  expect(await problem(by(key, '/_admin/code/theirs', jsonPut({ code: code('no') })))).toMatch(/^403 /);
  const listed = await (await owner(`${host.url}/_admin/keys`)).text();
  expect(listed).toContain(key.id);
  expect(listed).not.toContain(key.key.slice(-43));
});

test('what the owner has bound stays with a key of certain slugs; a key of all slugs binds others, too', async () => {
  const services = { OTHER: { service: 'other' } };
  const update = async (wallet: Promise<Response>) => (await wallet).status;
  const [one, all] = [await makeKey(), await makeKey({ slugs: 'all' })];
  expect(await update(by(all, '/_admin/code/shop', jsonPut({ bindings: { kv: true, services } })))).toBe(200);
  const renamed = { kv: true, services: { SAME: services.OTHER } };
  expect(await update(by(one, '/_admin/code/shop', jsonPut({ bindings: renamed })))).toBe(200);
  expect(await update(by(one, '/_admin/code/shop', jsonPut({ bindings: { kv: true } })))).toBe(200);
  expect(await update(by(one, '/_admin/code/shop', jsonPut({ bindings: renamed })))).toBe(403);
});

test('a token makes no other', async () => {
  const made = await owner(`${host.url}/_admin/session/shop`, { method: 'POST' });
  const { token } = (await made.json()) as { token: string };
  const again = (slug: string) =>
    fetch(`${host.url}/_admin/session/${slug}`, { method: 'POST', headers: { authorization: `Bearer ${token}` } });
  expect([made.status, (await again('shop')).status, (await again('other')).status]).toEqual([201, 403, 403]);
});

test('a revoked key is refused at once, also where it follows a log', async () => {
  const key = await makeKey({ actions: ['logs'] });
  const tail = await by(key, '/_admin/shop/logs', { headers: { accept: 'text/event-stream' } });
  expect(tail.status).toBe(200);
  const ended = tail.text();
  expect((await owner(`${host.url}/_admin/keys/${key.id}`, { method: 'DELETE' })).status).toBe(204);
  await ended;
  expect(await problem(by(key, '/_admin/shop/logs'))).toMatch(/^401 .*revoked/);
});

test('keys outlive a killed host; one ends with its time, and with the deployment it was made for', async () => {
  const [kept, short] = await Promise.all([makeKey(), makeKey({ until: new Date(Date.now() + DAY_MS).toISOString() })]);
  const brief = await makeKey({ slugs: ['other'] });
  await host.kill();
  host = await host.restart();
  owner = mppFetch(host.network, 0);
  stranger = mppFetch(host.network, 1);
  const versions = (key: Key, slug = 'shop') => by(key, `/_admin/${slug}/versions`);
  expect((await versions(kept)).status).toBe(200);
  expect((await versions(short)).status).toBe(200);
  await host.advance(2 * DAY_MS);
  expect((await versions(kept)).status).toBe(200);
  expect(await problem(versions(short))).toMatch(/^401 .*run out/);
  expect((await versions(brief, 'other')).status).toBe(200);
  expect((await owner(`${host.url}/_admin/other`, { method: 'DELETE' })).status).toBe(200);
  expect(await problem(versions(brief, 'other'))).toMatch(/^410 /);
  await deploy(owner, host.url, { slug: 'other', code: code('anew') });
  expect(await problem(versions(brief, 'other'))).toMatch(/^403 .*deployed anew/);
});

test('wrong keys are answered 401, and then 429', async () => {
  const wrong = { id: '', key: `tpk_0123456789ab_${'x'.repeat(43)}` };
  const answers = await Promise.all(Array.from({ length: 40 }, () => by(wrong, '/_admin/shop/versions')));
  const statuses = new Set(answers.map(({ status }) => status));
  expect(statuses).toContain(401);
  const after = await by(wrong, '/_admin/shop/versions');
  expect(after.status).toBe(429);
  expect(Number(after.headers.get('retry-after'))).toBeGreaterThan(0);
  // Others are not held up: the wallet proves itself as before.
  expect((await owner(`${host.url}/_admin/shop/versions`)).status).toBe(200);
});

test('the command makes a key, and the workflow of the README deploys with it, from a folder of its own', async () => {
  // The address of the test before is locked out.
  await host.stop();
  host = await startHost();
  const local = (args: string[], env: Record<string, string> = {}) =>
    turnpike([...args, '--host-url', host.url, '--data', host.data], { cwd: process.cwd(), env });
  const readme = await readFile('README.md', 'utf8');
  const section = readme.slice(readme.indexOf('## Deploying from CI'), readme.indexOf('## Go live'));
  const workflow = /```yaml\n([\s\S]*?)\n```/.exec(section)?.[1] ?? '';
  const runs = [...workflow.matchAll(/^ +- run: (.*)$/gm)].map(([, line]) => line ?? '');
  expect(runs).toEqual(['npm ci', 'npm install --global $TURNPIKE_URL/turnpike.tgz', 'turnpike deploy --yes']);
  const create = /npx turnpike (keys create .*?) +#/.exec(section)?.[1]?.split(/ +/) ?? [];
  expect(create.slice(0, 4)).toEqual(['keys', 'create', '--slugs', 'hello']);

  await folder.sh(
    `cat > package.json <<'E'
{"name":"project","private":true,"type":"module"}
E
cat > turnpike.json <<'E'
{"slug":"hello","entry":"index.js"}
E
echo "export default { fetch: () => new Response('first') }" > index.js
npm install --package-lock-only --no-audit --no-fund`,
  );
  const prefix = path.join(tmpdir(), `tp-workflow-${process.pid}`);
  await mkdir(prefix, { recursive: true });
  const env = (more: Record<string, string>) => ({
    npm_config_prefix: prefix,
    npm_config_audit: 'false',
    npm_config_fund: 'false',
    TURNPIKE_URL: host.url,
    PATH: `${prefix}/bin:${process.env.PATH}`,
    ...more,
  });
  try {
    // A new slug is refused before anything is sent; the owner deploys it once.
    await folder.sh(`${runs[1]}`, env({}));
    const absent = `tpk_0123456789ab_${'x'.repeat(43)}`;
    const refused = await folder.sh(runs[2] ?? '', env({ TURNPIKE_DEPLOY_KEY: absent })).catch((error) => error);
    expect(String(refused.stderr)).toContain('hello is not deployed');
    await folder.sh(`turnpike deploy --yes`, env({ TURNPIKE_DATA: host.data }));
    const made = await local(create);
    expect(made.code, made.stderr).toBe(0);
    const key = made.stdout.trim();
    expect(made.stderr).not.toContain(key);
    await folder.sh(`sed -i s/first/second/ index.js`);
    await folder.sh(runs.join('\n'), env({ TURNPIKE_DEPLOY_KEY: key }));
    expect(await says('hello')).toBe('second');
    // What it was not made for.
    const logs = await folder.sh('turnpike logs', env({ TURNPIKE_DEPLOY_KEY: key })).catch((error) => error);
    expect(logs).toMatchObject({ code: 3, stderr: expect.stringContaining('may logs') });
    const [listed] = (await local(['keys', 'list', '--json'])).json().keys;
    expect(listed).toMatchObject({ name: 'ci', slugs: ['hello'], actions: ['update'], usedAt: expect.any(String) });
    expect((await local(['keys', 'revoke', listed.id])).code).toBe(0);
    const over = await folder.sh(runs[2] ?? '', env({ TURNPIKE_DEPLOY_KEY: key })).catch((error) => error);
    expect(over).toMatchObject({ code: 3, stderr: expect.stringContaining('revoked') });
    // Secrets and data of a deployment, with a key alone.
    await writeFile(path.join(prefix, 'token.txt'), 'a token');
    const more = await local([
      'keys',
      'create',
      '--slugs',
      'hello',
      '--actions',
      'secrets,data,rollback,update',
      '--until',
      '12h',
    ]);
    const all = env({ TURNPIKE_DEPLOY_KEY: more.stdout.trim() });
    await folder.sh(`turnpike secrets set hello TOKEN=@${prefix}/token.txt`, all);
    await folder.sh('turnpike update --kv && turnpike kv put key value', all);
    expect(await folder.sh('turnpike kv get key', all)).toBe('value');
    await folder.sh('turnpike rollback hello 1', all);
    expect(await says('hello')).toBe('first');
    expect(await folder.sh('turnpike versions', all)).toMatch(/\* 4 .* rollback to 1 +key [0-9a-f]{12}\n/);
  } finally {
    await rm(prefix, { recursive: true, force: true });
  }
});
