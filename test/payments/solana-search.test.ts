/** How a payment is found among what moved its payer's money, on nodes that answer slowly, in pages, or not at all. */
import { expect, test } from 'vitest';
import { Search } from '../../host/payments/methods/x402/solana/search.ts';

const SINCE = 1_900_000_000_000;
const MOST_READ = 100;
const PAGE = 1_000;
const signatureOf = (index: number) => `${index}`.replaceAll('0', 'z').padStart(88, 'A');
const wireOf = (message: string) => Buffer.concat([Buffer.from([1]), Buffer.alloc(64), Buffer.from(message)]);
const sent = { payment: { createdAt: SINCE }, source: 'account', message: Buffer.from('mine') };

/** A transaction in the payer's history: what it says, and when it happened, ms after the payment began. */
type Past = { message: string; at?: number; err?: object; isHidden?: boolean; code?: number };

/** @param history newest first */
function nodeOf(history: Past[]) {
  const asked = { transactions: 0 };
  const ask = async (method: string, [of, how]: readonly unknown[]) => {
    if (method === 'getSignaturesForAddress') {
      const { before, limit } = how as { before?: string; limit: number };
      const from = before === undefined ? 0 : history.findIndex((_, index) => signatureOf(index) === before) + 1;
      return history.slice(from, from + limit).map(({ at = 1_000 }, index) => ({
        signature: signatureOf(from + index),
        blockTime: (SINCE + at) / 1_000,
      }));
    }
    asked.transactions += 1;
    const found = history.find((_, index) => signatureOf(index) === of);
    if (found?.code !== undefined) throw Object.assign(new Error('no'), { code: found.code });
    if (!found || found.isHidden) return null;
    return { transaction: [wireOf(found.message).toString('base64'), 'base64'], meta: { err: found.err ?? null } };
  };
  return { asked, search: new Search(ask as never) };
}

const settled = (index: number) => ({ status: 'settled', reference: signatureOf(index) });

test('it is what has the same message, whatever is said of it, and failed where it failed', async () => {
  const others = [{ message: 'other' }, { message: 'mine' }, { message: 'other' }];
  for (const first of ['', signatureOf(0), signatureOf(1), signatureOf(9), '../x', 'x'.repeat(200)])
    expect(await nodeOf(others).search.find(sent, first)).toEqual(settled(1));
  expect(await nodeOf([{ message: 'mine', err: {} }]).search.find(sent)).toMatchObject({ status: 'failed' });
  expect(await nodeOf([{ message: 'other' }]).search.find(sent)).toBeUndefined();
  expect(await nodeOf([]).search.find(sent, signatureOf(0))).toBeUndefined();
});

test('what happened before the payment, or after its transaction had ended, is not read', async () => {
  const times = [{ at: 400_000 }, { at: 300_000 }, { at: 1_000 }, { at: -100_000 }, { at: -200_000 }];
  const { asked, search } = nodeOf(times.map((one) => ({ message: 'other', ...one })));
  expect(await search.find(sent)).toBeUndefined();
  expect(asked.transactions).toBe(1);
});

test('a node that lists and does not show, or fails, leaves it open', async () => {
  const unknown = { status: 'unknown' };
  expect(await nodeOf([{ message: 'mine', isHidden: true }]).search.find(sent)).toMatchObject(unknown);
  expect(await nodeOf([{ message: 'other', code: -32_005 }]).search.find(sent)).toMatchObject(unknown);
  const silent = async () => {
    throw new Error('away');
  };
  expect(await new Search(silent).find(sent)).toMatchObject(unknown);
  // Of a version that no payment has.
  const versions = [{ message: 'other', code: -32_015 }, { message: 'mine' }];
  expect(await nodeOf(versions).search.find(sent)).toEqual(settled(1));
});

test('an account that moves much is searched bit by bit, over pages', async () => {
  const before = PAGE + 50;
  const { asked, search } = nodeOf(
    Array.from({ length: before + 1 }, (_, index) => ({ message: index === before ? 'mine' : `other ${index}` })),
  );
  const rounds = Math.ceil(before / MOST_READ);
  for (let round = 1; round < rounds; round++) {
    expect(await search.find(sent)).toMatchObject({ status: 'unknown' });
    expect(asked.transactions).toBe(round * MOST_READ);
  }
  expect(await search.find(sent)).toEqual(settled(before));
  expect(asked.transactions).toBe(before + 1);
});
