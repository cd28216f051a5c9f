/** Those who do not pay, in a flood: the tenant's free routes do not suffer. On the real host with real workerd. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Challenge } from 'mppx';
import { Pool } from 'undici';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectTime, JUDGE_TIMES } from '../times.ts';
import { deploy, jsonPut, mppFetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { noncesOf, requiredBesideNonces } from './support/payment-required.ts';

const FLOOD = fileURLToPath(new URL('fixtures/flood.ts', import.meta.url));
const PER_SECOND = 3_000;
/** A flood that comes to less of its rate than this asked more of the machine than it has. */
const KEPT = 0.95;
/** Of what such a machine makes: the rest is for those whose calls are timed. */
const SHARE = 0.6;
/** Calls a second that any machine makes. */
const LEAST = 300;
const SECONDS = 1;
/** One is enough where no times are judged. */
const ROUNDS = JUDGE_TIMES ? 5 : 1;
const CALLERS = 4;
/** Between two calls of a caller: callers who want all of both cores themselves would measure each other. */
const PACE_MS = 4;

const HANDLER = `let calls = 0;
export default {
  fetch(request) {
    const { pathname } = new URL(request.url);
    if (pathname === '/calls') return Response.json(calls);
    if (pathname !== '/free') calls += 1;
    return new Response('hello');
  },
};`;

let host: TestHost;
let pool: Pool;

beforeAll(async () => {
  host = await startHost();
  await deploy(mppFetch(host.network, 0), host.url, {
    slug: 'shop',
    code: HANDLER,
    paidRoutes: [
      { method: 'GET', path: '/report', price: '0.01' },
      { method: 'POST', path: '/listen', price: '0.05', mode: 'metered' },
    ],
  });
  pool = new Pool(host.url, { connections: CALLERS });
  await latencies(0.5);
});
afterAll(async () => {
  await pool?.close();
  await host?.stop();
});

/** A few callers of the free route, each one call after the other, steadily. @returns how long each call took, ms */
async function latencies(seconds: number): Promise<number[]> {
  const took: number[] = [];
  const end = performance.now() + seconds * 1000;
  const caller = async () => {
    while (performance.now() < end) {
      const from = performance.now();
      const answer = await pool.request({ path: '/shop/free', method: 'GET' });
      await answer.body.dump();
      took.push(performance.now() - from);
      expect(answer.statusCode).toBe(200);
      await delay(PACE_MS);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  return took;
}

/** What most callers see; the slowest calls are those that the machine's other work held up. */
const median = (values: number[]) => values.toSorted((a, b) => a - b)[values.length >> 1] ?? Number.NaN;
const rounded = (value: number) => value.toFixed(2);

interface Flood {
  perSecond: number;
  statuses: Record<string, number>;
}

/** Floods a route for as long as `work` takes. @param rate calls a second */
async function flooding<T>(route: string, body: string, rate: number, work: () => Promise<T>): Promise<[T, Flood]> {
  const args = [FLOOD, `${host.url}/shop${route}`, String(rate), body];
  const child = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout });
  const said = lines[Symbol.asyncIterator]();
  expect((await said.next()).value).toBe('running');
  try {
    const result = await work();
    child.stdin.end();
    return [result, JSON.parse((await said.next()).value ?? '')];
  } finally {
    child.kill();
  }
}

test.each([
  ['without a body', '/report', ''],
  ['with a body', '/listen', JSON.stringify({ audio: 'x'.repeat(200) })],
])('3,000 unpaid calls a second %s leave a free route of the same tenant open', async (_name, path, body) => {
  const alone: number[] = [];
  const beside: number[] = [];
  let rate = PER_SECOND;
  await flooding(path, body, rate, () => latencies(2 * SECONDS));
  while (beside.length < ROUNDS) {
    const before = median(await latencies(SECONDS));
    const [took, flood] = await flooding(path, body, rate, () => latencies(SECONDS));
    expect(Object.keys(flood.statuses)).toEqual(['402']);
    if (!JUDGE_TIMES || flood.perSecond > rate * KEPT) {
      alone.push(before);
      beside.push(median(took));
      continue;
    }
    rate = Math.floor(flood.perSecond * SHARE);
    console.log(`this machine made ${Math.round(flood.perSecond)} a second; now flooded with ${rate}`);
    expect(rate, 'calls a second that the machine makes').toBeGreaterThan(LEAST);
    alone.length = 0;
    beside.length = 0;
  }
  const said = `median ms a call, alone: ${alone.map(rounded)}; beside the flood: ${beside.map(rounded)}`;
  console.log(said);
  expectTime(said, median(beside), 2 * median(alone));
  const calls = await pool.request({ path: '/shop/calls', method: 'GET' });
  expect(await calls.body.json()).toBe(0);
});

test('each 402 of many equal calls is a payment of its own, at the price of that moment', async () => {
  const url = `${host.url}/shop/report`;
  const ask = async (id?: string) => {
    const answer = await fetch(url, id === undefined ? {} : { headers: { 'x-request-id': id } });
    const { requestId, ...body } = (await answer.json()) as { requestId: string; [name: string]: unknown };
    expect(answer.status).toBe(402);
    expect(requestId).toBe(answer.headers.get('x-request-id'));
    return { answer, body, requestId };
  };
  const asked = await Promise.all(Array.from({ length: 20 }, () => ask()));
  // An edge answers from here on.
  for (let turn = 0; turn < 20; turn++) asked.push(await ask());
  const parts = asked.map(({ answer }) => Challenge.fromResponse(answer));
  for (const name of ['id', 'opaque'] as const)
    expect(new Set(parts.map((challenge) => challenge[name])).size, name).toBe(asked.length);
  expect(new Set(asked.map(({ requestId }) => requestId)).size).toBe(asked.length);
  const nonces = asked.flatMap(({ answer }) => noncesOf(answer));
  expect(nonces.every((nonce) => /^[0-9a-f-]{36}$/.test(nonce))).toBe(true);
  expect(new Set(nonces).size).toBe(asked.length);
  const [first] = asked;
  for (const { answer, body } of asked) {
    expect(body).toEqual(first?.body);
    expect(requiredBesideNonces(answer)).toEqual(first && requiredBesideNonces(first.answer));
    expect([...answer.headers.keys()]).toEqual([...(first?.answer.headers.keys() ?? [])]);
    expect([...answer.headers].some(([name]) => name.startsWith('x-turnpike'))).toBe(false);
  }
  // What a caller calls its call is text of the answer, too.
  for (const id of ['realm-of-mine', 'tempo.charge', 'Payment-id']) expect((await ask(id)).requestId).toBe(id);
  expect((await ask()).body).toEqual(first?.body);
  // Clients that pay what an edge wrote, at once: none is charged for another's call.
  const pay = mppFetch(host.network, 0);
  const paid = await Promise.all(Array.from({ length: 4 }, () => pay(url)));
  expect(paid.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(new Set(paid.map(({ headers }) => headers.get('x-payment-id'))).size).toBe(4);
  const settings = jsonPut({ code: HANDLER, paidRoutes: [{ method: 'GET', path: '/report', price: '0.02' }] });
  const updated = await pay(`${host.url}/_admin/code/shop`, settings);
  expect(updated.status, await updated.clone().text()).toBe(200);
  expect((await ask()).body).toMatchObject({ price: { amount: '0.02' } });
});
