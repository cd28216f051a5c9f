/** Payouts on an EVM chain whose node is scripted: nothing is signed anew while the first may still be taken. */
import { createClient, custom, type Hex, keccak256, parseTransaction, publicActions, walletActions } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { base } from 'viem/chains';
import { beforeEach, expect, test, vi } from 'vitest';
import { EvmLanes } from '../../host/payments/methods/x402/evm-lanes.ts';
import type { Network } from '../../host/payments/network/types.ts';
import { openWallets, type SignedTransfer } from '../../host/payments/outgoing/wallets.ts';
import { micro } from '../../host/shared/money.ts';

const account = privateKeyToAccount(generatePrivateKey());
const token = '0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913';
const transfer = { recipient: `0x${'22'.repeat(20)}`, amount: micro(50_000) };

/** What the node was sent. */
let sent: Hex[];
/** What it answers to that; default: it takes it. */
let refuse: (raw: Hex) => { code: number; message: string } | undefined;
/** Status of what is in a block, by hash. */
let mined: Map<Hex, '0x1' | '0x0'>;
let block: number;

beforeEach(() => {
  sent = [];
  refuse = () => undefined;
  mined = new Map();
  block = 16;
});

const ANSWERS: Record<string, unknown> = {
  eth_chainId: '0x2105',
  eth_estimateGas: '0xffff',
  eth_maxPriorityFeePerGas: '0x1',
  eth_getTransactionCount: '0x7',
  eth_getBlockByNumber: { number: '0x10', timestamp: '0x1', baseFeePerGas: '0x1', transactions: [] },
};

async function answer({ method, params }: { method: string; params?: unknown }): Promise<unknown> {
  const [first] = (params ?? []) as Hex[];
  if (method === 'eth_sendRawTransaction' && first) {
    sent.push(first);
    const error = refuse(first);
    if (error) throw Object.assign(new Error(error.message), { name: 'RpcRequestError', code: error.code });
    mined.set(keccak256(first), '0x1');
    return keccak256(first);
  }
  block += 1;
  if (method === 'eth_blockNumber') return `0x${block.toString(16)}`;
  if (!/^eth_getTransaction(ByHash|Receipt)$/.test(method)) return ANSWERS[method];
  const status = first && mined.get(first);
  return status ? { hash: first, transactionHash: first, status, logs: [], blockNumber: '0x10', nonce: '0x7' } : null;
}

function wallet() {
  const client = createClient({ chain: base, transport: custom({ request: answer }), pollingInterval: 5 });
  const getClient = () => client.extend(publicActions).extend(walletActions);
  const x402 = { chain: base, token, recipient: account.address, getClient } as never;
  const [found] = openWallets(
    { x402, hostAccounts: { facilitator: account } } as unknown as Network,
    (each) => new EvmLanes(each),
  );
  if (!found) throw new Error('no wallet');
  return found;
}

const noted: SignedTransfer[] = [];
const pay = (from: ReturnType<typeof wallet>) =>
  from.pay(account.address, [transfer], async (one) => void noted.push(one));
const nonceTooLow = { code: -32000, message: 'nonce too low: next nonce 8, tx nonce 7' };

test('a transfer whose nonce is used by itself, which the node tells late, is sent', async () => {
  refuse = (raw) => {
    setTimeout(() => mined.set(keccak256(raw), '0x1'), 30);
    return nonceTooLow;
  };
  expect(await pay(wallet())).toEqual({ status: 'settled', reference: noted.at(-1)?.hash });
  expect(sent).toHaveLength(1);
});

test('a transfer whose nonce is used, and which was reverted, has failed', async () => {
  refuse = (raw) => {
    mined.set(keccak256(raw), '0x0');
    return nonceTooLow;
  };
  expect(await pay(wallet())).toMatchObject({ status: 'failed', reason: 'the transfer was reverted' });
});

test('a transfer whose nonce another transaction took has failed, but not before it was waited for', async () => {
  vi.useFakeTimers();
  try {
    refuse = () => nonceTooLow;
    let result: unknown;
    void pay(wallet()).then((one) => {
      result = one;
    });
    await vi.advanceTimersByTimeAsync(15_000);
    expect(result).toBeUndefined();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(result).toMatchObject({ status: 'failed', reason: 'another transaction took its nonce' });
    expect(sent).toHaveLength(1);
  } finally {
    vi.useRealTimers();
  }
});

test('a transfer that the node refused leaves its nonce to the next', async () => {
  const from = wallet();
  refuse = () => ({ code: -32003, message: 'transaction rejected' });
  expect(await pay(from)).toMatchObject({ status: 'failed', reason: 'the network refused the transfer' });
  refuse = () => undefined;
  expect(await pay(from)).toMatchObject({ status: 'settled' });
  expect(sent.map((raw) => parseTransaction(raw).nonce)).toEqual([7, 7]);
});

test.each([
  ['goes on by the time of the chain, whatever this machine’s clock says', -1, 'unknown'],
  ['is over when the chain is past it', 60, 'failed'],
] as const)('a transfer that expires %s', async (_, chainSeconds, status) => {
  const validUntil = 1_900_000_000_000;
  let resent = 0;
  const request = async ({ method }: { method: string }) => {
    if (method === 'eth_getBlockByNumber')
      return { number: '0x10', timestamp: `0x${(validUntil / 1000 + chainSeconds).toString(16)}`, transactions: [] };
    if (method === 'eth_sendRawTransactionSync') {
      resent += 1;
      throw Object.assign(new Error('busy'), { code: -32005 });
    }
    return null;
  };
  const client = createClient({ chain: base, transport: custom({ request }, { retryCount: 0 }) });
  const mpp = { chain: base, currency: token, recipient: account.address, getClient: () => client };
  const [tempo] = openWallets(
    { mpp, hostAccounts: { collector: account } } as unknown as Network,
    (each) => new EvmLanes(each),
  );
  vi.useFakeTimers({ toFake: ['Date'], now: validUntil + 3_600_000 });
  try {
    const result = await tempo?.send({ raw: '0x76', hash: `0x${'ab'.repeat(32)}`, validUntil });
    expect(result).toMatchObject({ status });
    expect(resent).toBe(status === 'failed' ? 0 : 1);
  } finally {
    vi.useRealTimers();
  }
});
