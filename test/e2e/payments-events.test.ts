/** Streams of server-sent events that cost by the event, with stock clients: as they should be, and broken off anywhere. */
import { gzipSync } from 'node:zlib';
import { Challenge, Credential } from 'mppx';
import { Mppx, tempo } from 'mppx/client';
import { Session } from 'mppx/tempo';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { micro } from '../../host/shared/money.ts';
import { balance, mppClient, mppOf, type Rig, startNetwork, startRig, x402Client } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: string;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  const stream = { price: '0.05', perEvent: '0.001', mode: 'metered' };
  rig = await startRig(network, {
    payTo,
    routes: [
      { method: 'GET', path: '/events', ...stream },
      { method: 'POST', path: '/chat', ...stream },
    ],
  });
});
afterEach(() => rig.close());

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';

function manager(index: number, sender: typeof fetch = fetch) {
  const account = privateKeyToAccount(key(index));
  const getClient = () => mppOf(network).getClient(account) as never;
  return tempo.session.manager({ account, getClient, maxDeposit: '1', fetch: sender });
}

/** A handler whose events are sent by the test. */
function handler() {
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  const cancelled = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<void>();
  rig.handler = () => {
    const body = new ReadableStream<Uint8Array>({
      start(own) {
        controller = own;
        opened.resolve();
      },
      cancel: () => cancelled.resolve(),
    });
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  };
  return {
    opened: opened.promise,
    cancelled: cancelled.promise,
    send: (text: string) => controller?.enqueue(Buffer.from(text)),
    close: () => controller?.close(),
    fail: () => controller?.error(new Error('broken')),
  };
}

const EVENTS = { 'content-type': 'text/event-stream' };
const event = (data: string | number) => `data: ${data}\n\n`;
const several = (count: number) => Array.from({ length: count }, (_, index) => event(index)).join('');

function answers(text: string) {
  rig.handler = () => new Response(text, { headers: { 'content-type': 'text/event-stream' } });
}

async function read(events: AsyncIterable<string>): Promise<string[]> {
  const found: string[] = [];
  for await (const one of events) found.push(one);
  return found;
}

const charged = async () =>
  (await rig.payments.ledger.revenue({ tenant: rig.deployment.tenant })).reduce((sum, row) => sum + row.gross, 0n);
const agrees = async () => {
  await until(async () => (await rig.payments.ledger.open()).length === 0);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
};

test('a session pays each event as it comes; what is no event is free', async () => {
  const session = manager(0);
  const before = await balance(network, 'tempo', session.channelId ?? privateKeyToAccount(key(0)).address);
  answers(`: hello\n\nretry: 5\n\n${several(40)}event: payment-receipt\ndata: {}\n\n`);
  let spent = '';
  const onReceipt = (receipt: { spent: string }) => {
    spent = receipt.spent;
  };
  const events = await session.sse(`${rig.url}/events`, { onReceipt });
  expect(await read(events)).toEqual(Array.from({ length: 40 }, (_, index) => String(index)));
  expect(spent).toBe('40000');
  expect(await charged()).toBe(40_000n);
  // The channel goes on, by POST as well.
  answers(several(3));
  const more = await session.sse(`${rig.url}/chat`, { method: 'POST', body: 'hello', onReceipt });
  expect(await read(more)).toHaveLength(3);
  expect(await rig.calls.at(-1)?.text()).toBe('hello');
  expect((await session.close())?.spent).toBe('43000');
  expect(before - (await balance(network, 'tempo', privateKeyToAccount(key(0)).address))).toBe(43_000n);
  await until(async () => (await balance(network, 'tempo', payTo)) === 43_000n);
  await agrees();
});

test('the session method of an ordinary mppx client pays, and gets the handler’s bytes', async () => {
  const account = privateKeyToAccount(key(1));
  const getClient = () => mppOf(network).getClient(account) as never;
  const client = Mppx.create({ polyfill: false, methods: [tempo.session({ account, getClient, maxDeposit: '1' })] });
  answers(`event: x\r\n${event('a')}${several(20)}`);
  const response = await client.fetch(`${rig.url}/events`);
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  expect(await response.text()).toBe(`event: x\r\n${event('a')}${several(20)}`);
  await until(async () => (await charged()) === 21_000n);
});

test('discovery tells the price of an event to sessions, and the most to others', () => {
  const offers = rig.payments.offers(micro(50_000), { mode: 'metered', perEvent: '0.001' });
  expect(offers.map(({ intent, amount }) => [intent, amount])).toEqual([
    ['charge', '50000'],
    ['session', '1000'],
    ['exact', '50000'],
    ['upto', '50000'],
  ]);
});

