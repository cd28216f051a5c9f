/** Only what the platform's gateway signed is believed: replayed, skewed, altered or forged requests are 401. */
import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { MIGRATIONS } from '../../builtin-tenants/deals/src/database/migrations.ts';
import type { Env } from '../../builtin-tenants/deals/src/environment.ts';
import { GatewayKeys, verifyGateway } from '../../builtin-tenants/deals/src/http/gateway-signature.ts';
import { migrate } from '../../builtin-tenants/kit/migrate.ts';
import { type MemoryDatabase, memoryDatabase } from './support/memory-database.ts';
import { COMPONENTS, digestOf, newSigningPair, type Parts, type SigningPair, signRequest } from './support/signing.ts';

const USAGE = '[{"meterSlug":"deal_query","quantity":1}]';

let directory: Server;
/** What the platform publishes now; undefined: it is away. */
let published: object[] | undefined;
let fetches: number;
let appUrl: string;
let db: MemoryDatabase;
let env: Env;
let ours: SigningPair;
let other: SigningPair;

beforeAll(async () => {
  [ours, other] = [await newSigningPair('one'), await newSigningPair('two')];
  directory = createServer((_asked, reply) => {
    fetches++;
    if (published) reply.end(JSON.stringify({ keys: published }));
    else reply.writeHead(503).end();
  });
  await new Promise<void>((resolve) => directory.listen(0, '127.0.0.1', () => resolve()));
  appUrl = `http://127.0.0.1:${(directory.address() as AddressInfo).port}`;
});
afterAll(() => {
  directory.closeAllConnections();
  directory.close();
});
beforeEach(async () => {
  published = [ours.jwk];
  fetches = 0;
  db = memoryDatabase();
  await migrate(db, MIGRATIONS);
  env = { DB: db, APP_URL: appUrl } as unknown as Env;
});
afterEach(() => db.close());

/** A request as the gateway would send it; the tenant sees its path without the prefix. */
async function signed(parts: Partial<Parts> = {}): Promise<Request> {
  const { method, path, headers, body } = await signRequest({ key: ours, appUrl, ...parts });
  return new Request(`${appUrl}${path}`, { method, headers, ...(method === 'GET' ? {} : { body }) });
}

const verify = (request: Request, keys = new GatewayKeys(env)) => verifyGateway(request, env, keys);
const refused = (request: Request | Promise<Request>) =>
  expect(Promise.resolve(request).then((one) => verify(one))).rejects.toMatchObject({ status: 401 });
/** The same request with something of it changed. */
async function altered(change: { method?: string; path?: string; body?: string; headers?: Record<string, string> }) {
  const request = await signed();
  const headers = new Headers(request.headers);
  for (const [name, value] of Object.entries(change.headers ?? {})) headers.set(name, value);
  return new Request(`${appUrl}${change.path ?? '/v1/watches?a=1'}`, {
    method: change.method ?? 'POST',
    headers,
    body: change.body ?? '{"a":1}',
  });
}

test('what the gateway signed is believed: account, request, usage and body', async () => {
  const call = await verify(await signed());
  expect(call).toMatchObject({
    account: 'acc_1',
    requestId: 'req_1',
    usage: [{ meterSlug: 'deal_query', quantity: 1 }],
  });
  expect(new TextDecoder().decode(call.body)).toBe('{"a":1}');
  expect(await verify(await signed({ method: 'GET', body: '', account: 'none', usage: 'none' }))).toMatchObject({
    account: undefined,
    usage: undefined,
  });
});

