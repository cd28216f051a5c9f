/** Paid routes of a tenant: what is charged, when, to whom, and what happens when something goes wrong. */
import { createHash } from 'node:crypto';
import { Receipt } from 'mppx';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { Problem } from '../../host/shared/problem.ts';
import { balance, mppClient, type Rig, startNetwork, startRig, x402Client } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: string;

const ROUTES = [
  { method: 'GET', path: '/report', price: '0.01', description: 'The report', sku: 'report:v1', pricingVersion: 1 },
  { method: 'POST', path: '/listen', price: '0.05', mode: 'metered' },
  { method: 'POST', path: '/checked', price: '0.02', checkBeforePay: true },
  { method: 'GET', path: '/files/*', price: '0.03' },
  { method: 'GET', path: '/slow', price: '0.01', slow: true },
];

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(() => begin());
afterEach(() => rig.close());

async function begin(feeBps = 0): Promise<void> {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, { payTo, routes: ROUTES, feeBps });
}

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const tempoOf = (address: string) => balance(network, 'tempo', address);
const usdcOf = (address: string) => balance(network, 'usdc', address);
const reconciled = async () => expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
/** Sends the last credential of a client again. */
function again(client: ReturnType<typeof mppClient>, route: string, init: RequestInit = {}): Promise<Response> {
  const { authorization, signature } = client.sent;
  const payment: Record<string, string> = authorization ? { authorization } : { 'payment-signature': signature ?? '' };
  return fetch(`${rig.url}${route}`, { ...init, headers: { ...(init.headers as Record<string, string>), ...payment } });
}

test('an unpaid call never reaches the handler; free paths do, without the caller’s forgeries', async () => {
  const unpaid = await fetch(`${rig.url}/report`);
  expect(unpaid.status).toBe(402);
  expect(rig.calls).toHaveLength(0);
  for (const spelling of ['/report/', '/%72eport', '/x/../report', '//report', '/report?a=b', '/files/a/b'])
    expect((await fetch(new URL(rig.url).origin + spelling)).status, spelling).toBe(402);
  expect((await fetch(`${rig.url}/report`, { method: 'HEAD' })).status).toBe(402);
  expect(rig.calls).toHaveLength(0);
  const free = await fetch(`${rig.url}/free`, {
    headers: { 'x-payer': 'did:pkh:eip155:1:0xme', 'x-payment-id': 'pay_1', 'x-charge': '0' },
  });
  expect(free.status).toBe(200);
  const seen = rig.calls[0]?.headers;
  expect([seen?.get('x-payer'), seen?.get('x-payment-id'), seen?.get('x-charge')]).toEqual([null, null, null]);
});

test('a fixed price goes straight to the tenant, by MPP and by x402, with a receipt that names the transaction', async () => {
  const mpp = mppClient(network, key(0));
  const x402 = x402Client(network, key(1));
  const first = await mpp.fetch(`${rig.url}/report`);
  expect(first.status).toBe(200);
  expect(first.headers.get('x-payment-amount')).toBe('0.01');
  expect(first.headers.get('cache-control')).toBe('private');
  expect(Receipt.fromResponse(first).reference).toMatch(/^0x[0-9a-f]{64}$/);
  expect(await tempoOf(payTo)).toBe(10_000n);
  expect(rig.calls[0]?.headers.get('x-payer')).toBe(`did:pkh:eip155:1337:${mpp.address.toLowerCase()}`);
  expect(rig.calls[0]?.headers.get('x-payment-id')).toBe(first.headers.get('x-payment-id'));
  expect(rig.calls[0]?.headers.get('authorization')).toBeNull();
  const second = await x402.fetch(`${rig.url}/files/a.txt`);
  expect(second.status).toBe(200);
  expect(JSON.parse(Buffer.from(second.headers.get('payment-response') ?? '', 'base64').toString())).toMatchObject({
    success: true,
    payer: x402.address.toLowerCase(),
  });
  expect(rig.calls[1]?.headers.get('payment-signature')).toBeNull();
  expect(await usdcOf(payTo)).toBe(30_000n);
  await reconciled();
});