test('who pays by a single payment pays the price first, and gets back what did not come', async () => {
  const clients = [mppClient(network, key(2)), x402Client(network, key(3))];
  const assets = ['tempo', 'usdc'] as const;
  for (const [index, client] of clients.entries()) {
    const asset = assets[index] ?? 'tempo';
    const before = await balance(network, asset, client.address);
    answers(several(7));
    const response = await client.fetch(`${rig.url}/events`);
    expect([response.status, response.headers.get('x-payment-held')]).toEqual([200, '0.05']);
    expect(await response.text()).toBe(several(7));
    await until(async () => before - (await balance(network, asset, client.address)) === 7_000n);
    await until(async () => (await balance(network, asset, payTo)) === 7_000n);
    // The same payment again gets no second stream.
    const { authorization, signature } = client.sent;
    const headers = {
      ...(authorization ? { authorization } : {}),
      ...(signature ? { 'payment-signature': signature } : {}),
    };
    expect((await fetch(`${rig.url}/events`, { headers })).status).toBe(409);
  }
  expect(rig.calls).toHaveLength(2);
  await agrees();
});

test('the price is the most that a stream costs, and a caller may allow more', async () => {
  answers(several(120));
  const session = manager(4);
  expect(await read(await session.sse(`${rig.url}/events`))).toHaveLength(50);
  const headers = { 'x-max-price': '0.1' };
  expect(await read(await session.sse(`${rig.url}/events`, { headers }))).toHaveLength(100);
  expect(await charged()).toBe(150_000n);
  const single = await mppClient(network, key(4)).fetch(`${rig.url}/events`);
  expect(await single.text()).toBe(several(50));
  await session.close();
  await agrees();
});

test('no events cost nothing: an error, an answer of another kind, an empty stream', async () => {
  const session = manager(5);
  for (const [answer, status] of [
    [() => new Response('no', { status: 500 }), 500],
    [() => Response.json({}), 502],
    // Inside could be anything, such as what makes a client sign.
    [() => new Response(gzipSync(several(3)), { headers: { ...EVENTS, 'content-encoding': 'gzip' } }), 502],
    [() => new Response(': nothing\n\n', { headers: EVENTS }), 200],
  ] as const) {
    rig.handler = answer;
    const response = await session.fetch(`${rig.url}/events`);
    await response.text();
    expect(response.status).toBe(status);
    expect(rig.calls.at(-1)?.headers.get('accept-encoding')).toBe('identity');
  }
  await until(async () => (await charged()) === 0n);
  answers(several(2));
  expect(await read(await session.sse(`${rig.url}/events`))).toHaveLength(2);
  expect((await session.close())?.spent).toBe('2000');
  await agrees();
});

test('a handler that breaks off has sold what it sent', async () => {
  const session = manager(6);
  const source = handler();
  const events = await session.sse(`${rig.url}/events`).then((found) => found[Symbol.asyncIterator]());
  await source.opened;
  source.send(several(3));
  for (let index = 0; index < 3; index += 1) expect((await events.next()).value).toBe(String(index));
  source.send('data: half');
  source.fail();
  await events.next().catch(() => undefined);
  await until(async () => (await charged()) === 3_000n);
  expect((await session.close())?.spent).toBe('3000');
  await agrees();
});

test('a caller who leaves has paid what was delivered; one who reads slowly signs for nothing ahead', async () => {
  const sent: string[] = [];
  const session = manager(7, async (input, init) => {
    const authorization = new Request(input, init).headers.get('authorization');
    if (authorization) sent.push(authorization);
    return fetch(input, init);
  });
  const source = handler();
  const leaving = new AbortController();
  const events = (await session.sse(`${rig.url}/events`, { signal: leaving.signal }))[Symbol.asyncIterator]();
  await source.opened;
  source.send(several(1));
  expect((await events.next()).value).toBe('0');
  // More than one voucher's worth is ready, and the caller does not read on: it has signed once.
  source.send(several(30));
  await new Promise((resolve) => setImmediate(resolve));
  expect(sent).toHaveLength(1);
  for (let index = 0; index < 16; index += 1) expect((await events.next()).value).toBe(String(index));
  leaving.abort();
  await events.next().catch(() => undefined);
  await source.cancelled;
  await until(async () => (await rig.payments.ledger.revenue({ tenant: rig.deployment.tenant })).length > 0);
  expect(await charged()).toBe(17_000n);
  // The channel is free for other calls, and nothing is held.
  answers(several(1));
  expect(await read(await session.sse(`${rig.url}/events`))).toHaveLength(1);
  expect((await session.close())?.spent).toBe('18000');
  await agrees();
});

