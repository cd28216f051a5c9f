/** The life of a deployment on the real host, with stock clients: deploy, call, update, expire, renew, delete. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  account,
  balances,
  deploy,
  type Fetch,
  jsonPost,
  jsonPut,
  mandateFetch,
  mppFetch,
  x402Fetch,
} from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-here.ts';
import { until } from './support/until.ts';

const DAY = 86_400_000;
const HELLO = (text: string) =>
  `export default { fetch: (req: Request, env: any) => new Response(${JSON.stringify(text)} + (env.NAME ?? '')) }`;

let host: TestHost;
let owner: Fetch;
let other: Fetch;
let x402: Fetch;

beforeAll(async () => {
  host = await startHost();
  owner = mppFetch(host.network, 0);
  other = mppFetch(host.network, 1);
  x402 = x402Fetch(host.network, 2);
});
afterAll(() => host?.stop());

const refused: string[] = [];
const body = async (path: string) => (await fetch(`${host.url}${path}`)).text();

describe('deploying', () => {
  it('works with a stock mppx client, costs exactly 0.20, and the payer is the owner', async () => {
    const before = await balances(host.network, account(host.network, 0).address);
    const meta = await deploy(owner, host.url, { slug: 'first', code: HELLO('hi '), secrets: { NAME: 'Ada' } });
    expect(meta).toMatchObject({ slug: 'first', state: 'active', version: 1 });
    expect(meta.owner).toBe(`did:pkh:eip155:${host.network.chainId}:${account(host.network, 0).address.toLowerCase()}`);
    expect(await body('/first/')).toBe('hi Ada');
    const after = await balances(host.network, account(host.network, 0).address);
    expect(before.mpp - after.mpp).toBe(200_000n);
    expect(after.x402).toBe(before.x402);
  });

  it('works with a stock @x402/fetch client', async () => {
    const before = await balances(host.network, account(host.network, 2).address);
    await deploy(x402, host.url, { slug: 'second', code: HELLO('x402') });
    expect(await body('/second')).toBe('x402');
    expect(before.x402 - (await balances(host.network, account(host.network, 2).address)).x402).toBe(200_000n);
  });

  it('asks for payment first, even for an empty body', async () => {
    const response = await fetch(`${host.url}/_admin/deploy`, { method: 'POST' });
    expect(response.status).toBe(402);
    expect(response.headers.get('www-authenticate')).toMatch(/^Payment /);
    expect(response.headers.get('payment-required')).toBeTruthy();
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(response.headers.get('access-control-expose-headers')?.toLowerCase()).toContain('www-authenticate');
  });

  it.each([
    ['a bad slug', { slug: 'A!', code: HELLO('') }, 400, /slug/],
    ['a reserved slug', { slug: 'docs', code: HELLO('') }, 409, /reserved/],
    ['a taken slug', { slug: 'first', code: HELLO('') }, 409, /taken/],
    ['a syntax error', { slug: 'broken', code: 'export default {\n fetch( }' }, 422, /./],
    [
      'an endless loop at top level',
      { slug: 'broken', code: 'for(;;);\nexport default { fetch() {} }' },
      422,
      /time|loop|long/i,
    ],
    [
      'a throwing top level',
      { slug: 'broken', code: 'throw new Error("no way");\nexport default { fetch() {} }' },
      422,
      /no way/,
    ],
    ['no default export', { slug: 'broken', code: 'export class A {}' }, 422, /default/],
    ['a default without fetch', { slug: 'broken', code: 'export default { get() {} }' }, 422, /fetch/],
    [
      'an import of a host file',
      { slug: 'broken', code: "import x from '/etc/passwd';\nexport default { fetch: () => x }" },
      422,
      /passwd/,
    ],
    ['an unknown field', { slug: 'broken', code: HELLO(''), colour: 'red' }, 400, /colour/],
  ])('refuses %s, and it costs nothing', async (what, request, status, message) => {
    // Refused code makes its payer wait, so each has one that nothing was refused to.
    const wallet = refused.push(what) % host.network.wallets.length;
    const { address } = account(host.network, wallet);
    const before = await balances(host.network, address);
    const response = await mppFetch(host.network, wallet)(`${host.url}/_admin/deploy`, jsonPost(request));
    const problem = (await response.json()) as { detail: string; errors?: { file?: string; line?: number }[] };
    expect(response.status).toBe(status);
    expect(JSON.stringify(problem)).toMatch(message);
    expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    expect(await balances(host.network, address)).toEqual(before);
    if (what === 'a syntax error') expect(problem.errors?.[0]).toMatchObject({ line: 2 });
    expect((await fetch(`${host.url}/broken/`)).status).toBe(404);
  });

  it('lets one of two racing payers win and leaves the other its money', async () => {
    const addresses = [0, 1].map((index) => account(host.network, index).address);
    const before = await Promise.all(addresses.map((address) => balances(host.network, address)));
    const answers = await Promise.all(
      [owner, other].map((pay) => pay(`${host.url}/_admin/deploy`, jsonPost({ slug: 'race', code: HELLO('won') }))),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([201, 409]);
    const after = await Promise.all(addresses.map((address) => balances(host.network, address)));
    const paid = before.map(({ mpp }, index) => mpp - (after[index]?.mpp ?? 0n));
    expect(paid[answers.findIndex(({ status }) => status === 201)]).toBe(200_000n);
    expect(paid[answers.findIndex(({ status }) => status === 409)]).toBe(0n);
    expect(await body('/race/')).toBe('won');
  });
});

describe('updating', () => {
  it('replaces code and secrets for the owner', async () => {
    const response = await owner(
      `${host.url}/_admin/code/first`,
      jsonPut({ code: HELLO('bye '), secrets: { NAME: 'Eve' } }),
    );
    expect(response.status).toBe(200);
    expect(await response.json()).toMatchObject({ version: 2 });
    expect(await body('/first/')).toBe('bye Eve');
  });

  it('changes one secret and keeps the code', async () => {
    expect((await owner(`${host.url}/_admin/code/first`, jsonPut({ secretChanges: { NAME: 'Bob' } }))).status).toBe(
      200,
    );
    expect(await body('/first/')).toBe('bye Bob');
  });

  it('refuses another wallet and changes nothing', async () => {
    const response = await other(`${host.url}/_admin/code/first`, jsonPut({ code: HELLO('stolen') }));
    expect(response.status).toBe(403);
    const { code, detail } = (await response.json()) as { code: string; detail: string };
    const [owning = '', asking = ''] = host.network.wallets.map(({ address }) => address.toLowerCase());
    expect({ code, detail }).toEqual({ code: 'not_owner', detail: expect.stringMatching(`${owning}.*${asking}`) });
    expect(await body('/first/')).toBe('bye Bob');
  });

  it('keeps the old version in service when the new one is refused', async () => {
    const response = await owner(`${host.url}/_admin/code/first`, jsonPut({ code: 'export default { fetch( }' }));
    expect(response.status).toBe(422);
    expect(await body('/first/')).toBe('bye Bob');
  });

  it('rolls back to a version', async () => {
    const listed = (await (await owner(`${host.url}/_admin/first/versions`)).json()) as {
      current: number;
      versions: unknown[];
    };
    expect(listed.versions).toHaveLength(2);
    const response = await owner(`${host.url}/_admin/first/rollback`, jsonPost({ version: 1 }));
    expect(response.status).toBe(200);
    expect(await body('/first/')).toBe('hi Bob');
  });

  it('takes an owner token for a series of calls, for that slug alone', async () => {
    const issued = (await (await owner(`${host.url}/_admin/session/first`, { method: 'POST' })).json()) as {
      token: string;
    };
    const headers = { authorization: `Bearer ${issued.token}` };
    expect((await fetch(`${host.url}/_admin/first/usage`, { headers })).status).toBe(200);
    expect((await fetch(`${host.url}/_admin/second/usage`, { headers })).status).toBe(401);
    expect((await fetch(`${host.url}/_admin/first/usage`, { headers: { authorization: 'Bearer x.y' } })).status).toBe(
      401,
    );
  });
});

describe('traffic', () => {
  it('reaches the handler with its own path, method, query and body', async () => {
    const code = `export default { async fetch(req) {
      const url = new URL(req.url);
      return Response.json({ method: req.method, path: url.pathname + url.search, host: url.host, body: await req.text(),
        prefix: req.headers.get('x-forwarded-prefix'), payer: req.headers.get('x-payer') });
    } }`;
    await deploy(owner, host.url, { slug: 'echo', code });
    for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']) {
      const init = method === 'GET' || method === 'OPTIONS' ? { method } : { method, body: 'x' };
      const answer = (await (
        await fetch(`${host.url}/echo/a/b%20c?d=1`, { ...init, headers: { 'x-payer': 'forged' } })
      ).json()) as Record<string, unknown>;
      expect(answer).toMatchObject({ method, path: '/a/b%20c?d=1', prefix: '/echo', payer: null });
    }
    expect((await fetch(`${host.url}/echo`, { method: 'HEAD' })).status).toBe(200);
  });

  it('answers 404 for slugs that do not exist', async () => {
    const response = await fetch(`${host.url}/nobody-here/`);
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({ code: 'not_found' });
  });
});

describe('expiry', () => {
  it('expires to the second, asks its owner at the very URL, and lets the paid request through', async () => {
    await deploy(owner, host.url, { slug: 'mayfly', code: HELLO('alive') });
    expect(await body('/mayfly/')).toBe('alive');
    await host.advance(30 * DAY + 1_000);
    const expired = await until(async () => {
      const response = await fetch(`${host.url}/mayfly/`);
      return response.status === 402 ? response : undefined;
    });
    expect(expired.headers.get('www-authenticate')).toMatch(/^Payment /);
    expect(((await (await fetch(`${host.url}/_admin/get/mayfly`)).json()) as { state: string }).state).toBe('expired');

    const stranger = account(host.network, 1).address;
    const before = await balances(host.network, stranger);
    expect((await other(`${host.url}/mayfly/`)).status).toBe(403);
    expect(await balances(host.network, stranger)).toEqual(before);

    const renewed = await owner(`${host.url}/mayfly/`);
    expect(renewed.status).toBe(200);
    expect(await renewed.text()).toBe('alive');
    expect(await body('/mayfly/')).toBe('alive');
  });

  it('renews from the later of now and the present expiry', async () => {
    const before = (await (await fetch(`${host.url}/_admin/get/mayfly`)).json()) as { expiresAt: string };
    // A body is not asked for, and does not matter.
    const response = await owner(`${host.url}/_admin/renew/mayfly`, { method: 'POST', body: '{…}' });
    expect(response.status).toBe(200);
    const after = (await response.json()) as { expiresAt: string };
    expect(Date.parse(after.expiresAt) - Date.parse(before.expiresAt)).toBe(30 * DAY);
  });
});

describe('renewing what is not there', () => {
  it('asks for payment first, as everywhere, and then refuses it uncharged', async () => {
    const { address } = account(host.network, 0);
    const before = await balances(host.network, address);
    const url = `${host.url}/_admin/renew/nothing-here`;
    expect((await fetch(url, { method: 'POST' })).status).toBe(402);
    expect((await owner(url, { method: 'POST' })).status).toBe(404);
    expect(await balances(host.network, address)).toEqual(before);
    // As indexers call what they know by its description alone.
    for (const placeholder of ['{slug}', ':slug']) {
      const described = `${host.url}/_admin/renew/${placeholder}`;
      expect((await fetch(described, { method: 'POST' })).status).toBe(402);
      expect((await owner(described, { method: 'POST' })).status).toBe(404);
    }
    expect((await fetch(`${host.url}/_admin/renew/%7Bslug`, { method: 'POST' })).status).toBe(404);
    expect(await balances(host.network, address)).toEqual(before);
  });
});

describe('deleting', () => {
  it('answers 410 at once, keeps the slug for its former owner, and purges after the grace period', async () => {
    expect((await other(`${host.url}/_admin/mayfly`, { method: 'DELETE' })).status).toBe(403);
    expect((await owner(`${host.url}/_admin/mayfly`, { method: 'DELETE' })).status).toBe(200);
    expect((await fetch(`${host.url}/mayfly/`)).status).toBe(410);
    const taken = await other(`${host.url}/_admin/deploy`, jsonPost({ slug: 'mayfly', code: HELLO('x') }));
    expect(taken.status).toBe(409);
    await deploy(owner, host.url, { slug: 'mayfly', code: HELLO('again') });
    expect(await body('/mayfly/')).toBe('again');
  });
});

describe('answers of the host itself', () => {
  it.each([
    ['/', 'text/html', /Turnpike/],
    ['/docs', 'text/html', /_admin\/deploy/],
    ['/llms.txt', 'text/plain', /WWW-Authenticate/],
    ['/openapi.json', 'application/json', /x-payment-info/],
    ['/healthz', 'application/json', /"status":"ok"/],
  ])('%s', async (path, type, text) => {
    const response = await fetch(`${host.url}${path}`);
    expect(response.status).toBe(200);
    expect(response.headers.get('content-type')).toContain(type);
    expect(await response.text()).toMatch(text);
  });

  it('says which methods an endpoint takes', async () => {
    const response = await fetch(`${host.url}/_admin/deploy`);
    expect(response.status).toBe(405);
    expect(response.headers.get('allow')).toBe('POST');
  });
});

describe('a renewal that is paid at the URL of an expired slug', () => {
  it('pays for itself alone: not for a price of the path, and not for what is asked when it has expired again', async () => {
    const paidRoutes = [{ method: 'GET', path: '/dear', price: '90.00' }];
    await deploy(owner, host.url, { slug: 'dayfly', code: HELLO('alive'), paidRoutes });
    const expire = async () => {
      await host.advance(31 * DAY);
      await until(async () => ((await fetch(`${host.url}/dayfly/`)).status === 402 ? true : undefined));
    };
    /** What a stock client pays for the URL with, and does not send. */
    const payment = async (url: string): Promise<Record<string, string>> => {
      const headers: Record<string, string> = {};
      const sender = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
        const asked = new Request(input, init);
        const authorization = asked.headers.get('authorization');
        if (authorization === null) return fetch(asked);
        headers.authorization = authorization;
        return new Response('not sent');
      };
      await mppFetch(host.network, 0, sender as typeof fetch)(url);
      return headers;
    };
    await expire();
    const dear = await fetch(`${host.url}/dayfly/dear`, { headers: await payment(`${host.url}/dayfly/dear`) });
    expect([dear.status, await dear.json()]).toMatchObject([402, { price: { amount: '90.00' } }]);
    expect(dear.headers.has('payment-receipt')).toBe(true);
    expect(await body('/dayfly/')).toBe('alive');
    await expire();
    const headers = await payment(`${host.url}/dayfly/`);
    expect(await (await fetch(`${host.url}/dayfly/`, { headers })).text()).toBe('alive');
    await expire();
    const again = await fetch(`${host.url}/dayfly/`, { headers });
    expect([again.status, await again.text()]).toEqual([402, expect.not.stringContaining('alive')]);
  });
});

