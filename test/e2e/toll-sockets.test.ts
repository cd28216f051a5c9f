/** Paid WebSockets of an ordinary tenant on the real host: stock clients pay with the handshake, by header. */
import { rmSync } from 'node:fs';
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
import { commandOf, processTree } from '../bench/processes.ts';
import { account, balances, deploy, type Headers, mppFetch, paymentFor } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { mppClient, balance as networkBalance, type Rig, startNetwork, startRig } from './support/payments-rig.ts';
import { until } from './support/until.ts';

const HANDLER = `let refusals = 0;
export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    // Three events, and then none any more.
    if (pathname === '/events')
      return new Response(new ReadableStream({
        start: (controller) => controller.enqueue(new TextEncoder().encode('data: 1\\n\\ndata: 2\\n\\ndata: 3\\n\\n')),
      }), { headers: { 'content-type': 'text/event-stream' } });
    if (request.headers.get('upgrade') !== 'websocket') return new Response('secret');
    if (pathname.startsWith('/refuses')) return new Response('not you', { status: 403 });
    if (pathname === '/plain') return new Response('secret');
    if (pathname === '/throws') throw new Error('thrown');
    if (pathname === '/moody' && (refusals += 1) === 1) return new Response('later', { status: 503 });
    const [client, server] = Object.values(new WebSocketPair());
    server.accept();
    server.send(request.headers.get('x-payer'));
    if (pathname !== '/while-open') server.addEventListener('message', ({ data }) => server.send(data));
    if (pathname === '/while-open') {
      // Each message is an amount: it is reported, and what the host says to it is what the caller gets.
      const [payment, attempt] = [request.headers.get('x-payment-id'), Number(request.headers.get('x-payment-attempt'))];
      server.addEventListener('message', async ({ data }) => {
        if (data === 'bye') return server.close(1000, 'goodbye');
        const body = JSON.stringify({ payment, attempt, total: data });
        const noted = await env.PAYMENTS.fetch('http://payments/meter', { method: 'POST', body });
        server.send(await noted.text());
      });
    }
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
    bindings: { payments: true },
    paidRoutes: [
      ...fixed.map((path) => ({ method: 'GET', path, price: '0.01' })),
      { method: 'GET', path: '/metered', price: '0.05', mode: 'metered' },
      { method: 'GET', path: '/events', price: '0.05', perEvent: '0.001', mode: 'metered' },
      { method: 'GET', path: '/refuses-live', price: '0.05', mode: 'metered', live: true },
      { method: 'GET', path: '/while-open', price: '0.05', mode: 'metered', live: true },
    ],
  });
});
afterAll(async () => {
  await host?.stop();
  // A host that was started again leaves its folder alone.
  if (host) rmSync(host.data, { recursive: true, force: true });
});

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

/** Opens the socket that is charged while it is open. */
async function openLive(headers: Headers) {
  const opened = await open('/while-open', headers);
  const { socket } = opened;
  if (!socket) throw new Error(opened.body);
  const answers: ((text: string) => void)[] = [];
  socket.on('message', (data) => answers.shift()?.(String(data)));
  const ask = (text: string): Promise<{ total?: string; held?: string; code?: string }> => {
    const answer = new Promise<string>((resolve, reject) => {
      answers.push(resolve);
      socket.once('close', () => reject(new Error('closed')));
    });
    socket.send(text);
    return answer.then(JSON.parse);
  };
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    socket.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
  );
  return { ...opened, id: String(opened.headers['x-payment-id']), socket, ask, closed };
}

/** Reads a stream of events until there is no more of it for now. @param last text that ends what comes */
async function openEvents(headers: Headers, last: string) {
  const leaving = new AbortController();
  const response = await fetch(`${host.url}/chat/events`, { headers, signal: leaving.signal });
  const reader = response.body?.getReader();
  let text = '';
  while (!text.includes(last)) {
    const { value, done } = (await reader?.read()) ?? { done: true };
    if (done) throw new Error(`it ended after: ${text}`);
    text += Buffer.from(value).toString();
  }
  return { id: response.headers.get('x-payment-id') ?? '', text, leave: () => leaving.abort() };
}

/** What the books say of a payment. */
async function booked(id: string): Promise<{ charged: string; state: string }> {
  const { text } = await host.operator('GET', '/payments/csv');
  const fields = (text.split('\r\n').find((line) => line.includes(id)) ?? '').split(',');
  return { charged: fields[9] ?? '', state: fields[12] ?? '' };
}

const wealth = async (index: number) => {
  const { mpp, x402 } = await balances(host.network, account(host.network, index).address);
  return mpp + x402;
};

const live = `/chat/while-open`;
const ways = {
  'an MPP charge': [4, async () => paymentFor(`${host.url}${live}`, mpp(4))],
  'x402 upto': [5, async () => paymentFor(`${host.url}${live}`, x402(5))],
} as const;

for (const [name, [index, pay]] of Object.entries(ways)) {
  test(`charged while it is open, by ${name}: the hold is taken first, and what was not reported goes back`, async () => {
    const before = { payer: await wealth(index), payee: await paidTo() };
    const payment = await pay();
    const call = await openLive(payment);
    expect(call.headers['x-payment-held']).toBe('0.05');
    expect(call.headers['x-payment-amount']).toBeUndefined();
    // All that it can cost is here before anything is given: who empties its wallet now has paid.
    expect(before.payer - (await wealth(index))).toBe(50_000n);
    expect(await call.ask('0.001')).toMatchObject({ total: '0.001', held: '0.05' });
    expect(await call.ask('0.012345')).toMatchObject({ total: '0.012345' });
    // A lesser total, as from a report that was overtaken, takes nothing back.
    expect(await call.ask('0.002')).toMatchObject({ total: '0.012345' });
    expect(await call.ask('0.050001')).toMatchObject({ code: 'payment_required' });
    expect(await call.ask('-1')).toMatchObject({ code: 'invalid_field' });
    // The same credential opens no second socket, and does not wait for the first one's end.
    expect((await open('/while-open', payment)).status).toBe(409);
    call.socket.send('bye');
    expect(await call.closed).toEqual({ code: 1000, reason: 'goodbye' });
    await expect.poll(async () => before.payer - (await wealth(index))).toBe(12_345n);
    await expect
      .poll(async () => {
        const now = await paidTo();
        return now.mpp + now.x402 - before.payee.mpp - before.payee.x402;
      })
      .toBe(12_345n);
    expect(await booked(call.id)).toEqual({ charged: '0.012345', state: 'answered' });
    expect((await open('/while-open', payment)).status).toBe(409);
  });
}

test('charged while it is open, by a session: only what was reported is spent of the channel', async () => {
  const call = await openLive(await paymentFor(`${host.url}${live}`, session(6)));
  expect(await call.ask('0.0007')).toMatchObject({ total: '0.0007' });
  call.socket.terminate();
  await expect.poll(() => booked(call.id)).toEqual({ charged: '0.0007', state: 'answered' });
});

test('a handler that refuses a socket of a live route: nothing is held, and the payment can be shown again', async () => {
  const before = await wealth(7);
  const payment = await paymentFor(`${host.url}/chat/refuses-live`, mpp(7));
  for (const _turn of [1, 2]) expect((await open('/refuses-live', payment)).status).toBe(403);
  expect(await wealth(7)).toBe(before);
});

test('whoever vanishes, at whichever end: what was reported is charged, and nothing where nothing was', async () => {
  const mppPayment = () => paymentFor(`${host.url}${live}`, mpp(7));
  const before = await wealth(7);
  const silent = await openLive(await mppPayment());
  silent.socket.terminate();
  await expect.poll(() => booked(silent.id)).toMatchObject({ state: 'refunded' });
  const gone = await openLive(await mppPayment());
  await gone.ask('0.003');
  gone.socket.terminate();
  await expect.poll(() => booked(gone.id)).toEqual({ charged: '0.003', state: 'answered' });
  // The instance.
  const cut = await openLive(await mppPayment());
  await cut.ask('0.004');
  const instance = processTree([host.pid]).filter((pid) => /workerd/.test(commandOf(pid)));
  expect(instance.length).toBeGreaterThan(0);
  for (const pid of instance) {
    try {
      process.kill(pid, 'SIGKILL');
    } catch (error) {
      // The end of one of them may be the end of the next.
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
    }
  }
  await cut.closed;
  await expect.poll(() => booked(cut.id)).toEqual({ charged: '0.004', state: 'answered' });
  // A stream of events, of which a session has paid the first.
  const left = await openEvents(await paymentFor(`${host.url}/chat/events`, mpp(6)), 'data: 3\n\n');
  left.leave();
  await expect.poll(() => booked(left.id)).toEqual({ charged: '0.003', state: 'answered' });
  const events = await openEvents(await paymentFor(`${host.url}/chat/events`, mpp(6)), 'data: 3\n\n');
  const first = await openEvents(await paymentFor(`${host.url}/chat/events`, session(2)), 'payment-need-voucher');
  expect(first.text).toMatch(/^data: 1\n\nevent: payment-need-voucher\n/);
  // The host.
  const killed = await openLive(await mppPayment());
  await killed.ask('0.005');
  const unheard = await openLive(await mppPayment());
  const channel = await openLive(await paymentFor(`${host.url}${live}`, session(3)));
  await channel.ask('0.006');
  await host.kill();
  host = await host.restart();
  await expect.poll(() => booked(killed.id)).toEqual({ charged: '0.005', state: 'answered' });
  expect(await booked(channel.id)).toEqual({ charged: '0.006', state: 'answered' });
  expect(await booked(events.id)).toEqual({ charged: '0.003', state: 'answered' });
  expect(await booked(first.id)).toEqual({ charged: '0.001', state: 'answered' });
  await expect.poll(() => booked(unheard.id)).toMatchObject({ state: 'refunded' });
  await expect.poll(async () => before - (await wealth(7))).toBe(12_000n);
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