test('vouchers of others, old ones and those after the end change nothing of a stream', async () => {
  const vouchers: { url: string; authorization: string }[] = [];
  const session = manager(0, async (input, init) => {
    const request = new Request(input, init);
    const authorization = request.headers.get('authorization');
    if (authorization && request.method === 'POST') vouchers.push({ url: request.url, authorization });
    return fetch(input, init);
  });
  answers(several(20));
  expect(await read(await session.sse(`${rig.url}/events`))).toHaveLength(20);
  expect(vouchers.length).toBeGreaterThan(0);
  const before = await charged();
  const late = await Promise.all(
    [...vouchers, ...vouchers].map(({ url, authorization }) =>
      fetch(url, { method: 'POST', headers: { authorization } }),
    ),
  );
  expect(late.map(({ status }) => status)).toEqual(late.map(() => 204));
  expect(await charged()).toBe(before);
  expect(rig.calls).toHaveLength(1);
  expect((await session.close())?.spent).toBe('20000');
  await agrees();
});

test('two streams of one channel in turns are charged what each has delivered', async () => {
  const session = manager(2);
  const first = handler();
  const opened = session.sse(`${rig.url}/events`);
  await first.opened;
  first.send(several(2));
  const events = (await opened)[Symbol.asyncIterator]();
  for (const text of ['0', '1']) expect((await events.next()).value).toBe(text);
  answers(several(20));
  expect(await read(await session.sse(`${rig.url}/chat`, { method: 'POST' }))).toHaveLength(20);
  first.send(several(2));
  first.close();
  expect([await events.next(), await events.next()].map(({ value }) => value)).toEqual(['0', '1']);
  expect((await events.next()).done).toBe(true);
  expect(await charged()).toBe(24_000n);
  expect((await session.close())?.spent).toBe('24000');
  await agrees();
});

test('a voucher that another stream of the channel has used up is asked for again', async () => {
  const account = privateKeyToAccount(key(3));
  const sent: Credential.Credential[] = [];
  const session = manager(3, async (input, init) => {
    const authorization = new Request(input, init).headers.get('authorization');
    if (authorization) sent.push(Credential.deserialize(authorization));
    return fetch(input, init);
  });
  answers(several(1));
  expect(await read(await session.sse(`${rig.url}/events`))).toHaveLength(1);
  const { source, payload } = sent[0] as { source: string; payload: { channelId: Hex; descriptor: object } };
  const { channelId, descriptor } = payload;
  const signed = async (challenge: Challenge.Challenge, cumulativeAmount: bigint) => {
    const client = mppOf(network).getClient(account);
    const { tip20ChannelEscrow } = Session.Precompile.Protocol;
    const { signVoucher } = Session.Precompile.Voucher;
    const voucher = { channelId, cumulativeAmount };
    const chainId = mppOf(network).chain.id;
    const signature = await signVoucher(client as never, account as never, voucher, tip20ChannelEscrow, chainId);
    const voucherPayload = {
      action: 'voucher',
      channelId,
      descriptor,
      cumulativeAmount: `${cumulativeAmount}`,
      signature,
    };
    return { authorization: Credential.serialize({ challenge, source, payload: voucherPayload } as never) };
  };
  answers(several(4));
  const streams = await Promise.all(
    [2_000n, 3_000n].map(async (first) => {
      const offered = Challenge.fromHeadersList((await fetch(`${rig.url}/events`)).headers);
      const challenge = offered.find(({ intent }) => intent === 'session') as Challenge.Challenge;
      const { body } = await fetch(`${rig.url}/events`, { headers: await signed(challenge, first) });
      return {
        challenge,
        reader: (body as ReadableStream<Uint8Array>).pipeThrough(new TextDecoderStream()).getReader(),
      };
    }),
  );
  /** What comes until the payer is asked for more, or the end. */
  const part = async ({ reader }: (typeof streams)[number]) => {
    let text = '';
    for (;;) {
      const { done, value = '' } = await reader.read();
      text += value;
      const asked = /"requiredCumulative":"(\d+)"/.exec(text)?.[1];
      if (done || asked) return { events: text.match(/^data: \d/gm)?.length ?? 0, asked };
    }
  };
  const asked = { events: 1, asked: expect.any(String) };
  expect(await Promise.all(streams.map(part))).toEqual([asked, asked]);
  // It covers one of them; who is first takes it.
  const { challenge } = streams[0] as (typeof streams)[number];
  const post = async (amount: bigint) =>
    expect(
      (await fetch(`${rig.url}/events`, { method: 'POST', headers: await signed(challenge, amount) })).status,
    ).toBe(204);
  const rest = streams.map(part);
  await post(6_000n);
  expect(await Promise.race(rest)).toEqual({ events: 3, asked: undefined });
  const again = (await Promise.all(rest)).find(({ asked }) => asked !== undefined);
  expect(again).toEqual({ events: 0, asked: '9000' });
  const left = Promise.all(streams.map(part));
  await post(9_000n);
  expect((await left).map(({ events }) => events).sort()).toEqual([0, 3]);
  await until(async () => (await charged()) === 9_000n);
  await agrees();
});