describe('refused with 401 is', () => {
  test('a call without a signature', async () => {
    await refused(new Request(`${appUrl}/v1/deals`));
    await refused(new Request(`${appUrl}/v1/deals`, { headers: { 'x-pay-account': 'acc_1', 'x-pay-usage': USAGE } }));
    await refused(new Request(`${appUrl}/v1/deals`, { headers: { signature: 'x', 'signature-input': 'y' } }));
  });

  test.each([
    ['the method', { method: 'PUT' }],
    ['the path', { path: '/v1/deals?a=1' }],
    ['the query', { path: '/v1/watches?a=2' }],
    ['the body under a digest that is valid for another', { body: '{"a":2}' }],
    ['the body and its digest', { body: 'x', headers: { 'content-digest': digestOf('x') } }],
    ['the account', { headers: { 'x-pay-account': 'acc_2' } }],
    ['the account, given twice', { headers: { 'x-pay-account': 'acc_1, acc_2' } }],
    ['the usage', { headers: { 'x-pay-usage': '[{"meterSlug":"watch_created","quantity":1}]' } }],
    ['the request’s id', { headers: { 'x-pay-request-id': 'req_2' } }],
  ])('a change of %s', async (_what, change) => {
    await refused(altered(change));
  });

  test('a key that the platform does not publish, also under a known name', async () => {
    await refused(signed({ key: other }));
    await refused(signed({ key: { ...other, kid: ours.kid } }));
  });

  test.each([
    ['another tag', { tag: 'web-bot-auth' }],
    ['a component less', { components: COMPONENTS.slice(0, -1) }],
    ['no component at all', { components: [] }],
    ['components in another order', { components: COMPONENTS.toReversed() }],
    ['a life longer than any forward', { life: 100_000, skew: -400 }],
  ])('a signature with %s', async (_what, parts) => {
    await refused(signed(parts));
  });

  test('a usage that nobody can read, though it is signed', async () => {
    await refused(signed({ usage: 'nonsense' }));
  });
});

describe('clocks', () => {
  test.each([-5, -4, 0, 4, 5])('%i s off are forgiven', async (skew) => {
    expect((await verify(await signed({ skew }))).account).toBe('acc_1');
  });
  test.each([-300, -65, 65, 300])('%i s off are not', async (skew) => {
    await refused(signed({ skew }));
  });
});

describe('a replay', () => {
  test('is refused, in another process on the same database too', async () => {
    const request = await signed();
    const again = [request.clone(), request.clone()] as const;
    await verify(request);
    await refused(again[0]);
    await expect(verify(again[1], new GatewayKeys(env))).rejects.toMatchObject({ status: 401 });
  });

  test('of twenty at once lets one through', async () => {
    const request = await signed();
    const all = await Promise.allSettled(Array.from({ length: 20 }, () => verify(request.clone())));
    expect(all.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });

  test('a request that was refused does not use the nonce up', async () => {
    const nonce = randomUUID();
    const good = await signed({ nonce });
    const bad = new Request(good.clone(), { body: 'other', method: 'POST' });
    await refused(bad);
    expect((await verify(good)).account).toBe('acc_1');
  });

  test('is remembered for longer than the signature lives', async () => {
    await verify(await signed());
    const [row] = db.sql<{ forget_at: number }>('SELECT forget_at FROM nonces');
    expect(row?.forget_at).toBeGreaterThan(Date.now() + 65_000);
  });
});

describe('keys', () => {
  test('in rotation are both good, and one that left the directory is not', async () => {
    published = [ours.jwk, other.jwk];
    const keys = new GatewayKeys(env);
    expect((await verify(await signed(), keys)).account).toBe('acc_1');
    expect((await verify(await signed({ key: other }), keys)).account).toBe('acc_1');
    expect(fetches).toBe(1);
    published = [other.jwk];
    await refused(signed());
  });

  test('that are over, or of another kind, are not taken', async () => {
    published = [
      { ...ours.jwk, exp: Math.floor(Date.now() / 1_000) - 10 },
      { ...other.jwk, crv: 'X25519' },
    ];
    await refused(signed());
    await refused(signed({ key: other }));
  });

  test('unknown ones do not make the directory be asked again and again', async () => {
    const keys = new GatewayKeys(env);
    for (let time = 0; time < 5; time++)
      await expect(verify(await signed({ key: other }), keys)).rejects.toMatchObject({ status: 401 });
    expect(fetches).toBe(1);
  });

  test('that were read while the clock was ahead are read again once it is right', async () => {
    const keys = new GatewayKeys(env);
    vi.setSystemTime(Date.now() + 3_600_000_000);
    await keys.find('one');
    vi.useRealTimers();
    published = [ours.jwk, other.jwk];
    expect((await verify(await signed({ key: other }), keys)).account).toBe('acc_1');
  });

  test('of a platform that is away at the start cannot be had: 503, and nothing is believed', async () => {
    published = undefined;
    await expect(verify(await signed())).rejects.toMatchObject({ status: 503 });
  });
});
