import { numberToHex, pad } from 'viem';
import { expect, test } from 'vitest';
import { setUpChain } from '../../host/local-network/genesis.ts';
import type { JsonRpcSocket } from '../../host/local-network/json-rpc-socket.ts';
import { authorizeWitnessed } from '../../host/local-network/key-authorization.ts';
import { allowDeposit } from '../../host/local-network/session-reserve.ts';

const wallet = pad('0x1', { size: 20 });
const hash = pad('0x9', { size: 32 });

/** A chain as anvil is when it is busy: a mined transaction is in the pool for three more looks. */
function busyChain() {
  const asked: string[] = [];
  let looks = 0;
  const results: Record<string, unknown> = {
    eth_accounts: [wallet],
    eth_call: '0x0',
    eth_chainId: '0x539',
    eth_getCode: `0x467f${'0'.repeat(64)}0361123457` + `7f${'0'.repeat(64)}`,
    eth_getTransactionCount: '0x5',
    eth_sendTransaction: hash,
    eth_getTransactionReceipt: { status: '0x1' },
  };
  const request = async (method: string) => {
    asked.push(method);
    if (method === 'eth_sendTransaction') looks = 0;
    if (method === 'eth_getTransactionByHash') return { blockNumber: ++looks > 3 ? numberToHex(7) : null };
    return results[method] ?? null;
  };
  const call = async (method: string) => ({ result: await request(method) });
  return { asked, rpc: { request, call } as unknown as JsonRpcSocket };
}

test.each<[string, (chain: JsonRpcSocket) => Promise<unknown>]>([
  ['the first start', (chain) => setUpChain(chain, { wallets: [{ address: wallet }], senders: [] })],
  ['the allowance of a deposit', (chain) => allowDeposit(chain, { payer: wallet, token: wallet })],
  ['a key with a witness', (chain) => authorizeWitnessed(chain, { wallet, call: '0x' })],
])('%s sets a nonce back only when the transaction has left the pool: it would be executed again', async (_, work) => {
  const { asked, rpc } = busyChain();
  await work(rpc);
  const until = asked.slice(0, asked.indexOf('anvil_setNonce'));
  const sinceSent = until.slice(until.lastIndexOf('eth_sendTransaction'));
  expect(until).not.toHaveLength(0);
  expect(sinceSent.filter((method) => method === 'eth_getTransactionByHash')).toHaveLength(4);
});
