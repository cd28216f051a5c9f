/** Two nodes of one host over a real PostgreSQL: what one is told, the other has; money moves once; one dies, the other serves. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Address } from '@solana/kit';
import { PERMIT2_ADDRESS } from '@x402/evm';
import { type Abi, type Hex, parseAbi } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { waitForTransactionReceipt, writeContract } from 'viem/actions';
import { Account } from 'viem/tempo';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { postgresClient } from '../../host/registry/postgres/client.ts';
import { commandOf, processTree } from '../bench/processes.ts';
import { authorizeKey } from './support/access-keys.ts';
import {
  account,
  chargeFetch,
  deploy,
  type Fetch,
  type Headers,
  jsonPost,
  jsonPut,
  paymentFor,
  signInFetch,
  x402Fetch,
} from './support/callers.ts';
import { ChannelPayer } from './support/channel-payer.ts';
import { Cluster, clusterPrograms } from './support/cluster.ts';
import type { LocalNetworkFile, TestHost } from './support/host.ts';
import { mppBalance, x402Balance } from './support/local-network.ts';
import { available } from './support/programs.ts';
import { sandboxesMade } from './support/sandboxes-made.ts';
import { fillFeePayer, type SolanaNode, solanaClient, solanaFlags, startSolanaNode } from './support/solana-node.ts';
import { until } from './support/until.ts';

const UPDATES = 4;
/** Of callers that only have to be there all the time. */
const BETWEEN_CALLS_MS = 10;
const CREDENTIALS = 10;
const VOUCHERS = 3;
const ON_SOLANA = 4;
const CLAIMS = 3;
const MINUTE_MS = 60_000;
const PRICE = 10_000n;
interface LogLine {
  id: string;
  kind: string;
  text: string;
  node: string;
}

const spentOf = (answer: Response): string =>
  JSON.parse(Buffer.from(answer.headers.get('payment-receipt') ?? '', 'base64url').toString()).spent;

const HELLO = (text: string) =>
  `export default { fetch: (req: Request, env: any) => new Response(${JSON.stringify(text)} + (env.NAME ?? '')) }`;

/** Works until it is told to end, and says how often it was asked to. */
const WAITS = `export default { async fetch(request, env) {
  const { pathname, search } = new URL(request.url);
  if (!pathname.endsWith('/slow')) return new Response(String(await env.STORE.put('end' + search, 'x')));
  await env.STORE.put('call' + search + crypto.randomUUID(), 'x');
  while (!(await env.STORE.get('end' + search))) await scheduler.wait(50);
  return new Response(String((await env.STORE.list({ prefix: 'call' + search })).keys.length));
} }`;

