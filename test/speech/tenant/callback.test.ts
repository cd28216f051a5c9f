import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, expect, it, vi } from 'vitest';
import { checkCallback, deliver, deliverStored } from '../../../builtin-tenants/speech/src/callback.ts';
import type { Visit } from '../../../builtin-tenants/speech/src/context.ts';
import { type PaymentsBinding, readSettings, type Store } from '../../../builtin-tenants/speech/src/settings.ts';

afterEach(() => vi.unstubAllGlobals());

/** As KV: pages in the order of names. */
function storeOf(values: Map<string, string>, pageSize: number): Store {
  return {
    get: async (key) => values.get(key) ?? null,
    put: async (key, value) => void values.set(key, value),
    delete: async (key) => void values.delete(key),
    list: async ({ prefix, cursor = '' }) => {
      const names = [...values.keys()].filter((name) => name.startsWith(prefix) && name > cursor).sort();
      const keys = names.slice(0, pageSize).map((name) => ({ name }));
      return { keys, ...(names.length > pageSize ? { cursor: keys.at(-1)?.name ?? '' } : {}) };
    },
  };
}

/** As the host's binding. */
function paymentsOf(outcome: (asked: { payment: string; attempt: number }) => string): PaymentsBinding {
  return {
    fetch: async (_url, { body }) => Response.json({ outcome: outcome(JSON.parse(String(body))) }),
  };
}

const CALLBACK = { url: 'http://receiver.test/', method: 'POST' as const };

function visitOf(values: Map<string, string>, payments: PaymentsBinding | undefined, headers: Record<string, string>) {
  const later: Promise<unknown>[] = [];
  const visit: Visit = {
    request: new Request('http://speech.test/v1/listen', { method: 'POST', headers }),
    url: new URL('http://speech.test/v1/listen'),
    requestId: 'r1',
    settings: readSettings({}),
    engines: {} as Visit['engines'],
    store: storeOf(values, 10),
    payments,
    waitUntil: (work) => void later.push(work),
  };
  return { visit, later };
}

const PAID = { 'x-payment-id': 'p1', 'x-payment-attempt': '2' };
const DELIVERY = { callback: CALLBACK, requestId: 'r1', contentType: 'text/plain', body: new Uint8Array([1]) };

it('an answer leaves when its call was charged, and not before', async () => {
  const order: string[] = [];
  vi.stubGlobal('fetch', async () => {
    order.push('delivered');
    return new Response();
  });
  const outcomes = ['open', 'open', 'charged'];
  const payments = paymentsOf(({ payment, attempt }) => {
    const outcome = outcomes.shift() ?? 'open';
    order.push(`${payment}.${attempt} ${outcome}`);
    return outcome;
  });
  const values = new Map<string, string>();
  const { visit, later } = visitOf(values, payments, PAID);
  await deliver(visit, DELIVERY);
  expect(order).toEqual([]);
  expect(values.size).toBe(1);
  await Promise.all(later);
  expect(order).toEqual(['p1.2 open', 'p1.2 open', 'p1.2 charged', 'delivered']);
  expect(values.size).toBe(0);
});

it('an answer whose call was not charged is dropped, at once or by the cron trigger', async () => {
  vi.stubGlobal('fetch', () => expect.unreachable());
  const values = new Map<string, string>();
  const { visit, later } = visitOf(
    values,
    paymentsOf(() => 'unpaid'),
    PAID,
  );
  await deliver(visit, DELIVERY);
  const [kept = ''] = values.values();
  await Promise.all(later);
  expect(values.size).toBe(0);
  values.set('callback:r1', kept.replace(/"notBefore":\d+/, '"notBefore":0'));
  const store = storeOf(values, 10);
  await deliverStored(
    store,
    paymentsOf(() => 'open'),
    visit.settings,
  );
  const failing = { fetch: () => Promise.reject(new Error('away')) };
  await deliverStored(store, failing, visit.settings);
  expect(values.size).toBe(1);
  await deliverStored(
    store,
    paymentsOf(() => 'unpaid'),
    visit.settings,
  );
  expect(values.size).toBe(0);
});

it('a callback is refused before any work where nobody can say whether it is paid', () => {
  const values = new Map<string, string>();
  const payments = paymentsOf(() => 'charged');
  const check = (binding: PaymentsBinding | undefined, headers: Record<string, string>) => () =>
    checkCallback(CALLBACK, visitOf(values, binding, headers).visit);
  expect(check(payments, PAID)).not.toThrow();
  expect(check(undefined, PAID)).toThrow(/no callbacks here/);
  expect(check(payments, {})).toThrow(/no callbacks here/);
  expect(check(payments, { 'x-payment-id': 'p1' })).toThrow(/no callbacks here/);
});

it('answers whose receivers are gone keep no other from being delivered', async () => {
  const received: string[] = [];
  const server = createServer((request, reply) => {
    received.push(String(request.headers['dg-request-id']));
    reply.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const good = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  const gone = 'http://gone.test/';
  const real = fetch;
  vi.stubGlobal('fetch', (url: string, init: RequestInit) =>
    url === gone ? Promise.reject(new Error('gone')) : real(url, init),
  );
  const stored = (url: string, requestId: string) =>
    JSON.stringify({
      payment: { id: requestId, attempt: 1 },
      url,
      method: 'POST',
      requestId,
      contentType: 'text/plain',
      body: '',
      notBefore: 0,
    });
  const values = new Map(
    Array.from({ length: 150 }, (_, index) => [`callback:${1_000 + index}`, stored(gone, String(index))]),
  );
  values.set('callback:9999', stored(good, 'good'));
  const settings = readSettings({});
  // Each run reaches it with two chances in three.
  for (let run = 0; run < 60 && received.length === 0; run++)
    await deliverStored(
      storeOf(values, 40),
      paymentsOf(() => 'charged'),
      settings,
    );
  server.close();
  expect(received).toEqual(['good']);
  expect(values.size).toBe(150);
});