test('a metered route takes what the handler says: upto exactly, a plain charge by giving the rest back', async () => {
  rig.handler = () => Response.json({}, { headers: { 'x-charge': '0.000001' } });
  const mpp = mppClient(network, key(0));
  const x402 = x402Client(network, key(1));
  const [t, u] = [await tempoOf(mpp.address), await usdcOf(x402.address)];
  const one = await mpp.fetch(`${rig.url}/listen`, { method: 'POST', body: 'x' });
  expect(one.headers.get('x-payment-amount')).toBe('0.000001');
  expect(one.headers.get('x-charge')).toBeNull();
  await x402.fetch(`${rig.url}/listen`, { method: 'POST', body: 'x' });
  await until(async () => t - (await tempoOf(mpp.address)) === 1n);
  expect(u - (await usdcOf(x402.address))).toBe(1n);
  await until(async () => (await tempoOf(payTo)) === 1n);
  expect(await usdcOf(payTo)).toBe(1n);
  await reconciled();
});

test('charges: above the price is clamped, nothing is free, nonsense is refused', async () => {
  const mpp = mppClient(network, key(2));
  const listen = (charge: string | undefined, headers: Record<string, string> = {}) => {
    rig.handler = () => Response.json({}, charge === undefined ? {} : { headers: { 'x-charge': charge } });
    return mpp.fetch(`${rig.url}/listen`, { method: 'POST', body: 'x', headers });
  };
  const before = await tempoOf(mpp.address);
  expect((await listen('9')).headers.get('x-payment-amount')).toBe('0.05');
  expect((await listen(undefined)).headers.get('x-payment-amount')).toBe('0.05');
  expect((await listen('0')).headers.get('x-payment-amount')).toBe('0.00');
  expect((await listen('0.03', { 'x-max-price': '0.03' })).headers.get('x-payment-amount')).toBe('0.03');
  // A charge above the caller's own limit is withheld and not clamped, or the payer would set the price.
  for (const limit of ['0', '0.03']) {
    const withheld = await listen('0.04', { 'x-max-price': limit });
    expect([withheld.status, ((await withheld.json()) as { code: string }).code]).toEqual([409, 'conflict']);
  }
  for (const nonsense of [
    '-1',
    'NaN',
    '1e-3',
    'free',
    '0.0000001',
    '0x1',
    '1, 2',
    '٠.٠١'.normalize() && 'Infinity',
    '',
  ])
    expect((await listen(nonsense)).status, nonsense).toBe(502);
  await until(async () => before - (await tempoOf(mpp.address)) === 130_000n);
  await reconciled();
});

test('x-max-price holds more than the price of a metered route, and no more than it says', async () => {
  const mpp = mppClient(network, key(2));
  const x402 = x402Client(network, key(3));
  const [t, u] = [await tempoOf(mpp.address), await usdcOf(x402.address)];
  const most = { 'x-max-price': '0.20' };
  const unpaid = await fetch(`${rig.url}/listen`, { method: 'POST', body: 'x', headers: most });
  expect(((await unpaid.json()) as { price: unknown }).price).toMatchObject({ amount: '0.20', mode: 'metered' });
  for (const [charge, paid] of [
    ['0.12', '0.12'],
    ['9', '0.20'],
  ] as const) {
    rig.handler = (request) =>
      Response.json({ most: request.headers.get('x-max-price') }, { headers: { 'x-charge': charge } });
    for (const client of [mpp, x402]) {
      const answer = await client.fetch(`${rig.url}/listen`, { method: 'POST', body: 'x', headers: most });
      expect(await answer.json()).toEqual({ most: '0.20' });
      expect(answer.headers.get('x-payment-amount')).toBe(paid);
    }
  }
  // A fixed price stays what it is, however much the caller would give; and a smaller wish is a refusal.
  expect((await mpp.fetch(`${rig.url}/report`, { headers: most })).headers.get('x-payment-amount')).toBe('0.01');
  const refused = await mpp.fetch(`${rig.url}/report`, { headers: { 'x-max-price': '0.001' } });
  expect([refused.status, ((await refused.json()) as { code: string }).code]).toEqual([409, 'conflict']);
  for (const nonsense of ['-1', 'NaN', '1e9', 'all'])
    expect((await fetch(`${rig.url}/listen`, { method: 'POST', headers: { 'x-max-price': nonsense } })).status).toBe(
      400,
    );
  await until(async () => t - (await tempoOf(mpp.address)) === 330_000n);
  expect(u - (await usdcOf(x402.address))).toBe(320_000n);
  await reconciled();
});

