/** A wait for a transaction ends once the transaction is in a block, whatever other waits of the same client do. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { defineChain, type Hex } from 'viem';
import { waitForTransactionReceipt } from 'viem/actions';
import { expect, onTestFinished, test } from 'vitest';
import { tempoClient, x402Client } from '../../host/payments/network/clients.ts';
import type { X402Client } from '../../host/payments/network/types.ts';

const [FIRST, SECOND] = [`0x${'11'.repeat(32)}`, `0x${'22'.repeat(32)}`] as const;
const WAIT_MS = 30_000;

const CLIENTS = [
  ['x402', x402Client, waitForTransactionReceipt],
  ['x402’s own action', x402Client, (client, asked) => client.waitForTransactionReceipt(asked)],
  ['Tempo', tempoClient as never, waitForTransactionReceipt],
] as [
  string,
  typeof x402Client,
  (client: X402Client, asked: { hash: Hex; timeout: number }) => Promise<{ status: string }>,
][];

/** A chain with one block, and with two from when its transactions are in the second. */
async function chainOf(clientOf: typeof x402Client) {
  const held: (() => void)[] = [];
  const node = { block: 1, holds: (_method: string, _param: unknown): boolean => false };
  const server = createServer(async (request, response) => {
    const { id, method, params } = (await json(request)) as { id: number; method: string; params?: unknown[] };
    const [hash] = params ?? [];
    const isMined = node.block > 1;
    const known = { hash, transactionHash: hash, blockNumber: isMined ? '0x2' : null, status: '0x1', logs: [] };
    // What the node answers is what it knew when it was asked; the answer may be late.
    const results: Record<string, unknown> = {
      eth_blockNumber: `0x${node.block.toString(16)}`,
      eth_getBlockByNumber: { number: '0x1', transactions: [] },
      eth_getTransactionByHash: known,
      eth_getTransactionReceipt: isMined ? known : null,
    };
    const answer = () => response.end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] }));
    if (node.holds(method, hash)) held.push(answer);
    else answer();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  const { port } = server.address() as AddressInfo;
  const nativeCurrency = { name: 'Ether', symbol: 'ETH', decimals: 18 };
  const rpcUrls = { default: { http: [`http://127.0.0.1:${port}`] } };
  return { node, held, client: clientOf(defineChain({ id: 1, name: 'one', nativeCurrency, rpcUrls })) };
}

test.each(CLIENTS)(
  '%s: a wait that begins as the last block comes, while another is being answered, ends',
  async (_, clientOf, waitAt) => {
    const { node, held, client } = await chainOf(clientOf);
    const wait = async (hash: Hex) => (await waitAt(client, { hash, timeout: WAIT_MS })).status;
    const receiptOf = (hash: Hex) => (method: string, of: unknown) =>
      method === 'eth_getTransactionReceipt' && of === hash;
    node.holds = receiptOf(SECOND);
    const waits = Promise.all([wait(FIRST), wait(SECOND)]);
    await expect.poll(() => held.length).toBe(1);
    node.holds = receiptOf(FIRST);
    node.block = 2;
    await expect.poll(() => held.length).toBe(2);
    // The second one hears that there is no receipt yet only after the first one has heard of the block.
    for (const answer of held) answer();
    node.holds = () => false;
    expect(await waits).toEqual(['success', 'success']);
  },
);

test.each(CLIENTS)('%s: a wait that looks at a block while the last one comes, ends', async (_, clientOf, waitAt) => {
  const { node, held, client } = await chainOf(clientOf);
  node.holds = (method) => method === 'eth_getBlockByNumber';
  const waiting = waitAt(client, { hash: FIRST, timeout: WAIT_MS });
  await expect.poll(() => held.length).toBe(1);
  node.holds = (method) => method === 'eth_blockNumber';
  node.block = 2;
  // The number of the last block is told, and whoever tells it has asked once more, before the look has ended.
  await expect.poll(() => held.length).toBe(2);
  held.pop()?.();
  await expect.poll(() => held.length).toBe(2);
  node.holds = () => false;
  for (const answer of held) answer();
  expect((await waiting).status).toBe('success');
});
