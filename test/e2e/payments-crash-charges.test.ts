/**
 * The host dies before and after every write of every kind of single payment. Afterwards the payer was charged once for
 * work that is done, or not at all, or has its money back; and the books agree with the chain.
 */
import type { Hex } from 'viem';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { begin, endWorld, newWorld, serveOn } from './support/mortal-payments.ts';
import { balance, mppClient, startNetwork, x402Client } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';

type Flow = { name: string; path: string; rail: 'mpp' | 'x402'; price: bigint };

const FLOWS: Flow[] = [
  { name: 'a deploy by MPP', path: '/_deploy', rail: 'mpp', price: 200_000n },
  { name: 'a deploy by x402', path: '/_deploy', rail: 'x402', price: 200_000n },
  { name: 'a fixed route by MPP', path: '/fixed', rail: 'mpp', price: 10_000n },
  { name: 'a fixed route by x402', path: '/fixed', rail: 'x402', price: 10_000n },
  {
    name: 'a metered route by MPP: collected, divided, the rest given back',
    path: '/metered',
    rail: 'mpp',
    price: 20_000n,
  },
  { name: 'a metered route by x402 upto', path: '/metered', rail: 'x402', price: 20_000n },
];

describe.each(FLOWS)('$name', ({ path: route, rail, price }) => {
  test('survives a death before and after each of its writes', async () => {
    const token = rail === 'mpp' ? 'tempo' : 'usdc';
    let walked = 0;
    for (let at = 1; at <= 30; at += 1) {
      let crashed = false;
      for (const when of ['before', 'after'] as const) {
        const world = await newWorld();
        let life = await begin(network, world, { at, when });
        const server = await serveOn(world, () => life);
        const client = rail === 'mpp' ? mppClient(network, key(0)) : x402Client(network, key(1));
        const before = await balance(network, token, client.address);
        const call = () => client.fetch(`${server.url}${route}`, { method: 'POST', body: '{}' });
        const first = await call();
        // Payouts go out behind the answer: give a death there the time to come.
        const quietly = until(async () => (await life.payments.ledger.open()).length === 0 && first.status < 300);
        await Promise.race([life.died, quietly.catch(() => {})]);
        const where = `write ${at}, ${when}`;
        life.armed = false;
        if (life.dead) {
          crashed = true;
          walked += 1;
          life = await begin(network, world, undefined);
          const { authorization, signature } = client.sent;
          const retry = await fetch(`${server.url}${route}`, {
            method: 'POST',
            body: '{}',
            headers: authorization ? { authorization } : { 'payment-signature': signature ?? '' },
          });
          // Either the work is (or was) done, or it was lost and the money goes back; never a second bill.
          expect([200, 201, 502], where).toContain(retry.status);
          // A refund that the tenant's wallet owes waits for the tenant's next revenue.
          await until(async () => (await life.payments.ledger.open()).every((item) => item.kind === 'tenant-debt'));
          const paid = before - (await balance(network, token, client.address));
          const problem = retry.status === 502 ? ((await retry.json()) as { refund: string }) : undefined;
          if (problem) expect(problem.refund, where).toBeDefined();
          else expect(paid, where).toBe(price);
          if (route === '/_deploy') expect(world.live.size, where).toBe(paid === 0n ? 0 : 1);
        }
        const report = await life.payments.ledger.reconcile();
        expect(report.differences, where).toEqual([]);
        await endWorld(world, life, server);
      }
      if (!crashed) break;
    }
    expect(walked).toBeGreaterThanOrEqual(6);
  });
});
