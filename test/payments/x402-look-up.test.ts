/** What became of an x402 payment, asked of a scripted node a long time after it was settled. */
import { createClient, custom, type Hex, pad, publicActions, toEventSelector, toHex } from 'viem';
import { base } from 'viem/chains';
import { expect, test } from 'vitest';
import type { X402Payload } from '../../host/payments/methods/x402/credential.ts';
import { lookUp } from '../../host/payments/methods/x402/look-up.ts';
import type { X402Client } from '../../host/payments/network/types.ts';
import type { PaymentRow } from '../../host/registry/payments/schema.ts';
import { micro } from '../../host/shared/money.ts';

const [payer, recipient, other] = ['11', '22', '33'].map((byte) => `0x${byte.repeat(20)}` as Hex) as [Hex, Hex, Hex];
const nonce = `0x${'ab'.repeat(32)}` as Hex;
const hash = `0x${'cd'.repeat(32)}` as Hex;
const USED = toEventSelector('AuthorizationUsed(address,bytes32)');
const CANCELED = toEventSelector('AuthorizationCanceled(address,bytes32)');
const TRANSFER = toEventSelector('Transfer(address,address,uint256)');

const LATEST = 20_000;
const SETTLED = 3_000;
/** A block takes two seconds. */
const timeOf = (block: number) => 1_700_000_000 + 2 * block;

/** @param topics of the logs in the block of the settlement, in their order */
function chain(...logs: { topics: Hex[]; data?: Hex }[]): X402Client {
  const block = { blockNumber: toHex(SETTLED), blockHash: hash, transactionHash: hash, address: other };
  const all = logs.map((log, index) => ({ data: '0x', ...block, ...log, logIndex: toHex(index) }));
  const answers: Record<string, (asked: never) => unknown> = {
    eth_blockNumber: () => toHex(LATEST),
    eth_call: () => pad('0x1'),
    eth_getBlockByNumber: (number: Hex) => ({ number, timestamp: toHex(timeOf(Number(number))), transactions: [] }),
    eth_getLogs: ({ fromBlock, toBlock, topics }: { fromBlock?: Hex; toBlock?: Hex; topics: Hex[] }) =>
      Number(fromBlock ?? 0) <= SETTLED && Number(toBlock ?? LATEST) >= SETTLED
        ? all.filter((log) => topics.every((topic, index) => topic === log.topics[index]))
        : [],
  };
  const request = async ({ method, params = [] }: { method: string; params?: never[] }) =>
    answers[method]?.(params[0] as never);
  return createClient({ chain: base, transport: custom({ request } as never) }).extend(publicActions) as never;
}

const used = (by: Hex) => ({ topics: [USED, pad(payer), by] });
const moved = (to: Hex, amount: bigint) => ({ topics: [TRANSFER, pad(payer), pad(to)], data: pad(toHex(amount)) });
const payload = { payload: { authorization: { from: payer, nonce } } } as unknown as X402Payload;
const ask = (client: X402Client, madeAt = SETTLED - 10) =>
  lookUp(
    { client, token: other, expired: false },
    payload,
    { recipient, createdAt: timeOf(madeAt) * 1000 } as PaymentRow,
    micro(50_000),
  );

test('a settlement is found however many blocks ago it was', async () => {
  expect(await ask(chain(used(nonce), moved(recipient, 50_000n)))).toEqual({ status: 'settled', reference: hash });
});

test.each([
  ['paid somebody else', [used(nonce), moved(other, 50_000n)]],
  ['paid less', [used(nonce), moved(recipient, 49_999n)]],
  // One transaction may spend many authorizations: a transfer pays for one of them.
  [
    'paid nobody, in one transaction with another that did',
    [used(`0x${'ef'.repeat(32)}`), moved(recipient, 50_000n), used(nonce), moved(other, 50_000n)],
  ],
  ['was cancelled', [{ topics: [CANCELED, pad(payer), nonce] as Hex[] }]],
])('an authorization that %s has not paid', async (_, logs) => {
  expect(await ask(chain(...logs))).toMatchObject({ status: 'failed' });
});

test('a nonce that was used before the payment was made, or that the node cannot explain, is left open', async () => {
  expect(await ask(chain(used(nonce), moved(recipient, 50_000n)), LATEST - 10)).toMatchObject({ status: 'unknown' });
  expect(await ask(chain())).toMatchObject({ status: 'unknown' });
});
