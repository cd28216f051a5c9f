/** The toll's small parts: charges, and bodies that pass through. */
import { expect, test } from 'vitest';
import { passThrough, readsWhole, readWhole, type StreamEnd } from '../../host/payments/toll/answer.ts';
import { chargeOf, maxPrice } from '../../host/payments/toll/charge.ts';
import { Toll, type TollOptions } from '../../host/payments/toll/toll.ts';
import type { TollDeployment } from '../../host/payments/types.ts';
import type { EdgeContext } from '../../host/shared/contracts.ts';
import { micro } from '../../host/shared/money.ts';
import { KeyedLock } from '../../host/shared/mutex.ts';

test.each([
  ['0.0123', 12_300n],
  [' 0.01 ', 10_000n],
  ['0', 0n],
  ['0.05', 50_000n],
  ['0.050001', 50_000n],
  ['999999', 50_000n],
  [null, 50_000n],
])('a metered charge of %j with a price of 0.05 is %s', (said, charged) => {
  expect(chargeOf('metered', said, micro(50_000))).toBe(charged);
});

test.each(['-0.01', '+1', 'NaN', 'Infinity', '1e-2', '', '0,01', '0.0000001', '0x10', '0.01, 0.02', '٠.٠١', '1_0'])(
  'a charge of %j is refused',
  (said) => {
    expect(() => chargeOf('metered', said, micro(50_000))).toThrow('Nothing was charged');
  },
);

test.each([['0.01'], ['99'], [null]])('a charge of %j above the caller’s own limit is withheld', (said) => {
  expect(() => chargeOf('metered', said, micro(50_000), micro(0))).toThrow('more than x-max-price allows');
});

test('OPTIONS of a priced path never runs the handler unpaid', async () => {
  const forward = () => Promise.reject(new Error('the handler ran'));
  const toll = new Toll({ forward } as unknown as TollOptions);
  const asks = { 'access-control-request-method': 'GET', 'access-control-request-headers': 'X-Own, b d' };
  const options = (method: string, headers: Record<string, string>) => {
    const deployment = { slug: 's', paidRoutes: [{ method, path: '/paid', price: '1', mode: 'fixed' }] };
    return toll.handle(
      new Request('http://h/paid', { method: 'OPTIONS', headers }),
      { tenantPath: '/Paid/', requestId: 'r' } as EdgeContext,
      deployment as unknown as TollDeployment,
    );
  };
  for (const method of ['*', 'GET', 'POST', 'OPTIONS']) {
    const { status, headers } = await options(method, asks);
    expect(status).toBe(204);
    expect(headers.get('access-control-allow-methods')).toContain(method === '*' ? 'DELETE' : method);
    expect(headers.get('access-control-allow-headers')).toMatch(/authorization.*x-max-price, x-own$/);
    expect(headers.get('access-control-allow-credentials')).toBeNull();
  }
  const plain = await options('GET', {});
  expect([plain.status, plain.headers.get('allow')]).toEqual([204, 'GET, HEAD, OPTIONS']);
});

test('a fixed price is what it is, whatever the handler says', () => {
  expect(chargeOf('fixed', '0', micro(5))).toBe(5n);
  expect(chargeOf('fixed', 'nonsense', micro(5))).toBe(5n);
});

test('x-max-price is an amount or a bad request', () => {
  expect(maxPrice(new Headers({ 'x-max-price': '0.5' }))).toBe(500_000n);
  expect(maxPrice(new Headers())).toBeUndefined();
  expect(() => maxPrice(new Headers({ 'x-max-price': 'much' }))).toThrow('decimal amount');
});

const stream = (...chunks: (string | Error)[]) =>
  new ReadableStream<Uint8Array>({
    pull(controller) {
      const chunk = chunks.shift();
      if (chunk === undefined) controller.close();
      else if (chunk instanceof Error) controller.error(chunk);
      else controller.enqueue(new TextEncoder().encode(chunk));
    },
  });

function outcome() {
  const result = Promise.withResolvers<StreamEnd>();
  result.promise.catch(() => {});
  return { result: result.promise, ended: async (end: Promise<StreamEnd>) => end.then(result.resolve, result.reject) };
}

/** A caller that stays. */
const here = new AbortController().signal;

test('a body that passes through is kept', async () => {
  const { result, ended } = outcome();
  expect(await new Response(passThrough(stream('a', 'b', 'c'), here, ended)).text()).toBe('abc');
  expect(await result).toEqual({ kept: Buffer.from('abc'), clientGone: false });
});

test('when the caller leaves, the rest is still read and kept', async () => {
  const { result, ended } = outcome();
  const reader = passThrough(stream('a', 'b', 'c'), here, ended).getReader();
  await reader.read();
  await reader.cancel();
  expect(await result).toEqual({ kept: Buffer.from('abc'), clientGone: true });
});

test('a caller that left before anything was sent does not leave the payment open', async () => {
  for (const late of [false, true]) {
    const { result, ended } = outcome();
    const caller = new AbortController();
    if (!late) caller.abort();
    passThrough(stream('a', 'b', 'c'), caller.signal, ended);
    if (late) caller.abort();
    const { kept, clientGone } = await result;
    expect(clientGone).toBe(true);
    expect(kept?.toString().endsWith('c')).toBe(true);
  }
});

test('a body that is too large is passed on and not kept', async () => {
  const { result, ended } = outcome();
  const big = 'x'.repeat(700_000);
  expect((await new Response(passThrough(stream(big, big), here, ended)).text()).length).toBe(1_400_000);
  expect((await result).kept).toBeUndefined();
});

test('a body that breaks off is an error for both sides', async () => {
  const { result, ended } = outcome();
  await expect(new Response(passThrough(stream('a', new Error('killed')), here, ended)).text()).rejects.toThrow(
    'killed',
  );
  await expect(result).rejects.toThrow('killed');
});

test('small declared bodies are read whole; streams and large ones are not', async () => {
  expect(readsWhole(new Response(null))).toBe(true);
  expect(readsWhole(new Response('abc', { headers: { 'content-length': '3' } }))).toBe(true);
  expect(readsWhole(new Response('abc', { headers: { 'content-length': '99999999' } }))).toBe(false);
  expect(readsWhole(new Response(stream('a')))).toBe(false);
  await expect(readWhole(new Response('ab', { headers: { 'content-length': '3' } }))).rejects.toThrow('cut short');
});

test('a lock gives turns in order, and a failure ends the turn', async () => {
  const lock = new KeyedLock();
  const order: number[] = [];
  const work = [3, 1, 2].map((n) =>
    lock.run('k', async () => {
      await new Promise((resolve) => setTimeout(resolve, n));
      order.push(n);
      if (n === 1) throw new Error('no');
    }),
  );
  await Promise.allSettled(work);
  expect(order).toEqual([3, 1, 2]);
  const other: string[] = [];
  const release = await lock.acquire('a');
  await lock.run('b', async () => void other.push('b'));
  release();
  expect(other).toEqual(['b']);
});
