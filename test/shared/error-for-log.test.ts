/** Errors in the log: those of RPC calls without the request, the URL and the stack. */
import { createClient, http } from 'viem';
import { getBalance } from 'viem/actions';
import { expect, it } from 'vitest';
import { errorForLog } from '../../host/shared/error-for-log.ts';

/** Nothing listens there: port 9 is discard. */
const client = createClient({ transport: http('http://127.0.0.1:9/key-of-the-operator', { retryCount: 0 }) });
const failure = await getBalance(client, { address: `0x${'a'.repeat(40)}` }).catch((error: unknown) => error as Error);

it('an RPC that does not answer is told in a line, without its URL', () => {
  expect((failure as Error).stack).toContain('key-of-the-operator');
  expect(errorForLog(failure)).toEqual({ type: expect.any(String), message: 'HTTP request failed. fetch failed' });
});

it('so is what it caused', () => {
  const error = new Error('The payout failed.', { cause: failure });
  expect(errorForLog(error)).toEqual({
    type: 'Error',
    message: 'The payout failed. HTTP request failed. fetch failed',
  });
});

it('other errors are kept whole', () => {
  expect(errorForLog(new TypeError('no'))).toMatchObject({
    type: 'TypeError',
    message: 'no',
    stack: expect.anything(),
  });
  expect(errorForLog('text')).toBe('text');
});
