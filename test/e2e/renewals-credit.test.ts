/** Deployments that renew from prepaid credit, on the whole host: what is taken is what was renewed, through kills. */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { account, balances, deploy, type Fetch, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-command.ts';
import { until } from './support/until.ts';

const DAY = 86_400_000;
const SLUG = 'evergreen';
const PRICE = 200_000;
/** Kills of the host at some point of a renewal. */
const TURNS = Number(process.env.KILL_TURNS ?? 2);

let host: TestHost;
let owner: Fetch;
let credential: string;
let accountId: string;

const payer = () => ({ authorization: `Bearer ${credential}`, 'content-type': 'application/json' });
const place = () => `${host.url}/_admin/renew/${SLUG}/auto`;
const auto = async () => ((await (await owner(place())).json()) as { auto: Record<string, string> | null }).auto;
const expiry = async () =>
  Date.parse(((await (await fetch(`${host.url}/_admin/get/${SLUG}`)).json()) as { expiresAt: string }).expiresAt);
const me = async (what = '') => (await fetch(`${host.url}/pay/me${what}`, { headers: payer() })).json();
/** micro-USD. */
const credit = async () => Number(((await me()) as { balanceMicroUsd: string }).balanceMicroUsd);
const wallet = async () => Number((await balances(host.network, account(host.network, 0).address)).mpp);
const grant = (amountUsd: string) => host.operator('POST', '/pay/grants', { accountId, amountUsd });
const command = (...args: string[]) =>
  turnpike([...args, '--host-url', host.url, '--data', host.data, '--json'], {
    cwd: host.data,
    env: { TURNPIKE_PRIVATE_KEY: host.network.wallets[0]?.privateKey ?? '' },
  });
/** To two days before it expires. */
async function nearlyExpired(): Promise<void> {
  const { text } = await host.operator('GET', '/clock');
  await host.advance((await expiry()) - Date.parse((JSON.parse(text) as { now: string }).now) - 2 * DAY);
}
const renewed = (before: number) => until(async () => (await expiry()) > before || undefined);
/** Another look at what is due. */
const later = () => host.advance(61_000);
const platformIsUp = () =>
  until(
    async () => (await fetch(`${host.url}/pay/healthz`)).ok || undefined,
    () => host.output(),
  );
/** The books of credit and of payments. */
async function assertBooks(): Promise<void> {
  expect(JSON.parse((await host.operator('GET', '/pay/ledger')).text)).toMatchObject({ ok: true });
  const { text } = await host.operator('POST', '/payments/reconcile');
  expect(JSON.parse(text)).toMatchObject({ ok: true, differences: [] });
}

beforeAll(async () => {
  host = await startHost({ builtins: ['pay'] });
  owner = mppFetch(host.network, 0);
  await platformIsUp();
  await deploy(owner, host.url, { slug: SLUG, code: 'export default { fetch: () => new Response("alive") }' });
  const registered = await command('account', 'register');
  ({ accountId } = registered.json());
  ({ credential } = JSON.parse(await readFile(registered.json().file, 'utf8')));
});
afterAll(() => host?.stop());

test('both sides agree: the account by a token, the owner by giving it to the host', async () => {
  const post = (body: unknown) =>
    fetch(`${host.url}/pay/me/renewals`, { method: 'POST', headers: payer(), body: JSON.stringify(body) });
  for (const body of [{}, { slug: SLUG }, { slug: 'A b', mostUsd: '1' }, { slug: SLUG, mostUsd: '-1' }])
    expect((await post(body)).status).toBe(400);
  const { token } = (await (await post({ slug: SLUG, mostUsd: '0.10' })).json()) as { token: string };
  expect((await owner(place(), jsonPut({ credit: token }))).status).toBe(409);
  const { token: other } = (await (await post({ slug: 'another', mostUsd: '1' })).json()) as { token: string };
  expect((await owner(place(), jsonPut({ credit: other }))).status).toBe(404);
  const { token: good } = (await (await post({ slug: SLUG, mostUsd: '0.25' })).json()) as { token: string };
  expect((await owner(place(), jsonPut({ credit: token }))).status).toBe(404);
  expect((await mppFetch(host.network, 1)(place(), jsonPut({ credit: good }))).status).toBe(403);
  expect((await fetch(place(), jsonPut({ credit: good }))).status).toBe(402);
  expect(await auto()).toBeNull();
  const set = await owner(place(), jsonPut({ credit: good }));
  expect([set.status, await set.json()]).toEqual([200, { auto: { account: accountId, amountUsd: '0.25' } }]);
  expect((await fetch(`${host.url}/pay/operator/renewals/charges`, { method: 'POST', headers: payer() })).status).toBe(
    401,
  );
});

test('credit that is short is told, and takes nothing; with credit it renews, once', async () => {
  const before = await expiry();
  const url = 'https://receiver.example.test/hooks';
  await fetch(`${host.url}/pay/me/webhooks`, { method: 'POST', headers: payer(), body: JSON.stringify({ url }) });
  await nearlyExpired();
  await until(async () => (await auto())?.lastFailure);
  expect(await auto()).toMatchObject({ lastFailure: 'the credit does not cover the price' });
  expect(await me('/renewals')).toMatchObject({
    renewals: [{ slug: 'another' }, { slug: SLUG, mostUsd: '0.25', lastFailure: 'funds' }],
  });
  const { events } = (await me('/webhooks/events')) as { events: { type: string }[] };
  expect(events.map(({ type }) => type)).toEqual(['renewal_failed']);
  expect([await expiry(), await credit()]).toEqual([before, 0]);
  await grant('1.00');
  // Agreed to anew, it is tried at once.
  const agreed = await command('account', 'renew', SLUG);
  expect([agreed.code, agreed.stderr]).toEqual([0, '']);
  expect(agreed.json()).toEqual({ auto: { account: accountId, amountUsd: '0.20' } });
  await later();
  await renewed(before);
  for (let n = 0; n < 3; n++) await later();
  expect([await expiry(), await credit()]).toEqual([before + 30 * DAY, 1_000_000 - PRICE]);
  expect(await me()).toMatchObject({ lines: [{ memo: `Renewal of ${SLUG}`, amountUsd: '-0.20' }, {}] });
  await assertBooks();
});

test(`the host is killed ${TURNS} times during a renewal: one charge for one term`, async () => {
  await grant('5.00');
  for (let turn = 0; turn < TURNS; turn++) {
    const [before, had] = [await expiry(), await credit()];
    const moved = nearlyExpired().catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 30 + turn * (120 / TURNS)));
    await host.kill();
    await moved;
    host = await host.restart();
    owner = mppFetch(host.network, 0);
    await platformIsUp();
    if ((await expiry()) === before) await nearlyExpired();
    await later();
    await renewed(before);
    for (let n = 0; n < 2; n++) await later();
    expect([turn, await expiry(), await credit()]).toEqual([turn, before + 30 * DAY, had - PRICE]);
  }
  await assertBooks();
});

test('renewed by hand at the same time, it costs as much as it was renewed', async () => {
  const [before, had, held] = [await expiry(), await credit(), await wallet()];
  await nearlyExpired();
  const byHand = await owner(`${host.url}/_admin/renew/${SLUG}`, { method: 'POST' });
  expect(byHand.status).toBe(200);
  for (let n = 0; n < 3; n++) await later();
  const terms = ((await expiry()) - before) / (30 * DAY);
  await until(async () => had - (await credit()) + held - (await wallet()) === terms * PRICE || undefined);
  expect([1, 2]).toContain(terms);
  await assertBooks();
});

test('one command ends it', async () => {
  expect((await command('account', 'renew', '--list')).json().renewals).toMatchObject([
    { slug: 'another' },
    { slug: SLUG },
  ]);
  const ended = await command('account', 'renew', SLUG, '--off');
  expect([ended.code, ended.json()]).toEqual([0, { slug: SLUG, auto: null }]);
  const [before, had] = [await expiry(), await credit()];
  await nearlyExpired();
  await until(async () => (await auto()) === null || undefined);
  for (let n = 0; n < 2; n++) await later();
  expect([await expiry(), await credit()]).toEqual([before, had]);
});
