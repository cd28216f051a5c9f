/** What unfinished heads may take together. */
import { expect, test } from 'vitest';
import { HeadBudget, incoming } from '../../host/http/message/incoming.ts';

const MAX_BYTES = 65_536;
const begin = (bytes: number) => Buffer.from(`GET / HTTP/1.1\r\nx: ${'a'.repeat(bytes)}`, 'latin1');

test('large heads have a budget; small ones are always taken, and what has ended counts no more', () => {
  const budget = new HeadBudget(200_000);
  const heads = Array.from({ length: 4 }, () => incoming(MAX_BYTES, budget));
  for (const head of heads.slice(0, 3)) expect(head.take(begin(60_000), 0)).toBeUndefined();
  const last = heads[3] as (typeof heads)[0];
  expect(() => last.take(begin(60_000), 0)).toThrow(/Too many large request heads/);
  expect(incoming(MAX_BYTES, budget).take(begin(1_000), 0)).toBeUndefined();
  heads[0]?.end();
  expect(last.take(begin(60_000), 0)).toBeUndefined();
  expect(last.take(Buffer.from('\r\n\r\n'), 0)?.text).toHaveLength(60_021);
  for (const head of heads) head.end();
  expect(budget.bytes).toBeLessThan(4_096);
});

test('an unfinished head takes no more memory than a head may have', () => {
  const budget = new HeadBudget(MAX_BYTES * 2);
  incoming(MAX_BYTES, budget).take(begin(60_000), 0);
  expect(budget.bytes).toBeLessThanOrEqual(MAX_BYTES + 4);
});