describe.skipIf(!clusterPrograms())('two nodes', () => {
  let cluster: Cluster;
  let a: TestHost;
  let b: TestHost;
  let payAt: (host: TestHost) => Fetch;
  let proveAt: (host: TestHost) => Fetch;
  let solana: SolanaNode;
  let seller: Address;

  beforeAll(async () => {
    [cluster, solana] = await Promise.all([Cluster.start(), startSolanaNode()]);
    ({ address: seller } = await solana.wallet(0n));
    const flags = solanaFlags(solana, seller);
    [a, b] = await Promise.all([
      cluster.node('a', { ...flags, ...cluster.mpp }),
      cluster.node('b', { ...flags, ...cluster.mpp }),
    ]);
    payAt = payerAt(cluster.network, 0);
    proveAt = (host) =>
      signInFetch(
        cluster.network,
        0,
        cluster.via(() => host),
      );
  });
  afterAll(() => Promise.all([cluster?.stop(), solana?.close()]));

  const payerAt =
    (network: LocalNetworkFile, wallet: number) =>
    (host: TestHost): Fetch =>
      x402Fetch(
        network,
        wallet,
        cluster.via(() => host),
      );

  /** A wallet calls the token's contract. */
  async function onToken(wallet: number, functionName: 'transfer' | 'approve', args: [Hex, bigint]): Promise<void> {
    const from = account(cluster.network, wallet);
    const { x402 } = cluster.chain;
    const hash = await writeContract(x402.getClient(from) as never, {
      ...{ account: from, chain: null, address: x402.token, functionName, args },
      abi: parseAbi([`function ${functionName}(address, uint256) returns (bool)`]) as Abi,
    });
    await waitForTransactionReceipt(x402.getClient() as never, { hash });
  }

  /** A client of a new wallet that holds so much. */
  async function walletWith(amount: bigint): Promise<(host: TestHost) => Fetch> {
    const privateKey = generatePrivateKey();
    const { address } = privateKeyToAccount(privateKey);
    await onToken(4, 'transfer', [address, amount]);
    return payerAt({ ...cluster.network, wallets: [{ address, privateKey }] }, 0);
  }

  /** A client of a key that may spend half as much again as the price. */
  async function keyOfWallet(): Promise<(host: TestHost) => Fetch> {
    const { address, privateKey } = cluster.network.wallets[5] as { address: Hex; privateKey: Hex };
    const key = Account.fromSecp256k1(generatePrivateKey(), { access: address });
    const { currency, getClient } = cluster.chain.mpp;
    const client = getClient(Account.fromSecp256k1(privateKey) as never);
    await authorizeKey(client as never, { token: currency, wallet: address, key, limit: (PRICE * 3n) / 2n });
    return (host) =>
      chargeFetch(
        key,
        () => getClient(),
        cluster.via(() => host),
      );
  }

  /** A client of a wallet that has let Permit2 spend half as much again as the price. */
  async function permitting(): Promise<(host: TestHost) => Fetch> {
    await onToken(5, 'approve', [PERMIT2_ADDRESS as Hex, (PRICE * 3n) / 2n]);
    return payerAt(cluster.network, 5);
  }

  const text = async (host: TestHost, path: string) => (await fetch(`${host.url}${path}`)).text();
  async function update(host: TestHost, slug: string, body: Record<string, unknown>): Promise<void> {
    const answer = await proveAt(host)(`${cluster.url}/_admin/code/${slug}`, jsonPut(body));
    expect(answer.status, await answer.text()).toBe(200);
  }
  async function rows(sql: string) {
    const client = postgresClient(cluster.database);
    try {
      return (await client.execute(sql)).rows;
    } finally {
      await client.end();
    }
  }

  it('a deploy on one answers on the other before its own answer is read', async () => {
    await deploy(payAt(a), cluster.url, { slug: 'first', code: HELLO('hi '), secrets: { NAME: 'Ada' } });
    expect([await text(b, '/first/'), await text(a, '/first/')]).toEqual(['hi Ada', 'hi Ada']);
  });

  it('updates by both under load fail no request, and each is on both nodes when it is answered', async () => {
    const stop = new AbortController();
    const failed: string[] = [];
    let served = 0;
    const load = [a, b, a, b].map(async (host) => {
      while (!stop.signal.aborted) {
        const answer = await fetch(`${host.url}/first/`);
        const said = await answer.text();
        if (answer.status !== 200) failed.push(`${answer.status} ${said}`);
        served += 1;
        await delay(BETWEEN_CALLS_MS);
      }
    });
    for (let at = 1; at <= UPDATES; at++) {
      const node = at % 2 ? a : b;
      const change = () => update(node, 'first', { code: HELLO(`version ${at} of `) });
      // The one in which the code is probed takes over, at the node that is asked.
      expect(await sandboxesMade(node.data, 'first', change)).toBe(1);
      const said = `version ${at} of Ada`;
      expect(await Promise.all([text(a, '/first/'), text(b, '/first/')])).toEqual([said, said]);
    }
    stop.abort();
    await Promise.all(load);
    expect(failed).toEqual([]);
    expect(served).toBeGreaterThan(UPDATES);
  });

  it('a secret that is set at one is sealed by a new key, and opened by the other', async () => {
    await update(b, 'first', { secretChanges: { NAME: 'Grace' } });
    const rotated = await a.operator('POST', '/secrets/rotate');
    expect(rotated.status, rotated.text).toBe(200);
    await update(b, 'first', { secretChanges: { MORE: 'x' } });
    expect(await text(a, '/first/')).toBe(`version ${UPDATES} of Grace`);
    expect(await text(b, '/first/')).toBe(`version ${UPDATES} of Grace`);
  });

  it('a range that is blocked at one is refused by the other, and let in again', async () => {
    await a.operator('POST', '/blocks', { subject: '127.0.0.0/8' });
    expect((await fetch(`${b.url}/first/`)).status).toBe(403);
    await b.operator('DELETE', `/blocks/${encodeURIComponent('127.0.0.0/8')}`);
    expect((await fetch(`${a.url}/first/`)).status).toBe(200);
  });

  /** Shows a credential, or two of one key, at the same moment: one is sold; who is second waits, or hears that the other is at it. */
  async function atBoth(path: string, atA: Headers, atB = atA): Promise<void> {
    const ask = (host: TestHost, headers: Headers) => cluster.via(() => host)(`${cluster.url}${path}`, { headers });
    const answers = await Promise.all([ask(a, atA), ask(b, atB)]);
    const codes = await Promise.all(
      answers.map(async (one) => {
        if (one.status === 200) return 'sold';
        const { code, detail } = (await one.json()) as { code: string; detail: string };
        return ['in_progress', 'payment_pending'].includes(code) ? 'at work' : `${code}: ${detail}`;
      }),
    );
    expect(codes, codes.join()).toContain('sold');
    expect(['sold', 'at work']).toEqual(expect.arrayContaining(codes));
    // Whoever lost the answer gets it of either.
    for (const again of [await ask(b, atA), await ask(a, atB)]) {
      expect([again.status, await again.text()]).toEqual([200, 'sold']);
      expect(again.headers.get('x-payment-replayed')).toBe('1');
    }
  }

  it('a credential, or an Idempotency-Key, that is shown to both at once is charged once', async () => {
    const paidRoutes = [{ method: 'GET', path: '/paid', price: '0.01', description: 'one', solana: seller }];
    await deploy(payAt(b), cluster.url, { slug: 'shop', code: HELLO('sold'), paidRoutes });
    const url = `${cluster.url}/shop/paid`;
    const payer = account(cluster.network, 1).address;
    const before = await x402Balance(cluster.chain, payer);
    for (let at = 0; at < CREDENTIALS; at++) {
      const payment = (index: number) => {
        const via = (fetch: typeof globalThis.fetch) => cluster.via(() => (index % 2 ? a : b), fetch);
        return paymentFor(url, (fetch) => x402Fetch(cluster.network, 1, via(fetch)) as typeof fetch);
      };
      // Every other time each has a payment of its own, under one Idempotency-Key.
      const key = { 'idempotency-key': `both-at-once-${at}` };
      if (at % 2)
        await atBoth('/shop/paid', { ...(await payment(at)), ...key }, { ...(await payment(at + 1)), ...key });
      else await atBoth('/shop/paid', await payment(at));
    }
    expect(before - (await x402Balance(cluster.chain, payer))).toBe(BigInt(CREDENTIALS) * PRICE);
    await fillFeePayer(solana, b);
    const paying = await solana.wallet(BigInt(ON_SOLANA) * PRICE);
    for (let at = 0; at < ON_SOLANA; at++) {
      const via = (fetch: typeof globalThis.fetch) => cluster.via(() => (at % 2 ? a : b), fetch);
      await atBoth('/shop/paid', await paymentFor(url, (fetch) => solanaClient(solana, paying, via(fetch)).fetch));
    }
    expect(await solana.held(seller)).toBe(BigInt(ON_SOLANA) * PRICE);
    const [books] = await rows(
      `SELECT count(*) AS count, sum(charged) AS charged FROM payments
        WHERE slug = 'shop' AND kind = 'route' AND state = 'answered'`,
    );
    const sold = CREDENTIALS + ON_SOLANA;
    expect([books?.count, books?.charged]).toEqual([sold, sold * Number(PRICE)]);
  });

  it('a session’s channel at both at once: a voucher serves one call, and books, receipts and chain agree', async () => {
    const code = 'export default { fetch: () => new Response(crypto.randomUUID()) }';
    const paidRoutes = [{ method: 'GET', path: '/look', price: '0.05', mode: 'metered' }];
    await deploy(payAt(a), cluster.url, { slug: 'metered', code, paidRoutes });
    const url = `${cluster.url}/metered/look`;
    const wallet = account(cluster.network, 4).address;
    const before = await mppBalance(cluster.chain, wallet);
    const sold = new Set<string>();
    const spent: string[] = [];
    /** Shows a credential each, at the same moment. @returns how many calls were served */
    const show = async (atA: Headers, atB: Headers) => {
      const shown = [
        [a, atA],
        [b, atB],
      ] as const;
      const answers = await Promise.all(shown.map(([host, headers]) => cluster.via(() => host)(url, { headers })));
      const served = await Promise.all(
        answers.map(async (answer) => {
          const said = await answer.text();
          const isServed = answer.status === 200 && !sold.has(said);
          expect([200, 402, 409], said).toContain(answer.status);
          if (isServed) spent.push(spentOf(answer));
          if (answer.status === 200) sold.add(said);
          return isServed;
        }),
      );
      return served.filter(Boolean).length;
    };
    const payer = new ChannelPayer(
      cluster.network,
      4,
      url,
      cluster.via(() => b),
    );
    const opening = await payer.open();
    expect(await show(opening, opening)).toBe(1);
    let calls = 1;
    const next = () => payer.voucher(++calls * 50_000);
    for (let at = 0; at < VOUCHERS; at++) {
      const voucher = await next();
      expect(await show(voucher, voucher)).toBe(1);
      // By other challenges.
      const again = [await payer.voucher(calls * 50_000), await payer.voucher(calls * 50_000)] as const;
      expect(await show(...again)).toBe(0);
      const [first, second] = [await next(), await next()];
      expect(await show(...(at % 2 ? ([second, first] as const) : ([first, second] as const)))).toBe(2);
    }
    const inBoth = async (headers: Headers) =>
      Promise.all([a, b].map((host) => cluster.via(() => host)(url, { headers })));
    expect((await inBoth(await payer.topUp(200_000))).map(({ status }) => status)).toEqual([204, 204]);
    const closed = await inBoth(await payer.close(calls * 50_000));
    expect(closed.map((answer) => [answer.status, spentOf(answer)])).toEqual(
      Array.from({ length: 2 }, () => [204, String(calls * 50_000)]),
    );
    expect(spent.map(Number).toSorted((x, y) => x - y)).toEqual(
      Array.from({ length: calls }, (_, at) => (at + 1) * 50_000),
    );
    expect(before - (await mppBalance(cluster.chain, wallet))).toBe(BigInt(calls) * 50_000n);
    const [channel] = await rows(
      `SELECT state, deposit, captured, settled FROM payment_channels WHERE id = '${payer.id}'`,
    );
    expect(channel).toMatchObject({
      state: 'closed',
      deposit: 1_200_000,
      captured: calls * 50_000,
      settled: calls * 50_000,
    });
  });

  /** Who may spend enough for one call, whichever node is asked, and why the others are refused. */
  const LIMITED = [
    {
      ...{ of: 'a wallet that has money for one', slug: 'waits', mode: 'fixed' },
      ...{ payer: () => walletWith(PRICE), why: /^The wallet holds 0\.01 USD/ },
    },
    {
      ...{ of: 'a key that may spend enough for one', slug: 'waits-for-key', mode: 'fixed' },
      ...{ payer: keyOfWallet, why: /may spend 0\.015 USD/ },
    },
    {
      ...{ of: 'a wallet that has let Permit2 spend enough for one', slug: 'waits-for-permit', mode: 'metered' },
      ...{ payer: permitting, why: /^Permit2 may spend 0\.015 USD/ },
    },
  ];

  it.each(LIMITED)('eight calls at once of $of are worked for once', async ({ slug, mode, payer, why }) => {
    const bindings = { kv: true };
    const paidRoutes = [{ method: 'GET', path: '/slow', price: '0.01', mode, description: 'one' }];
    await deploy(payAt(b), cluster.url, { slug, code: WAITS, bindings, paidRoutes });
    const poor = await payer();
    const answers: [number, string][] = [];
    const calls = Array.from({ length: 8 }, async (_, at) => {
      const answer = await poor(at % 2 ? a : b)(`${cluster.url}/${slug}/slow?first`);
      const said = await answer.text();
      answers.push([answer.status, answer.status === 402 ? JSON.parse(said).detail : said]);
      if (answers.length === 7) await fetch(`${b.url}/${slug}/?first`);
    });
    await Promise.all(calls);
    const refused = answers.slice(0, 7);
    expect(refused).toEqual(refused.map(() => [402, expect.stringMatching(why)]));
    for (const [, detail] of refused) expect(detail).toContain('are promised to calls');
    // How often it was worked for.
    expect(answers[7]).toEqual([200, '1']);
  });

  it('a slug that both are asked for at once is one payer’s, and costs the other nothing', async () => {
    const payers = [2, 3].map((index) => account(cluster.network, index).address);
    const held = () => Promise.all(payers.map((payer) => x402Balance(cluster.chain, payer)));
    for (let at = 0; at < CLAIMS; at++) {
      const before = await held();
      const answers = await Promise.all(
        [a, b].map((host, index) =>
          x402Fetch(
            cluster.network,
            2 + index,
            cluster.via(() => host),
          )(`${cluster.url}/_admin/deploy`, jsonPost({ slug: `claimed-${at}`, code: HELLO(`${index}`) })),
        ),
      );
      const won = answers.map(({ status }) => status === 201);
      expect(won.filter((one) => one).length, answers.map(({ status }) => status).join()).toBe(1);
      const paid = (await held()).map((now, index) => (before[index] ?? 0n) - now);
      expect(paid).toEqual(won.map((one) => (one ? 200_000n : 0n)));
      expect(await text(a, `/claimed-${at}/`)).toBe(`${won.indexOf(true)}`);
    }
  });

  const atConsole = async (host: TestHost, path: string, cookie: string, form?: Record<string, string>) => {
    const origin = `http://127.0.0.1:${host.adminPort}`;
    const answer = await fetch(`${origin}/console${path}`, {
      redirect: 'manual',
      headers: { origin, cookie },
      ...(form ? { method: 'POST', body: new URLSearchParams(form) } : {}),
    });
    const given = answer.headers.get('set-cookie')?.split(';')[0] ?? '';
    return { status: answer.status, cookie: given, text: await answer.text() };
  };
  /** By a link of the other node. */
  async function logIn(host: TestHost): Promise<{ cookie: string; code: string }> {
    const { json } = await (host === a ? b : a).operator('POST', '/console-links', {});
    const code = new URL((json as { url: string }).url).hash.slice(1);
    return { ...(await atConsole(host, '/log-in', '', { token: code })), code };
  }
  const consoles = (cookie: string) =>
    Promise.all([a, b].map(async (host) => (await atConsole(host, '', cookie)).status));

  it('the operator logs in at one node by a link of the other, once, and is logged out at both', async () => {
    const { cookie, code } = await logIn(a);
    expect((await atConsole(b, '/log-in', '', { token: code })).status).toBe(401);
    const { text, cookie: renewed } = await atConsole(b, '', cookie);
    const csrf = /name="csrf" value="([^"]+)"/.exec(text)?.[1] ?? '';
    expect([await consoles(cookie), await consoles(renewed)]).toEqual([
      [200, 200],
      [200, 200],
    ]);
    expect((await atConsole(b, '/log-out', cookie, { csrf })).status).toBe(303);
    expect([await consoles(cookie), await consoles(renewed)]).toEqual([
      [303, 303],
      [303, 303],
    ]);
  });

  it('a PostgreSQL that is killed and started again stops no caller, and changes go on', async () => {
    const { cookie } = await logIn(b);
    await cluster.postgres.kill();
    // Nobody can tell whether it was logged out.
    expect(await consoles(cookie)).toEqual([503, 503]);
    const without = await Promise.all([a, b].map((host) => fetch(`${host.url}/first/`)));
    expect(without.map(({ status }) => status)).toEqual([200, 200]);
    await cluster.postgres.start();
    await until(async () => {
      const answer = await proveAt(b)(`${cluster.url}/_admin/code/first`, jsonPut({ code: HELLO('again ') })).catch(
        () => undefined,
      );
      return answer?.status === 200;
    });
    expect(await Promise.all([text(a, '/first/'), text(b, '/first/')])).toEqual(['again Grace', 'again Grace']);
    expect(await consoles(cookie)).toEqual([200, 200]);
  });

  it('a node that the others gave up serves nothing that is out of date, and comes back', async () => {
    const code =
      'export default { fetch: () => new Response(new ReadableStream({ start: (c) => void setInterval(() => c.enqueue(new Uint8Array(1)), 100) })) }';
    await deploy(payAt(a), cluster.url, { slug: 'endless', code });
    const open = await fetch(`${b.url}/endless/`);
    let isCut = false;
    void open.body?.pipeTo(new WritableStream()).catch(() => {
      isCut = true;
    });
    process.kill(b.pid, 'SIGSTOP');
    try {
      // B's edges go on; the update waits until they must not serve any more.
      await update(a, 'first', { code: HELLO('without b ') });
      await until(() => isCut);
      expect((await fetch(`${b.url}/first/`)).status).toBe(503);
    } finally {
      process.kill(b.pid, 'SIGCONT');
    }
    const answer = await until(async () => {
      const got = await fetch(`${b.url}/first/`);
      const said = await got.text();
      return got.status === 200 ? said : undefined;
    });
    expect(answer).toBe('without b Grace');
  });

  it('an owner signs in at one node by what the other gave, reads one log at either, and signs out at both', async () => {
    const owner = account(cluster.network, 0);
    const code = `export default { fetch(request) { console.log(new URL(request.url).search); return new Response('x'); } }`;
    await deploy(payAt(a), cluster.url, { slug: 'says', code });
    const at = (host: TestHost, path: string, init?: RequestInit) =>
      cluster.via(() => host)(`${cluster.url}${path}`, init);
    const begun = await at(a, '/_admin/sign-in', jsonPost({ address: owner.address }));
    const { message, nonce } = (await begun.json()) as { message: string; nonce: string };
    const proof = jsonPost({ address: owner.address, nonce, signature: await owner.signMessage({ message }) });
    const signedIn = await at(b, '/_admin/session', proof);
    const { token } = (await signedIn.json()) as { token: string };
    expect([signedIn.status, (await at(a, '/_admin/session', proof)).status]).toEqual([201, 401]);
    const headers = { authorization: `Bearer ${token}` };
    const log = async (host: TestHost, query = '') => {
      const answer = await at(host, `/_admin/says/logs${query}`, { headers });
      const { entries, missing } = (await answer.json()) as { entries: LogLine[]; missing?: string[] };
      return { said: entries.filter(({ kind }) => kind === 'console'), missing };
    };
    for (const [index, host] of [a, b, a].entries()) {
      await fetch(`${host.url}/says/?${index}`);
      await until(async () => (await log(a)).said.length === index + 1);
    }
    for (const host of [a, b])
      expect((await log(host)).said.map(({ text, node }) => `${node} ${text}`)).toEqual(['a ?0', 'b ?1', 'a ?2']);
    const [first] = (await log(a)).said;
    expect((await log(b, `?after=${encodeURIComponent(first?.id ?? '')}`)).said).toHaveLength(2);
    process.kill(b.pid, 'SIGSTOP');
    try {
      expect(await log(a)).toMatchObject({ said: [{ node: 'a' }, { node: 'a' }], missing: ['b'] });
    } finally {
      process.kill(b.pid, 'SIGCONT');
    }
    await until(async () => (await fetch(`${b.url}/healthz`)).status === 200);
    expect((await at(b, '/_admin/session', { method: 'DELETE', headers })).status).toBe(204);
    for (const host of [a, b]) expect((await at(host, '/_admin/says/logs', { headers })).status).toBe(401);
  });

  it('a drained node tells its load balancer, leaves its leases, serves on, and comes back', async () => {
    const isServing = async (host: TestHost) => (await fetch(`${host.url}/healthz`)).status;
    const heldBy = async (name: string) => {
      const { nodes } = (await a.operator('GET', '/cluster')).json as {
        nodes: { name: string; state: string; leases: string[] }[];
      };
      return nodes.find((one) => one.name === name);
    };
    expect((await b.operator('POST', '/cluster/a/drain')).status).toBe(200);
    await until(async () => (await isServing(a)) === 503);
    await until(async () => (await heldBy('a'))?.leases.length === 0);
    expect(await heldBy('a')).toMatchObject({ state: 'draining' });
    expect((await fetch(`${a.url}/first/`)).status).toBe(200);
    await until(async () => (await heldBy('b'))?.leases.includes('timed work'));
    await a.operator('POST', '/cluster/a/resume');
    await until(async () => (await isServing(a)) === 200);
    expect((await a.operator('POST', '/cluster/nobody/drain')).status).toBe(404);
  });

  it('a change does not wait for a node that is told to stop and whose instances take their time', async () => {
    expect(await text(b, '/first/')).toBe('without b Grace');
    const workerds = processTree([b.pid]).filter((pid) => commandOf(pid).includes('workerd serve'));
    expect(workerds.length).toBeGreaterThan(0);
    for (const pid of workerds) process.kill(pid, 'SIGSTOP');
    let isGone = false;
    const stopping = b.stop().then(() => {
      isGone = true;
    });
    await until(async () => {
      const [node] = await rows(
        `SELECT note FROM leases JOIN nodes ON leases.name = 'node:' || nodes.node WHERE nodes.name = 'b'`,
      );
      return String(node?.note).includes('"over"');
    });
    const suspended = await a.operator('POST', '/tenants/first/suspend', { reason: 'while b ends' });
    expect([suspended.status, isGone]).toEqual([200, false]);
    await stopping;
    b = await b.restart();
    cluster.nodes.push(b);
    expect((await fetch(`${b.url}/first/`)).status).toBe(403);
    await b.operator('POST', '/tenants/first/resume');
    expect(await text(b, '/first/')).toBe('without b Grace');
  });

  it.skipIf(!available('haproxy'))(
    'behind HAProxy a node is drained, stopped and started, and no request fails',
    async () => {
      const slugs = ['first', 'shop', 'second', 'third'];
      await deploy(payAt(a), cluster.url, { slug: 'second', code: HELLO('2') });
      await deploy(payAt(a), cluster.url, { slug: 'third', code: HELLO('3') });
      await cluster.balance(a, b);
      const stop = new AbortController();
      const failed: string[] = [];
      const latest: (string | null)[] = [];
      const load = slugs.map(async (slug) => {
        while (!stop.signal.aborted) {
          const answer = await fetch(`${cluster.url}/${slug}/`);
          const said = await answer.text();
          if (answer.status !== 200) failed.push(`${answer.status} ${said}`);
          latest.push(answer.headers.get('x-served-by'));
          await delay(BETWEEN_CALLS_MS);
        }
      });
      const serves = async (node: string, isSo: boolean) => {
        await until(() => {
          latest.splice(0, latest.length - 100);
          return latest.length === 100 && latest.includes(node) === isSo;
        });
      };
      await serves('b', true);
      await a.operator('POST', '/cluster/b/drain');
      await serves('b', false);
      await b.stop();
      b = await b.restart();
      cluster.nodes.push(b);
      await serves('b', true);
      stop.abort();
      await Promise.all(load);
      expect(failed).toEqual([]);
    },
  );

  it('kill -9 of a node: the other answers, runs the crons once, and takes changes', async () => {
    await deploy(payAt(a), cluster.url, {
      slug: 'timed',
      code: 'export default { fetch: () => new Response("timed"), scheduled() {} }',
      crons: ['* * * * *'],
    });
    await b.advance(MINUTE_MS);
    const ran = `SELECT tenant FROM cron_runs WHERE outcome = 'ok'`;
    await until(async () => (await rows(ran)).length > 0);
    const before = await solana.held(seller);
    const lost: Record<string, string>[] = [];
    for (const isTaken of [true, false]) {
      const client = solanaClient(
        solana,
        await solana.wallet(PRICE),
        cluster.via(() => a),
      );
      await solana.silentAt(isTaken, () => client.fetch(`${cluster.url}/shop/paid`));
      lost.push({ 'payment-signature': client.sent.signature });
    }
    solana.fault = () => undefined;
    const poor = await walletWith(PRICE);
    // It hears nothing, or that the host is gone.
    const leaving = new AbortController();
    const { signal } = leaving;
    const working = poor(a)(`${cluster.url}/waits/slow?lost`, { signal }).then(
      ({ status }) => status,
      () => 0,
    );
    await until(
      async () => (await rows(`SELECT 1 AS one FROM payments WHERE slug = 'waits' AND state = 'working'`)).length,
    );
    await a.kill();
    const killedAt = performance.now();
    leaving.abort();
    expect(await working).not.toBe(200);
    expect(await text(b, '/timed/')).toBe('timed');
    await update(b, 'first', { code: HELLO('alone ') });
    expect(await text(b, '/first/')).toBe('alone Grace');
    // What its wallet had promised there is free again.
    await fetch(`${b.url}/waits/?again`);
    await until(async () => (await poor(b)(`${cluster.url}/waits/slow?again`)).status === 200);
    console.log(`a wallet's promise at a killed node ended after ${Math.round(performance.now() - killedAt)} ms`);
    await b.advance(MINUTE_MS);
    await until(async () => (await rows(ran)).length > 1);
    const times = (await rows('SELECT scheduled_at FROM cron_runs')).map(({ scheduled_at }) => scheduled_at);
    expect(new Set(times).size).toBe(times.length);
    // What the other had recorded is settled once, whether it was sent or not; its answer went with it, and is owed.
    await until(async () => (await rows(`SELECT id FROM payments WHERE state = 'settling'`)).length === 0);
    for (const headers of lost)
      expect((await cluster.via(() => b)(`${cluster.url}/shop/paid`, { headers })).status).toBe(502);
    expect((await solana.held(seller)) - before).toBe(BigInt(lost.length) * PRICE);
  });

  it('a node that was killed comes back on its data folder at once, and ends when it is removed', async () => {
    a = await a.restart();
    expect(await text(a, '/first/')).toBe('alone Grace');
    expect((await b.operator('POST', '/cluster/a/remove')).status).toBe(200);
    await until(async () => !(await fetch(`${a.url}/healthz`).catch(() => undefined)));
    await expect(a.restart()).rejects.toThrow(/was removed from this cluster/);
  });

  it('another key, another bucket, and a name that is taken, are refused', async () => {
    await expect(
      cluster.node('c', {}, { TURNPIKE_CLUSTER_KEY: 'another key of thirty-two characters' }),
    ).rejects.toThrow(/cluster.key is another/);
    await expect(cluster.node('e', {}, { TURNPIKE_CLUSTER_STORAGE_BUCKET: 'another' })).rejects.toThrow(
      /cluster.storage is another bucket/,
    );
    await expect(cluster.node('d', { 'cluster-node': 'b' })).rejects.toThrow(/Another node b runs/);
  });
});
