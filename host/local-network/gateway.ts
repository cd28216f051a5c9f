/**
 * The RPC gateway: the only way to the embedded chain, on loopback. Parses with rpc-protocol.ts, sends transactions
 * through the chain's journal, and maps calls to the session precompile to its stand-in.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Problem } from '../shared/problem.ts';
import { authorizationGas } from './authorization-gas.ts';
import type { EmbeddedChain } from './embedded-chain.ts';
import { type RpcAnswer, RpcDisconnected, type RpcError } from './json-rpc-socket.ts';
import { MAX_BODY_BYTES, parseRpcRequest, type RpcCall } from './rpc-protocol.ts';
import { simulatedDeposit } from './session-reserve.ts';

/** anvil's estimate leaves out what the reserve's nested token calls cost (seen with 1.7.1); gas is free here. */
const RESERVE_GAS_MARGIN = 500_000n;

/** Nothing costs gas here. anvil answers a tip of 1 gwei even so, which payers would then pay in the token. */
const FREE = new Map([
  ['eth_gasPrice', '0x0'],
  ['eth_maxPriorityFeePerGas', '0x0'],
]);

const SIMULATIONS = new Set(['eth_call', 'eth_estimateGas', 'eth_fillTransaction', 'eth_createAccessList']);
const LOOPBACK_HOST = /^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/i;

/** viem repeats a call by itself after this code; the status 503 says the same to others. */
const RESTARTING: RpcError = { code: -32603, message: 'the local chain is starting again; try once more in a moment' };

export interface Gateway {
  url: string;
  close(): Promise<void>;
}

/** @throws Problem `start_failed` when the port is taken */
export async function startGateway(chain: EmbeddedChain, port: number): Promise<Gateway> {
  const server = createServer((request, response) => void serve(chain, request, response));
  await listen(server, port);
  const { port: actual } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${actual}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const why = error.code === 'EADDRINUSE' ? 'is taken' : `cannot be used (${error.code})`;
      reject(
        new Problem(
          'start_failed',
          `Port ${port} of the local network ${why}: set payments.localPort to 0 or another.`,
        ),
      );
    });
    server.listen(port, '127.0.0.1', resolve);
  });
}

async function serve(chain: EmbeddedChain, request: IncomingMessage, response: ServerResponse): Promise<void> {
  // A page in a browser may reach loopback under a name of its own (DNS rebinding); such a Host is refused.
  if (!LOOPBACK_HOST.test(request.headers.host ?? '')) return refuse(response, 403, 'use 127.0.0.1 or localhost');
  if (request.method !== 'POST') return refuse(response, 405, 'send JSON-RPC by POST');
  const body = await readBody(request);
  if (body === undefined) return refuse(response, 413, `at most ${MAX_BODY_BYTES} bytes`);
  const parsed = parseRpcRequest(body);
  if ('error' in parsed) return send(response, 200, { jsonrpc: '2.0', id: null, error: parsed.error });
  const answers = await Promise.all(
    parsed.calls.map(async (call) => ({ jsonrpc: '2.0', id: call.id, ...(await answer(chain, call)) })),
  );
  const down = answers.some((one) => 'error' in one && one.error === RESTARTING);
  send(response, down ? 503 : 200, parsed.batch ? answers : answers[0]);
}

async function answer(chain: EmbeddedChain, call: RpcCall): Promise<RpcAnswer> {
  if (call.kind === 'refused') return { error: call.error };
  try {
    if (call.kind === 'send') {
      const sent = explained(await chain.send(call.raw));
      if ('error' in sent || !call.wantsReceipt) return sent;
      return await chain.call('eth_getTransactionReceipt', [sent.result]);
    }
    return explained(await read(chain, call.method, call.params));
  } catch (error) {
    if (error instanceof RpcDisconnected) return { error: RESTARTING };
    return { error: { code: -32603, message: 'the local chain could not do that' } };
  }
}

/** anvil 1.7.1 knows Tempo up to T4, where an expiring nonce is 0; viem signs since 2.57 for what came after it. */
function explained(answer: RpcAnswer): RpcAnswer {
  if (!('error' in answer) || !answer.error.message.includes('expiring nonce transaction must have nonce == 0'))
    return answer;
  const message = `${answer.error.message}. The local network is Tempo T4: pay with viem up to 2.56 (npm install viem@2.56.9)`;
  return { error: { ...answer.error, message } };
}

async function read(chain: EmbeddedChain, method: string, params: unknown[]): Promise<RpcAnswer> {
  const free = FREE.get(method);
  if (free !== undefined) return { result: free };
  if (!SIMULATIONS.has(method)) return chain.call(method, params);
  await chain.freshen();
  const [transaction, ...rest] = params;
  const { touches, deposit } = simulatedDeposit(transaction);
  if (deposit) await chain.allow(deposit);
  const authorization = authorizationGas(transaction);
  const found = await chain.call(method, [
    method === 'eth_call' ? less(transaction, authorization) : transaction,
    ...rest,
  ]);
  if ('error' in found) return found;
  const margin = authorization + (touches ? RESERVE_GAS_MARGIN : 0n);
  if (method === 'eth_fillTransaction') return { result: withoutTip(found.result, margin) };
  if (method === 'eth_estimateGas' && margin > 0n) return { result: more(found.result as string, margin) };
  return found;
}

/** The transaction that anvil proposes, with no tip, and with the gas that anvil leaves out. */
function withoutTip(result: unknown, margin: bigint): unknown {
  const filled = result as { tx?: { gas?: string; maxPriorityFeePerGas?: string; maxFeePerGas?: string } };
  if (!filled.tx) return result;
  return {
    ...filled,
    tx: {
      ...filled.tx,
      ...(filled.tx.maxPriorityFeePerGas === undefined ? {} : { maxPriorityFeePerGas: '0x0', maxFeePerGas: '0x0' }),
      ...(margin > 0n && filled.tx.gas !== undefined ? { gas: more(filled.tx.gas, margin) } : {}),
    },
  };
}

function more(gas: string, margin: bigint): string {
  return `0x${(BigInt(gas) + margin).toString(16)}`;
}

/** A call with what is left of its gas. */
function less(transaction: unknown, taken: bigint): unknown {
  const { gas } = Object(transaction) as { gas?: unknown };
  if (taken === 0n || typeof gas !== 'string' || !/^0x[0-9a-f]+$/i.test(gas)) return transaction;
  const left = BigInt(gas) - taken;
  return { ...Object(transaction), gas: `0x${(left > 0n ? left : 0n).toString(16)}` };
}

/** Undefined when it is larger than allowed. */
async function readBody(request: IncomingMessage): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > MAX_BODY_BYTES) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}

function refuse(response: ServerResponse, status: number, message: string): void {
  response.setHeader('connection', 'close');
  send(response, status, { jsonrpc: '2.0', id: null, error: { code: -32600, message } });
}

function send(response: ServerResponse, status: number, document: unknown): void {
  response.writeHead(status, {
    'content-type': 'application/json',
    ...(status === 503 ? { 'retry-after': '1' } : {}),
  });
  response.end(JSON.stringify(document));
}
