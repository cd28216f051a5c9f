/** How much of callers' bodies a process holds, and for how long. */
import { expect, test } from 'vitest';
import { BodyBudget } from '../../host/shared/request-body.ts';

const LIMITS = { perCaller: 100, total: 150, leastBytes: 1, periodMs: 60_000 };

/** A request whose body is written by hand. */
function open() {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  const request = new Request('http://h/', { method: 'POST', body: readable, duplex: 'half' } as RequestInit);
  const writer = writable.getWriter();
  const settled = (promise: Promise<unknown>) => promise.catch(() => {});
  return {
    request,
    send: (bytes: number) => settled(writer.write(new Uint8Array(bytes))),
    end: () => settled(writer.close()),
  };
}

const post = (bytes: number) => new Request('http://h/', { method: 'POST', body: new Uint8Array(bytes) });

test('a body counts until it is released', async () => {
  const budget = new BodyBudget(LIMITS);
  const request = post(80);
  const body = await budget.read(request, 100, 'a');
  expect(body).toHaveLength(80);
  expect(budget.bytes).toBe(80);
  await expect(budget.read(post(30), 100, 'a')).rejects.toMatchObject({
    code: 'overloaded',
    headers: { 'retry-after': '5' },
  });
  budget.release(request);
  budget.release(request);
  expect(budget.bytes).toBe(0);
  expect(body.buffer.byteLength).toBe(0);
  expect(await budget.read(post(30), 100, 'a')).toHaveLength(30);
});

test('a body over its limit is refused, declared or not, and counts no more', async () => {
  const budget = new BodyBudget(LIMITS);
  await expect(budget.read(post(11), 10, 'a')).rejects.toMatchObject({ code: 'too_large' });
  const declared = new Request('http://h/', { method: 'POST', body: 'x', headers: { 'content-length': '11' } });
  await expect(budget.read(declared, 10, 'a')).rejects.toMatchObject({ code: 'too_large' });
  expect(budget.bytes).toBe(0);
});

test('where all is taken, the unfinished bodies of the caller with the most give way', async () => {
  const budget = new BodyBudget(LIMITS);
  const greedy = open();
  const refused = expect(budget.read(greedy.request, 100, 'greedy')).rejects.toMatchObject({ code: 'overloaded' });
  await greedy.send(90);
  const other = post(50);
  await budget.read(other, 100, 'other');
  expect(await budget.read(post(40), 100, 'honest')).toHaveLength(40);
  await refused;
  expect(budget.bytes).toBe(90);
});

test('whoever holds the most is refused itself', async () => {
  const budget = new BodyBudget(LIMITS);
  await budget.read(post(90), 100, 'a');
  await budget.read(post(60), 100, 'b');
  await expect(budget.read(post(10), 100, 'b')).rejects.toMatchObject({ code: 'overloaded' });
  expect(budget.bytes).toBe(150);
});

test('an IPv6 network is one caller', async () => {
  const budget = new BodyBudget(LIMITS);
  await budget.read(post(60), 100, '2001:db8:0:1::1');
  await expect(budget.read(post(60), 100, '2001:db8::1:2:3:4:5')).rejects.toMatchObject({ code: 'overloaded' });
  expect(await budget.read(post(60), 100, '2001:db8:0:2::1')).toHaveLength(60);
});

test('a body that does not come is given up', async () => {
  const budget = new BodyBudget({ ...LIMITS, periodMs: 5 });
  const slow = open();
  await expect(budget.read(slow.request, 100, 'a')).rejects.toMatchObject({ code: 'request_timeout' });
  expect(budget.bytes).toBe(0);
});

test('a body that comes in pieces and declares nothing is put together', async () => {
  const budget = new BodyBudget({ ...LIMITS, perCaller: 200_000, total: 200_000 });
  const body = open();
  const read = budget.read(body.request, 150_000, 'a');
  for (const bytes of [1, 65_535, 65_536, 10]) await body.send(bytes);
  await body.end();
  expect(await read).toHaveLength(131_082);
});