test('a handler that answers 500, throws, hangs or is killed: nothing is charged, and the same credential works later', async () => {
  for (const client of [mppClient(network, key(0)), x402Client(network, key(1))]) {
    const money =
      client.sent === undefined ? tempoOf : (address: string) => Promise.all([tempoOf(address), usdcOf(address)]);
    const before = JSON.stringify(await money(client.address), (_k, v) => (typeof v === 'bigint' ? String(v) : v));
    const now = async () =>
      JSON.stringify(await money(client.address), (_k, v) => (typeof v === 'bigint' ? String(v) : v));
    const failures: [string, () => Promise<Response>, number][] = [
      ['500', async () => new Response('no', { status: 500 }), 500],
      ['404', async () => new Response('no', { status: 404 }), 404],
      ['throws', () => Promise.reject(new Problem('upstream_failed', 'The handler threw.')), 502],
      ['killed', () => Promise.reject(new Problem('cpu_exceeded', 'The handler was stopped.')), 503],
      ['cut short', async () => new Response(broken(), { headers: { 'content-length': '100' } }), 502],
    ];
    for (const [name, handler, status] of failures) {
      rig.handler = handler;
      const response =
        client.sent.authorization || client.sent.signature
          ? await again(client, '/report')
          : await client.fetch(`${rig.url}/report`);
      expect(response.status, name).toBe(status);
      expect(response.headers.get('payment-receipt')).toBeNull();
      expect(await now(), name).toBe(before);
    }
    rig.handler = () => Response.json({ ok: true });
    expect((await again(client, '/report')).status).toBe(200);
    expect(await now()).not.toBe(before);
  }
  await reconciled();
});

