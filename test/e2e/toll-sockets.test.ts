/** Paid WebSockets of an ordinary tenant on the real host: stock clients pay with the handshake, by header. */
import { Duplex } from 'node:stream';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { wrapFetchWithPaymentFromConfig } from '@x402/fetch';
import { Mppx, tempo } from 'mppx/client';
import { WebSocket as UndiciSocket } from 'undici';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, expect, test } from 'vitest';
import WebSocket from 'ws';
import { localTempoChain } from '../../host/payments/network/chains.ts';
import { tempoClient } from '../../host/payments/network/clients.ts';
import { account, balances, deploy, mppFetch } from './support/callers.ts';
import { startHost, type TestHost, until } from './support/host.ts';
import { mppClient, balance as networkBalance, type Rig, startNetwork, startRig } from './support/payments-rig.ts';

const HANDLER = `let refusals = 0;
export default {
  async fetch(request) {
    const { pathname } = new URL(request.url);
    if (request.headers.get('upgrade') !== 'websocket') return new Response('secret');
    if (pathname === '/refuses') return new Response('not you', { status: 403 });
    if (pathname === '/plain') return new Response('secret');
    if (pathname === '/throws') throw new Error('thrown');
    if (pathname === '/moody' && (refusals += 1) === 1) return new Response('later', { status: 503 });
    const [client, server] = Object.values(new WebSocketPair());
    server.accept();
    server.send(request.headers.get('x-payer'));
    server.addEventListener('message', ({ data }) => server.send(data));
    const headers = pathname === '/metered' ? { 'x-charge': '0.0123' } : {};
    return new Response(null, { status: 101, webSocket: client, headers });
  },
};`;

let host: TestHost;
let payTo: `0x${string}`;

beforeAll(async () => {
  host = await startHost();
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  const fixed = ['/live', '/refuses', '/plain', '/throws', '/moody'];
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'chat',
    code: HANDLER,
    payTo,
    paidRoutes: [
      ...fixed.map((path) => ({ method: 'GET', path, price: '0.01' })),
      { method: 'GET', path: '/metered', price: '0.05', mode: 'metered' },
    ],
  });
});
afterAll(() => host?.stop());

type Headers = Record<string, string>;

/**
 * What a stock client would send to pay for a URL: it is asked to call the URL, and its paid request is kept back.
 * @param client makes the stock client's fetch from the one that it is to call
 */
async function paymentFor(url: string, client: (fetch: typeof globalThis.fetch) => typeof globalThis.fetch) {
  const paid = Promise.withResolvers<Headers>();
  const sender = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    for (const name of ['authorization', 'payment-signature']) {
      const value = request.headers.get(name);
      if (!value) continue;
      paid.resolve({ [name]: value });
      return await new Promise<Response>(() => {});
    }
    return await fetch(request);
  };
  client(sender as typeof fetch)(url).catch(paid.reject);
  return await paid.promise;
}

const chain = () => localTempoChain(host.network.chainId, host.network.rpcUrl);

function mpp(index: number) {
  return (fetch: typeof globalThis.fetch) =>
    Mppx.create({
      polyfill: false,
      fetch,
      methods: [
        tempo.charge({ account: account(host.network, index), getClient: () => tempoClient(chain()) as never }),
      ],
    }).fetch as typeof globalThis.fetch;
}

function session(index: number) {
  const payer = account(host.network, index);
  const getClient = () => tempoClient(chain(), payer) as never;
  return (fetch: typeof globalThis.fetch) =>
    tempo.session.manager({ account: payer, getClient, maxDeposit: '1', fetch }).fetch as typeof globalThis.fetch;
}

function x402(index: number) {
  const payer = account(host.network, index);
  const { network, token } = host.network.x402;
  return (fetch: typeof globalThis.fetch) =>
    wrapFetchWithPaymentFromConfig(fetch, {
      schemes: [
        { network: 'eip155:*', client: new ExactEvmScheme(payer) },
        { network: 'eip155:*', client: new UptoEvmScheme(payer, { rpcUrl: host.network.rpcUrl }) },
      ],
      spendControls: { allowedAssets: [{ network, asset: token, maxAmountPerPayment: '1000000' }] },
    } as never) as typeof globalThis.fetch;
}

