/** Who waits for a transaction hears of it, whenever the others who wait at the same client do. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json } from 'node:stream/consumers';
import { defineChain, type Hex } from 'viem';
import { waitForTransactionReceipt } from 'viem/actions';
import { expect, test } from 'vitest';
import { tempoClient, x402Client } from '../../host/payments/network/clients.ts';
import type { X402Client } from '../../host/payments/network/types.ts';

const [FIRST, SECOND] = [`0x${'11'.repeat(32)}`, `0x${'22'.repeat(32)}`] as const;
const WAIT_MS = 30_000;

test.each([
  ['x402', x402Client, waitForTransactionReceipt],
  ['x402’s own action', x402Client, (client, asked) => client.waitForTransactionReceipt(asked)],
  ['Tempo', tempoClient as never, waitForTransactionReceipt],
] as [
  string,
  typeof x402Client,
  (client: X402Client, asked: { hash: Hex; timeout: number }) => Promise<{ status: string }>,
][])(
  '%s: a wait that begins as the last block comes, while another is being answered, ends',
  async (_, clientOf, waitAt) => {
    let block = 1;
    // What the node answers of a receipt is what it knew when it was asked; the answer may be late.
    const held: { hash: Hex; answer: () => void }[] = [];
    let holds = (_hash: Hex) => false;
    const server = createServer(async (request, response) => {
      const { id, method, params } = (await json(request)) as { id: number; method: string; params: [Hex] };
      const [hash] = params ?? [];
      const isMined = block > 1;
      const known = { hash, transactionHash: hash, blockNumber: isMined ? '0x2' : null, status: '0x1', logs: [] };
      const results: Record<string, unknown> = {
        eth_blockNumber: `0x${block.toString(16)}`,
        eth_getBlockByNumber: { number: '0x1', transactions: [] },
        eth_getTransactionByHash: known,
        eth_getTransactionReceipt: isMined ? known : null,
      };
      const answer = () => response.end(JSON.stringify({ jsonrpc: '2.0', id, result: results[method] }));
      if (method === 'eth_getTransactionReceipt' && holds(hash)) held.push({ hash, answer });
      else answer();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const nativeCurrency = { name: 'Ether', symbol: 'ETH', decimals: 18 };
    const rpcUrls = { default: { http: [`http://127.0.0.1:${port}`] } };
    const client = clientOf(defineChain({ id: 1, name: 'one', nativeCurrency, rpcUrls }));
    const wait = async (hash: Hex) => (await waitAt(client, { hash, timeout: WAIT_MS })).status;
    try {
      holds = (hash) => hash === SECOND;
      const waits = Promise.all([wait(FIRST), wait(SECOND)]);
      await expect.poll(() => held.length).toBe(1);
      holds = (hash) => hash === FIRST;
      block = 2;
      await expect.poll(() => held.length).toBe(2);
      // The second one hears that there is no receipt yet only after the first one has heard of the block.
      for (const { answer } of held) answer();
      holds = () => false;
      expect(await waits).toEqual(['success', 'success']);
    } finally {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  },
);
