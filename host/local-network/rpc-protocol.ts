/**
 * What the RPC gateway lets through: the boundary between anything on this machine and the embedded chain.
 * An allow-list, because anvil answers methods (`anvil_*`, `evm_*`, `eth_sendTransaction`, ...) that forge anything.
 */
import type { RpcError } from './json-rpc-socket.ts';

export const MAX_BODY_BYTES = 1_048_576;
export const MAX_BATCH = 100;

const READING = new Set([
  'eth_blobBaseFee',
  'eth_blockNumber',
  'eth_call',
  'eth_chainId',
  'eth_createAccessList',
  'eth_estimateGas',
  'eth_feeHistory',
  'eth_fillTransaction',
  'eth_gasPrice',
  'eth_getBalance',
  'eth_getBlockByHash',
  'eth_getBlockByNumber',
  'eth_getBlockReceipts',
  'eth_getBlockTransactionCountByHash',
  'eth_getBlockTransactionCountByNumber',
  'eth_getCode',
  'eth_getLogs',
  'eth_getProof',
  'eth_getStorageAt',
  'eth_getTransactionByBlockHashAndIndex',
  'eth_getTransactionByBlockNumberAndIndex',
  'eth_getTransactionByHash',
  'eth_getTransactionCount',
  'eth_getTransactionReceipt',
  'eth_maxPriorityFeePerGas',
  'eth_syncing',
  'net_listening',
  'net_version',
  'web3_clientVersion',
]);

const SENDING = new Set(['eth_sendRawTransaction', 'eth_sendRawTransactionSync']);

export type RpcId = string | number | null;

export type RpcCall =
  | { kind: 'read'; id: RpcId; method: string; params: unknown[] }
  | { kind: 'send'; id: RpcId; raw: string; wantsReceipt: boolean }
  | { kind: 'refused'; id: RpcId; error: RpcError };

export type RpcRequest = { batch: boolean; calls: RpcCall[] } | { error: RpcError };

/** @param body a request body as it came: nothing about it is known */
export function parseRpcRequest(body: string): RpcRequest {
  let document: unknown;
  try {
    document = JSON.parse(body);
  } catch {
    return { error: { code: -32700, message: 'the body is not JSON' } };
  }
  if (!Array.isArray(document)) return { batch: false, calls: [parseCall(document)] };
  if (document.length === 0) return { error: { code: -32600, message: 'the batch is empty' } };
  if (document.length > MAX_BATCH) {
    return { error: { code: -32600, message: `at most ${MAX_BATCH} calls in a batch` } };
  }
  return { batch: true, calls: document.map(parseCall) };
}

function parseCall(call: unknown): RpcCall {
  if (typeof call !== 'object' || call === null) return refused(null, -32600, 'a call is a JSON object');
  const { id: rawId, method, params = [] } = call as { id?: unknown; method?: unknown; params?: unknown };
  const id = typeof rawId === 'string' || typeof rawId === 'number' ? rawId : null;
  if (typeof method !== 'string') return refused(id, -32600, 'the method is missing');
  if (!Array.isArray(params)) return refused(id, -32602, 'params must be an array');
  if (READING.has(method)) return { kind: 'read', id, method, params };
  if (SENDING.has(method)) {
    const raw: unknown = params[0];
    if (typeof raw !== 'string') return refused(id, -32602, 'expected a signed transaction');
    return { kind: 'send', id, raw, wantsReceipt: method.endsWith('Sync') };
  }
  return refused(id, -32601, `the method ${method.slice(0, 60)} is not available here`);
}

function refused(id: RpcId, code: number, message: string): RpcCall {
  return { kind: 'refused', id, error: { code, message } };
}