const paidTo = () => balances(host.network, payTo);
const did = (index: number) => `did:pkh:eip155:1337:${account(host.network, index).address.toLowerCase()}`;

interface Handshake {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: string;
  socket: WebSocket | undefined;
  /** The first message. */
  first: string;
}

/** A handshake by the stock `ws` client. */
function open(path: string, headers: Headers = {}): Promise<Handshake> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(`${host.url.replace('http', 'ws')}/chat${path}`, { headers });
    let answered: Handshake['headers'] = {};
    socket.once('upgrade', (answer) => {
      answered = answer.headers;
    });
    socket.once('message', (data) =>
      resolve({ status: 101, headers: answered, body: '', socket, first: String(data) }),
    );
    socket.once('unexpected-response', async (_request, answer) => {
      const chunks: Buffer[] = [];
      for await (const chunk of answer) chunks.push(chunk);
      const body = Buffer.concat(chunks).toString();
      resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body, socket: undefined, first: '' });
    });
    socket.on('error', reject);
  });
}

test('an unpaid handshake gets both protocols’ offers and hears how sockets are paid', async () => {
  const { status, headers, body } = await open('/live');
  expect(status).toBe(402);
  expect(headers['www-authenticate']).toContain('Payment id=');
  expect(headers['payment-required']).toBeTruthy();
  expect(JSON.parse(body)).toMatchObject({ code: 'payment_required', price: { amount: '0.01' } });
  expect(JSON.parse(body).detail).toContain('handshake');
});

test('MPP: the socket opens, carries messages, and its payment is good for one socket', async () => {
  const before = await paidTo();
  const payment = await paymentFor(`${host.url}/chat/live`, mpp(1));
  const paid = await open('/live', payment);
  expect(paid.first).toBe(did(1));
  expect(paid.headers['x-payment-amount']).toBe('0.01');
  expect(paid.headers['payment-receipt']).toBeTruthy();
  expect((await paidTo()).mpp - before.mpp).toBe(10_000n);
  const echoed = new Promise((resolve) => paid.socket?.once('message', (data) => resolve(String(data))));
  paid.socket?.send('hello');
  expect(await echoed).toBe('hello');
  const again = await open('/live', payment);
  expect([again.status, JSON.parse(again.body).code]).toEqual([409, 'conflict']);
  expect(again.headers['x-payment-id']).toBe(paid.headers['x-payment-id']);
  const elsewhere = await open('/moody', payment);
  expect([elsewhere.status, JSON.parse(elsewhere.body).code]).toEqual([402, 'payment_invalid']);
  paid.socket?.terminate();
  expect((await paidTo()).mpp - before.mpp).toBe(10_000n);
});

test('x402: exact and upto, by undici’s client; a metered socket costs what its handler says', async () => {
  const before = await paidTo();
  for (const path of ['/live', '/metered']) {
    const headers = await paymentFor(`${host.url}/chat${path}`, x402(2));
    const socket = new UndiciSocket(`${host.url.replace('http', 'ws')}/chat${path}`, { headers });
    const first = await new Promise((resolve, reject) => {
      socket.addEventListener('message', ({ data }) => resolve(data), { once: true });
      socket.addEventListener('error', reject, { once: true });
    });
    expect(first).toBe(did(2));
    socket.close();
  }
  expect((await paidTo()).x402 - before.x402).toBe(22_300n);
});

test('an MPP session pays what the socket cost out of its deposit', async () => {
  const payment = await paymentFor(`${host.url}/chat/metered`, session(3));
  const paid = await open('/metered', payment);
  expect(paid.first).toBe(did(3));
  const receipt = JSON.parse(Buffer.from(String(paid.headers['payment-receipt']), 'base64url').toString());
  expect(receipt.spent).toBe('12300');
  paid.socket?.terminate();
});

