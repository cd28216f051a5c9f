/** What a node answers to a transaction, through the client that the host uses. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createClient, http } from 'viem';
import { sendRawTransaction } from 'viem/actions';
import { base } from 'viem/chains';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isKnown, isNonceUsed, isOpen, isRefusal } from '../../host/payments/methods/chain/node-errors.ts';

let server: Server;
let answer: object;

beforeAll(async () => {
  server = createServer((_, response) => {
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, ...answer }));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
});
afterAll(() => server.close());

async function errorOf(code: number, message: string): Promise<unknown> {
  answer = { error: { code, message } };
  const { port } = server.address() as AddressInfo;
  const client = createClient({ chain: base, transport: http(`http://127.0.0.1:${port}`, { retryCount: 0 }) });
  return sendRawTransaction(client, { serializedTransaction: '0x02' }).catch((error: unknown) => error);
}

test.each([
  [-32000, 'insufficient funds for gas * price + value'],
  [-32003, 'transaction rejected'],
  [3, 'execution reverted'],
  [-32603, 'execution reverted: ERC20: transfer amount exceeds balance'],
])('%i %s is a refusal', async (code, message) => {
  const error = await errorOf(code, message);
  expect([isRefusal(error), isOpen(error)]).toEqual([true, false]);
});

test.each([
  [-32005, 'limit exceeded'],
  [-32002, 'request timed out'],
  [-32007, '15/second request limit reached'],
  [-32603, 'Internal error'],
  [429, 'Your app has exceeded its compute units per second capacity'],
  [-32000, 'already known'],
  [-32000, 'nonce too low: next nonce 5, tx nonce 4'],
  [-32000, 'replacement transaction underpriced'],
  [4, 'The transaction was added to the mempool but was not processed'],
])('%i %s is none', async (code, message) => {
  const error = await errorOf(code, message);
  expect([isRefusal(error), isOpen(error)]).toEqual([false, true]);
  expect([isKnown(error), isNonceUsed(error)]).toEqual([message === 'already known', message.startsWith('nonce')]);
});

test('neither is that nobody answers, or a fault of ours', async () => {
  const client = createClient({ chain: base, transport: http('http://127.0.0.1:1', { retryCount: 0 }) });
  const error = await sendRawTransaction(client, { serializedTransaction: '0x02' }).catch((one: unknown) => one);
  expect([isRefusal(error), isOpen(error)]).toEqual([false, true]);
  expect([isRefusal(new TypeError('x')), isOpen(new TypeError('x'))]).toEqual([false, false]);
});
