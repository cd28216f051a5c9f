/** What the host believes of a node of Solana: that a transaction happened, and that it never will. */
import { expect, test } from 'vitest';
import { confirmed, isOver, outcome } from '../../host/payments/methods/x402/solana/look-up.ts';

type Answers = Record<string, unknown>;

/** A node that answers so; an Error: it does not answer. */
const nodeOf =
  (answers: Answers) =>
  async <T>(method: string): Promise<T> => {
    const answer = answers[method];
    if (answer === undefined || answer instanceof Error) throw answer ?? new Error(`not asked for: ${method}`);
    return answer as T;
  };
const status = (found: object | null) => nodeOf({ getSignatureStatuses: { value: [found] } });
const ok = { err: null, confirmationStatus: 'confirmed' };

test('a transaction counts from its confirmation, and not where it failed', async () => {
  expect(await outcome(status(null), 'sig')).toBeUndefined();
  expect(await outcome(status({ ...ok, confirmationStatus: 'processed' }), 'sig')).toMatchObject({ status: 'unknown' });
  expect(await outcome(status(ok), 'sig')).toEqual({ status: 'settled', reference: 'sig' });
  expect(await outcome(status({ ...ok, err: { InstructionError: [2, {}] } }), 'sig')).toMatchObject({
    status: 'failed',
  });
  expect(await outcome(nodeOf({ getSignatureStatuses: new Error('away') }), 'sig')).toMatchObject({
    status: 'unknown',
  });
  expect(await outcome(nodeOf({ getSignatureStatuses: {} }), 'sig')).toMatchObject({ status: 'unknown' });
  const turns = [null, { ...ok, confirmationStatus: 'processed' }, ok];
  const ask = async <T>() => ({ value: [turns.shift() ?? ok] }) as T;
  expect(await confirmed(ask, 'sig')).toMatchObject({ status: 'settled' });
});

test('a transaction is over only for a node that knows its time, and cannot know it any more', async () => {
  const since = Date.now() - 3_600_000;
  const answers = {
    isBlockhashValid: { value: false },
    getFirstAvailableBlock: 5,
    getBlockTime: Math.floor(since / 1000) - 60,
  };
  const over = (change: Answers = {}, at = since) => isOver(nodeOf({ ...answers, ...change }), 'hash', at);
  expect(await over()).toBe(true);
  expect(await over({}, Date.now() - 60_000)).toBe(false);
  expect(await over({ isBlockhashValid: { value: true } })).toBe(false);
  // It has forgotten the time of the payment, or does not say how far back it knows.
  expect(await over({ getBlockTime: Math.floor(since / 1000) + 60 })).toBe(false);
  expect(await over({ getBlockTime: null })).toBe(false);
  for (const method of Object.keys(answers)) expect(await over({ [method]: new Error('away') })).toBe(false);
});
