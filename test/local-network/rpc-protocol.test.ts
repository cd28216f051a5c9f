import { describe, expect, test } from 'vitest';
import { MAX_BATCH, parseRpcRequest } from '../../host/local-network/rpc-protocol.ts';

const call = (method: string, params: unknown = []) => ({ jsonrpc: '2.0', id: 1, method, params });
const parse = (body: unknown) => parseRpcRequest(JSON.stringify(body));

describe('what the RPC gateway lets through', () => {
  test('reads and signed transactions', () => {
    expect(parse(call('eth_getBalance', ['0x1', 'latest']))).toEqual({
      batch: false,
      calls: [{ kind: 'read', id: 1, method: 'eth_getBalance', params: ['0x1', 'latest'] }],
    });
    expect(parse(call('eth_sendRawTransactionSync', ['0x76']))).toEqual({
      batch: false,
      calls: [{ kind: 'send', id: 1, raw: '0x76', wantsReceipt: true }],
    });
  });

  test.each([
    'anvil_setBalance',
    'anvil_setCode',
    'anvil_impersonateAccount',
    'anvil_dumpState',
    'evm_mine',
    'evm_setNextBlockTimestamp',
    'debug_traceTransaction',
    'trace_block',
    'hardhat_setBalance',
    'erigon_forks',
    'ots_getApiLevel',
    'txpool_content',
    'tenderly_setBalance',
    'eth_sendTransaction',
    'eth_sendUnsignedTransaction',
    'eth_sign',
    'eth_signTransaction',
    'eth_signTypedData_v4',
    'personal_sign',
    'eth_accounts',
    'eth_simulateV1',
    'wallet_getCapabilities',
    'ANVIL_MINE',
    'eth_chainId ',
    '__proto__',
    'constructor',
  ])('refuses %s', (method) => {
    expect(parse(call(method))).toMatchObject({ calls: [{ kind: 'refused', id: 1, error: { code: -32601 } }] });
    expect(parse([call('eth_chainId'), call(method)])).toMatchObject({
      calls: [{ kind: 'read' }, { kind: 'refused', error: { code: -32601 } }],
    });
  });

  test.each([
    ['not JSON', '{', -32700],
    ['an empty batch', '[]', -32600],
    ['a large batch', JSON.stringify(Array.from({ length: MAX_BATCH + 1 }, () => call('eth_chainId'))), -32600],
  ])('refuses %s as a whole', (_, body, code) => {
    expect(parseRpcRequest(body)).toMatchObject({ error: { code } });
  });

  test.each([
    ['null', null],
    ['a string', 'eth_chainId'],
    ['no method', { id: 1 }],
    ['a method that is an array', { id: 1, method: ['anvil_mine'] }],
    ['params that are an object', { id: 1, method: 'eth_call', params: { to: '0x' } }],
    ['a transaction that is no string', { id: 1, method: 'eth_sendRawTransaction', params: [{}] }],
  ])('refuses a call that is %s', (_, body) => {
    expect(parse(body)).toMatchObject({ calls: [{ kind: 'refused' }] });
  });

  test('answers no id that is neither text nor number', () => {
    expect(parse({ id: { a: 1 }, method: 'eth_chainId' })).toMatchObject({ calls: [{ id: null }] });
  });
});