test('work past the life of a signed transaction: given up at no cost, or on a slow route settled first', async () => {
  const [hung, good, bad] = [mppClient(network, key(4)), mppClient(network, key(0)), mppClient(network, key(1))];
  const clients = [hung, good, bad];
  const balances = () => Promise.all(clients.map(({ address }) => tempoOf(address)));
  const before = await balances();
  let given: AbortSignal | undefined;
  rig.handler = async (request, signal) => {
    if (new URL(request.url).pathname === '/report') {
      given = signal;
      return new Promise(() => {});
    }
    await new Promise((resolve) => setTimeout(resolve, 24_000));
    return request.headers.get('x-payer')?.includes(bad.address.toLowerCase())
      ? new Response('no', { status: 500 })
      : Response.json({ ok: 1 });
  };
  const answers = await Promise.all([
    hung.fetch(`${rig.url}/report`),
    good.fetch(`${rig.url}/slow`),
    bad.fetch(`${rig.url}/slow`),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([504, 200, 500]);
  expect(given?.aborted).toBe(true);
  await until(async () => (await tempoOf(bad.address)) === before[2]);
  const after = await balances();
  expect(before.map((value, index) => value - (after[index] ?? 0n))).toEqual([0n, 10_000n, 0n]);
  await until(async () => (await tempoOf(payTo)) === 10_000n);
  await reconciled();
});

test('the same credential answers the stored response and is charged once; so do ten at the same time', async () => {
  const client = mppClient(network, key(3));
  let count = 0;
  rig.handler = async () => {
    await new Promise((resolve) => setTimeout(resolve, 30));
    return Response.json({ n: ++count });
  };
  const before = await tempoOf(client.address);
  const first = await client.fetch(`${rig.url}/report`);
  const text = await first.text();
  const answers = await Promise.all(Array.from({ length: 10 }, () => again(client, '/report')));
  for (const answer of answers) expect(await answer.text()).toBe(text);
  expect(count).toBe(1);
  expect(before - (await tempoOf(client.address))).toBe(10_000n);
  await rig.restart();
  expect(await (await again(client, '/report')).text()).toBe(text);
  expect(before - (await tempoOf(client.address))).toBe(10_000n);
});

test('a credential for one route is worth nothing on another, and not for another tenant', async () => {
  const client = mppClient(network, key(3));
  rig.handler = () => new Response('no', { status: 500 });
  await client.fetch(`${rig.url}/report`);
  rig.handler = () => Response.json({});
  expect((await again(client, '/files/x')).status).toBe(402);
  rig.deployment = { ...rig.deployment, tenant: 'tother000000000000000' };
  expect((await again(client, '/report')).status).toBe(402);
});

test('a streaming answer is settled before its first byte and passes unbuffered', async () => {
  const client = mppClient(network, key(4));
  let push: (text: string) => void = () => {};
  let end: () => void = () => {};
  rig.handler = () =>
    new Response(
      new ReadableStream<Uint8Array>({
        start(controller) {
          push = (text) => controller.enqueue(new TextEncoder().encode(text));
          end = () => controller.close();
        },
      }),
      { headers: { 'content-type': 'text/event-stream' } },
    );
  const response = await client.fetch(`${rig.url}/report`);
  expect(Receipt.fromResponse(response).status).toBe('success');
  expect(await tempoOf(payTo)).toBe(10_000n);
  const reader = response.body!.getReader();
  push('data: 1\n\n');
  expect(Buffer.from((await reader.read()).value!).toString()).toBe('data: 1\n\n');
  push('data: 2\n\n');
  expect(Buffer.from((await reader.read()).value!).toString()).toBe('data: 2\n\n');
  end();
  expect((await reader.read()).done).toBe(true);
  const replayed = await again(client, '/report');
  expect(await replayed.text()).toBe('data: 1\n\ndata: 2\n\n');
});

test('a stream that breaks off after it was paid is given back where the host still has the money', async () => {
  const client = mppClient(network, key(4));
  const before = await tempoOf(client.address);
  rig.handler = () => new Response(broken());
  const response = await client.fetch(`${rig.url}/listen`, { method: 'POST', body: 'x' });
  expect(response.status).toBe(200);
  await expect(response.text()).rejects.toThrow();
  await until(async () => (await tempoOf(client.address)) === before);
  await reconciled();
  // To a tenant's own wallet it went at once: it is the tenant's debt, and not the operator's to pay.
  const direct = await client.fetch(`${rig.url}/report`);
  await expect(direct.text()).rejects.toThrow();
  const item = await until(async () => (await rig.payments.ledger.open()).find((each) => each.kind === 'tenant-debt'));
  expect(item.command).toBe(`turnpike payments waive ${item.id}`);
  const reference = `0x${'ab'.repeat(32)}`;
  expect(await rig.payments.ledger.resolve(item.id, { action: 'paid', reference })).toBeUndefined();
  expect(await rig.payments.ledger.open()).toEqual([]);
});

test('the caller leaves after it paid: the outcome is recorded and a retry gets the answer, not another charge', async () => {
  const client = mppClient(network, key(0));
  const before = await tempoOf(client.address);
  let finish: () => void = () => {};
  rig.handler = async () => {
    await new Promise<void>((resolve) => {
      finish = resolve;
    });
    return Response.json({ late: true });
  };
  const abort = new AbortController();
  const call = client.fetch(`${rig.url}/report`, { signal: abort.signal }).catch(() => 'gone');
  await until(async () => rig.calls.length === 1);
  abort.abort();
  expect(await call).toBe('gone');
  finish();
  const retry = await again(client, '/report');
  expect(retry.status).toBe(200);
  expect(await retry.json()).toEqual({ late: true });
  expect(rig.calls).toHaveLength(1);
  expect(before - (await tempoOf(client.address))).toBe(10_000n);
});

test('the caller leaves in the middle of a stream: noted, kept, charged once', async () => {
  const client = mppClient(network, key(1));
  const before = await tempoOf(client.address);
  let push: (text: string) => void = () => {};
  let end: () => void = () => {};
  rig.handler = () =>
    new Response(
      new ReadableStream<Uint8Array>({
        start(controller) {
          push = (text) => controller.enqueue(new TextEncoder().encode(text));
          end = () => controller.close();
        },
      }),
    );
  const abort = new AbortController();
  const response = await client.fetch(`${rig.url}/report`, { signal: abort.signal });
  const reader = response.body!.getReader();
  push('first ');
  await reader.read();
  abort.abort();
  const id = response.headers.get('x-payment-id') ?? '';
  // The server learns of it when it next writes.
  await new Promise((resolve) => setTimeout(resolve, 100));
  push('second');
  end();
  await until(
    async () =>
      (await rig.payments.ledger.csv({})).includes(`${id},`) &&
      (await rig.payments.ledger.csv({})).includes('answered'),
  );
  const retry = await again(client, '/report');
  expect(await retry.text()).toBe('first second');
  expect(before - (await tempoOf(client.address))).toBe(10_000n);
});

test('checkBeforePay lets the handler refuse bad input before money is asked', async () => {
  rig.handler = async (request) => {
    const text = await request.text();
    if (text !== 'good') return new Response('bad input', { status: 400 });
    return Response.json({ checked: request.headers.get('x-payment-check') });
  };
  const bad = await fetch(`${rig.url}/checked`, { method: 'POST', body: 'bad' });
  expect(bad.status).toBe(400);
  const client = mppClient(network, key(2));
  const good = await client.fetch(`${rig.url}/checked`, { method: 'POST', body: 'good' });
  expect(await good.json()).toEqual({ checked: null });
  expect(rig.calls.map((call) => call.headers.get('x-payment-check'))).toEqual(['1', '1', null]);
});

test('Idempotency-Key on a route: a retry that signs anew gets the first answer; another body is 409', async () => {
  const client = mppClient(network, key(2));
  let count = 0;
  rig.handler = () => Response.json({ n: ++count }, { headers: { 'x-charge': '0.01' } });
  const before = await tempoOf(client.address);
  const listen = (body: string) =>
    client.fetch(`${rig.url}/listen`, { method: 'POST', body, headers: { 'idempotency-key': 'a' } });
  expect(await (await listen('one')).json()).toEqual({ n: 1 });
  expect(await (await listen('one')).json()).toEqual({ n: 1 });
  expect((await listen('two')).status).toBe(409);
  expect(count).toBe(1);
  await until(async () => before - (await tempoOf(client.address)) === 10_000n);
});

test('payment-identifier: a purchase that is paid anew by x402 under the same name is charged once', async () => {
  const name = 'purchase_0123456789abcdef';
  const [first, second] = [x402Client(network, key(6), name), x402Client(network, key(6), name)];
  const held = await usdcOf(first.address);
  const one = await first.fetch(`${rig.url}/files/a`);
  const two = await second.fetch(`${rig.url}/files/a`);
  expect(second.sent.signature).not.toBe(first.sent.signature);
  expect([one.status, two.status]).toEqual([200, 200]);
  expect(two.headers.get('x-payment-id')).toBe(one.headers.get('x-payment-id'));
  expect(await two.text()).toBe(await one.text());
  expect(rig.calls).toHaveLength(1);
  expect(held - (await usdcOf(first.address))).toBe(30_000n);
  // The name is of one purchase: of another file, of another payer it is another.
  expect((await x402Client(network, key(6), name).fetch(`${rig.url}/files/b`)).status).toBe(409);
  const other = x402Client(network, key(7), name);
  expect((await other.fetch(`${rig.url}/files/a`)).headers.get('x-payment-id')).not.toBe(
    one.headers.get('x-payment-id'),
  );
  expect(rig.calls).toHaveLength(2);
  await reconciled();
});

test('two first uses of one Idempotency-Key at the same time, each signed anew, are one charge', async () => {
  const client = mppClient(network, key(2));
  let count = 0;
  rig.handler = () => Response.json({ n: ++count }, { headers: { 'x-charge': '0.01' } });
  const before = await tempoOf(client.address);
  const answers = await Promise.all(
    Array.from({ length: 4 }, () =>
      client.fetch(`${rig.url}/listen`, { method: 'POST', body: 'x', headers: { 'idempotency-key': 'first' } }),
    ),
  );
  for (const answer of answers) expect([answer.status, await answer.json()]).toEqual([200, { n: 1 }]);
  expect(new Set(answers.map(({ headers }) => headers.get('x-payment-id'))).size).toBe(1);
  expect(count).toBe(1);
  await until(async () => before - (await tempoOf(client.address)) === 10_000n);
});

test('the operator’s share is split off to the last micro-USD', async () => {
  await rig.close();
  await begin(333);
  const operator = network.mpp?.recipient ?? '';
  const [o, ou] = [await tempoOf(operator), await usdcOf(operator)];
  const mpp = mppClient(network, key(0));
  const x402 = x402Client(network, key(1));
  const [t, u] = [await tempoOf(mpp.address), await usdcOf(x402.address)];
  const charges = ['0.000001', '0.012345', '0.049999', '0.00003', '0.05'];
  for (const charge of charges) {
    rig.handler = () => Response.json({}, { headers: { 'x-charge': charge } });
    expect((await mpp.fetch(`${rig.url}/listen`, { method: 'POST', body: 'x' })).status).toBe(200);
    expect((await x402.fetch(`${rig.url}/listen`, { method: 'POST', body: 'x' })).status).toBe(200);
  }
  await mpp.fetch(`${rig.url}/report`);
  await x402.fetch(`${rig.url}/report`);
  const atoms = [1n, 12_345n, 49_999n, 30n, 50_000n, 10_000n];
  const gross = atoms.reduce((sum, atom) => sum + atom, 0n);
  const fee = atoms.reduce((sum, atom) => sum + (atom * 333n) / 10_000n, 0n);
  await until(async () => (await rig.payments.ledger.open()).length === 0 && (await tempoOf(payTo)) === gross - fee);
  await until(async () => (await usdcOf(payTo)) === gross - fee);
  // The operator's share goes out after the tenants' own.
  await until(async () => (await tempoOf(operator)) - o === fee);
  await until(async () => (await usdcOf(operator)) - ou === fee);
  expect(t - (await tempoOf(mpp.address))).toBe(gross);
  expect(u - (await usdcOf(x402.address))).toBe(gross);
  const revenue = await rig.payments.ledger.revenue({ tenant: rig.deployment.tenant });
  expect(revenue.reduce((sum, row) => sum + row.gross, 0n)).toBe(2n * gross);
  expect(revenue.reduce((sum, row) => sum + row.fee, 0n)).toBe(2n * fee);
  await reconciled();
});

test('every payment is a line of the owner’s CSV, and tenants see only their own', async () => {
  const client = mppClient(network, key(0));
  await client.fetch(`${rig.url}/report`);
  const csv = await rig.payments.ledger.csv({ tenant: rig.deployment.tenant });
  expect(csv.split('\r\n')).toHaveLength(3);
  expect(csv).toContain('GET /report');
  expect((await rig.payments.ledger.csv({ tenant: 'tnobody0000000000000' })).split('\r\n')).toHaveLength(2);
});

test('large bodies are hashed nowhere and still stream to the handler', async () => {
  const client = x402Client(network, key(1));
  const body = Buffer.alloc(300_000, 'x');
  rig.handler = async (request) => {
    const received = Buffer.from(await request.arrayBuffer());
    return Response.json({ sha: createHash('sha256').update(received).digest('hex') });
  };
  const response = await client.fetch(`${rig.url}/listen`, { method: 'POST', body });
  expect(await response.json()).toEqual({ sha: createHash('sha256').update(body).digest('hex') });
});

function broken(): ReadableStream<Uint8Array> {
  let pulls = 0;
  return new ReadableStream({
    pull(controller) {
      pulls += 1;
      if (pulls === 1) controller.enqueue(new TextEncoder().encode('some'));
      else controller.error(new Error('killed'));
    },
  });
}