test('a handler that opens no socket: nothing is charged, nothing given away, and the payment stays good', async () => {
  const before = await paidTo();
  for (const [path, status, text] of [
    ['/refuses', 403, 'not you'],
    ['/throws', 500, ''],
    ['/plain', 502, 'opened no WebSocket'],
  ] as const) {
    const refused = await open(path, await paymentFor(`${host.url}/chat${path}`, mpp(1)));
    expect(refused.status, path).toBe(status);
    expect(refused.body, path).toContain(text);
    expect(refused.body, path).not.toContain('secret');
    expect(refused.headers['payment-receipt'], path).toBeUndefined();
  }
  const payment = await paymentFor(`${host.url}/chat/moody`, mpp(1));
  expect((await open('/moody', payment)).status).toBe(503);
  expect(await paidTo()).toEqual(before);
  const opened = await open('/moody', payment);
  expect(opened.first).toBe(did(1));
  opened.socket?.terminate();
  expect((await paidTo()).mpp - before.mpp).toBe(10_000n);
});

test('the operator’s reconciliation finds no difference', async () => {
  const { json } = await host.operator('POST', '/payments/reconcile');
  expect(json).toMatchObject({ ok: true, differences: [] });
});

test('who left before the socket was open pays nothing; who left while it was settled may open it again', async () => {
  const { network, stop } = await startNetwork();
  let rig: Rig | undefined;
  try {
    const receiver = privateKeyToAccount(generatePrivateKey()).address;
    rig = await startRig(network, { payTo: receiver, routes: [{ method: 'GET', path: '/live', price: '0.01' }] });
    let leave: 'before' | 'while settling' | 'never' = 'before';
    let caller: Duplex;
    const joined: string[] = [];
    const abandoned: string[] = [];
    await rig.restart({
      openSocket: async (_slug, _request, headers) => {
        if (leave === 'before') caller.destroy();
        if (leave === 'while settling') setImmediate(() => caller.destroy());
        const id = headers['x-payment-id'] ?? '';
        return { headers: new Headers(), join: async () => void joined.push(id), abandon: () => abandoned.push(id) };
      },
    });
    const client = mppClient(network, network.wallets?.[0]?.privateKey ?? '0x');
    const url = `${rig.url}/live`;
    const payment = await paymentFor(url, (sender) => (input, init) => {
      // The rig answers like the host does; its client takes a fetch of ours only here.
      const methods = [tempo.charge({ account: client.account, getClient: () => network.mpp?.getClient() as never })];
      return Mppx.create({ polyfill: false, fetch: sender, methods }).fetch(input, init);
    });
    const call = async () => {
      caller = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
      const context = { requestId: 'r', clientIp: '127.0.0.1', proto: 'http' as const, host: new URL(url).host };
      return await (rig as Rig).payments.tollSocket(
        new Request(url, { headers: payment }),
        { ...context, slug: 'shop', tenantPath: '/live', prefix: '' },
        (rig as Rig).deployment,
        { socket: caller, received: Buffer.alloc(0) },
      );
    };
    const received = () => networkBalance(network, 'tempo', receiver);
    expect((await call())?.status).toBe(400);
    expect([abandoned.length, await received()]).toEqual([1, 0n]);
    leave = 'while settling';
    expect(await call()).toBeUndefined();
    expect([abandoned.length, joined.length, await received()]).toEqual([2, 0, 10_000n]);
    leave = 'never';
    expect(await call()).toBeUndefined();
    expect([joined.length, await received()]).toEqual([1, 10_000n]);
    expect((await call())?.status).toBe(409);
    expect(new Set([...joined, ...abandoned]).size).toBe(1);
    await until(async () => ((await (rig as Rig).payments.ledger.reconcile()).ok ? true : undefined));
  } finally {
    await rig?.close();
    await stop();
  }
});