describe('a deployment that renews by itself', () => {
  const PRICE = 200_000n;
  const SLUG = 'evergreen';
  const place = () => `${host.url}/_admin/renew/${SLUG}/auto`;
  const auto = async () => (await (await owner(place())).json()) as { auto: Record<string, string> | null };
  const expiry = async () =>
    Date.parse(((await (await fetch(`${host.url}/_admin/get/${SLUG}`)).json()) as { expiresAt: string }).expiresAt);
  const held = async () => (await balances(host.network, account(host.network, 0).address)).mpp;
  const renew = (...args: string[]) =>
    turnpike(['renew', SLUG, ...args, '--host-url', host.url, '--data', host.data, '--json', '--max-pay', '0.20'], {
      cwd: host.data,
      env: { TURNPIKE_PRIVATE_KEY: host.network.wallets[0]?.privateKey ?? '' },
    });
  /** To two days before it expires. */
  const nearlyExpired = async () => {
    const { text } = await host.operator('GET', '/clock');
    await host.advance((await expiry()) - Date.parse((JSON.parse(text) as { now: string }).now) - 2 * DAY);
  };
  const renewed = (before: number) => until(async () => ((await expiry()) > before ? true : undefined));
  /** Another look at what is due. */
  const later = () => host.advance(61_000);

  it('is what the owner’s wallet signs, and nobody else’s; nothing is paid then', async () => {
    await deploy(owner, host.url, { slug: SLUG, code: HELLO('still here') });
    const before = await held();
    expect((await mandateFetch(host.network, 1)(place(), { method: 'POST' })).status).toBe(403);
    expect(await auto()).toEqual({ auto: null });
    expect((await fetch(place(), { method: 'DELETE' })).status).toBe(402);
    for (const until of ['2020-01-01T00:00:00Z', '2999-01-01T00:00:00Z', 'tomorrow'])
      expect((await fetch(place(), jsonPost({ until }))).status).toBe(400);
    expect(await renew('--until', '2099-01-01')).toMatchObject({ code: 2, stdout: expect.stringContaining('--auto') });
    const signed = await renew('--auto');
    expect([signed.code, signed.stderr]).toEqual([0, '']);
    expect(signed.json().auto).toMatchObject({
      wallet: account(host.network, 0).address.toLowerCase(),
      amountUsd: '0.20',
    });
    expect(await auto()).toEqual(signed.json());
    expect(await held()).toBe(before);
  });

  it('is renewed once before it expires, also when the host is killed meanwhile', async () => {
    const [before, wallet] = [await expiry(), await held()];
    await nearlyExpired();
    await host.kill();
    host = await host.restart();
    owner = mppFetch(host.network, 0);
    await later();
    await renewed(before);
    expect(await expiry()).toBe(before + 30 * DAY);
    for (let n = 0; n < 3; n++) await later();
    expect(await expiry()).toBe(before + 30 * DAY);
    expect(wallet - (await held())).toBe(PRICE);
    expect(await body(`/${SLUG}/`)).toBe('still here');
    const { text } = await host.operator('POST', '/payments/reconcile');
    expect(JSON.parse(text)).toMatchObject({ ok: true, differences: [] });
  });

  it('says why it could not renew, and goes on trying', async () => {
    // The clock was moved by a month, that of the chain was not: the key has nothing left in its period.
    const [before, wallet] = [await expiry(), await held()];
    await nearlyExpired();
    await until(async () => ((await auto()).auto?.lastFailure ? true : undefined));
    expect((await auto()).auto?.lastFailure).toContain('what is left of the mandate');
    expect([await expiry(), await held()]).toEqual([before, wallet]);
  });

  it('renewed by hand at the same time, it is paid as often as it was renewed', async () => {
    const [before, wallet] = [await expiry(), await held()];
    const signing = mandateFetch(host.network, 0)(place(), { method: 'POST' });
    const byHand = owner(`${host.url}/_admin/renew/${SLUG}`, { method: 'POST' });
    await Promise.all([signing, byHand, later()]);
    await renewed(before);
    for (let n = 0; n < 3; n++) await later();
    const terms = ((await expiry()) - before) / (30 * DAY);
    await until(async () => (wallet - (await held()) === BigInt(terms) * PRICE ? true : undefined));
    expect([1, 2]).toContain(terms);
  });

  it('is not renewed any more from the moment that the owner says so', async () => {
    const ended = await renew('--no-auto');
    expect([ended.code, ended.json()]).toEqual([0, { auto: null }]);
    const [before, wallet] = [await expiry(), await held()];
    await nearlyExpired();
    for (let n = 0; n < 3; n++) await later();
    expect([await expiry(), await held()]).toEqual([before, wallet]);
  });
});
