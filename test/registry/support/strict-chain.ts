/**
 * A chain that takes each nonce of an account once and in its order, over JSON-RPC: what payouts come to. As nodes behind
 * a balancer do, it tells late of what it took.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  createClient,
  decodeFunctionData,
  erc20Abi,
  type Hex,
  http,
  keccak256,
  parseTransaction,
  publicActions,
  walletActions,
} from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { base } from 'viem/chains';
import type { Network } from '../../../host/payments/network/types.ts';

export const account = privateKeyToAccount(`0x${'11'.repeat(32)}`);
const TOKEN = `0x${'22'.repeat(20)}` as const;

const FIXED: Record<string, unknown> = {
  eth_chainId: '0x2105',
  eth_estimateGas: '0xffff',
  eth_maxPriorityFeePerGas: '0x1',
  eth_blockNumber: '0x10',
  eth_getBlockByNumber: { number: '0x10', timestamp: '0x1', baseFeePerGas: '0x1', transactions: [] },
};

/** The payment network of a host whose only chain is this one. */
export function networkAt(url: string): Network {
  const client = createClient({ chain: base, transport: http(url, { retryCount: 0 }), pollingInterval: 5 });
  const getClient = () => client.extend(publicActions).extend(walletActions);
  const x402 = { chain: base, token: TOKEN, recipient: account.address, getClient };
  return { x402, hostAccounts: { facilitator: account, settler: account } } as unknown as Network;
}

/** What a payment is to be paid out on this chain. */
export function soldBy(seller: string) {
  return { asset: `eip155:${base.id}/${TOKEN}`, recipient: account.address.toLowerCase(), payTo: seller, feeBps: 0 };
}

export class StrictChain {
  /** In the order of their nonces. */
  readonly taken: Hex[] = [];
  /** What each recipient received. */
  readonly received = new Map<string, bigint>();
  /** Sent with a nonce that was taken by another transaction, or that leaves one out. */
  readonly refused: string[] = [];
  readonly #server: Server;
  readonly #lateMs: number;
  #told = 0;

  private constructor(server: Server, lateMs: number) {
    this.#server = server;
    this.#lateMs = lateMs;
  }

  /** @param lateMs until it tells that a nonce is taken */
  static async start(lateMs: number): Promise<StrictChain> {
    const server = createServer(async (request, response) => {
      let text = '';
      for await (const piece of request.setEncoding('utf8')) text += piece;
      const { id, method, params = [] } = JSON.parse(text) as { id: number; method: string; params?: Hex[] };
      const answer = chain.#answer(method, params[0]);
      response.setHeader('content-type', 'application/json').end(JSON.stringify({ jsonrpc: '2.0', id, ...answer }));
    }).listen(0, '127.0.0.1');
    const chain = new StrictChain(server, lateMs);
    await once(server, 'listening');
    return chain;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #answer(method: string, first: Hex | undefined): { result: unknown } | { error: { code: number; message: string } } {
    if (method === 'eth_getTransactionCount') return { result: `0x${this.#told.toString(16)}` };
    if (method === 'eth_sendRawTransaction' && first) return this.#take(first);
    if (!/^eth_getTransaction(ByHash|Receipt)$/.test(method)) return { result: FIXED[method] ?? null };
    const nonce = first ? this.taken.indexOf(first) : -1;
    const found = {
      hash: first,
      transactionHash: first,
      status: '0x1',
      logs: [],
      blockNumber: '0x10',
      nonce: `0x${nonce.toString(16)}`,
    };
    return { result: nonce === -1 ? null : found };
  }

  #take(raw: Hex): { result: Hex } | { error: { code: number; message: string } } {
    const hash = keccak256(raw);
    const { nonce = 0, data = '0x' } = parseTransaction(raw);
    if (this.taken[nonce] === hash) return { error: { code: -32000, message: 'already known' } };
    if (nonce !== this.taken.length) {
      const why = nonce < this.taken.length ? 'nonce too low' : 'nonce too high';
      this.refused.push(`${why}: next nonce ${this.taken.length}, tx nonce ${nonce}`);
      return { error: { code: -32000, message: this.refused.at(-1) ?? '' } };
    }
    this.taken.push(hash);
    const { args } = decodeFunctionData({ abi: erc20Abi, data });
    const [to, amount] = args as [string, bigint];
    this.received.set(to.toLowerCase(), (this.received.get(to.toLowerCase()) ?? 0n) + amount);
    const count = this.taken.length;
    setTimeout(() => {
      this.#told = Math.max(this.#told, count);
    }, this.#lateMs).unref();
    return { result: hash };
  }
}
