/** x402's batch-settlement at two nodes of one host, which share nothing but their PostgreSQL and the chain. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { createPayments, type Payments, type TollDeployment } from '../../host/payments/index.ts';
import type { Network } from '../../host/payments/network/index.ts';
import { parsePaidRoutes } from '../../host/payments/paid-routes.ts';
import { keyFilesIn } from '../../host/registry/key-file.ts';
import { openPostgresRegistry, type PostgresRegistry } from '../../host/registry/postgres/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { asProblem } from '../../host/shared/problem.ts';
import { PostgresServer } from '../registry/support/postgres-server.ts';
import { postgresPrograms } from './support/databases.ts';
import { balance, quiet, startNetwork } from './support/payments-rig.ts';
import { until } from './support/until.ts';

interface Node {
  payments: Payments;
  registry: PostgresRegistry;
  fetch: typeof fetch;
}

describe.skipIf(!postgresPrograms())('two nodes', () => {
  let network: Network;
  let stopNetwork: () => Promise<void>;
  let server: PostgresServer;
  let folder: string;
  let nodes: [Node, Node];
  let calls = 0;
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const deployment: TollDeployment = {
    slug: 'shop',
    tenant: 'tshop0000000000000000',
    payTo: payTo.toLowerCase() as Hex,
    paidRoutes: parsePaidRoutes([{ method: 'GET', path: '/*', price: '0.01' }]),
  };

  async function start(name: string, url: string): Promise<Node> {
    const registry = await openPostgresRegistry(url);
    const payments = await createPayments({
      config: defaults.payments as never,
      network,
      registry,
      dataFolder: path.join(folder, name),
      keyFiles: keyFilesIn(folder),
      publicUrl: 'http://localhost:8402',
      clock: new AdjustableClock(),
      log: quiet,
      payoutEveryMs: 50,
      forward: async () => Response.json({ call: ++calls }),
    });
    await payments.start();
    const handle = async (input: string | URL | Request, init?: RequestInit) => {
      const request = new Request(input, init);
      const tenantPath = new URL(request.url).pathname;
      const context = {
        requestId: 'r',
        clientIp: '127.0.0.1',
        proto: 'http',
        host: 'localhost',
        slug: 'shop',
      } as const;
      return payments
        .toll(request, { ...context, tenantPath, prefix: '', via: 'path' }, deployment)
        .catch((error) => asProblem(error).toResponse('r'));
    };
    return { payments, registry, fetch: handle as typeof fetch };
  }

  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'tp-batch-nodes-'));
    [{ network, stop: stopNetwork }, server] = await Promise.all([startNetwork(), PostgresServer.start()]);
    const url = server.create('batch');
    nodes = [await start('a', url), await start('b', url)];
  });
  afterAll(async () => {
    for (const { payments, registry } of nodes ?? []) {
      await payments.stop();
      await registry.end();
    }
    await server?.stop();
    await stopNetwork?.();
    await rm(folder, { recursive: true, force: true });
  });

  test('a channel is one at both, and a voucher that both are shown at once is charged once', async () => {
    const account = privateKeyToAccount(network.wallets?.[0]?.privateKey ?? '0x');
    const readContract = (asked: never) => network.x402?.getClient().readContract(asked);
    const scheme = new BatchSettlementEvmScheme(Object.assign(account, { readContract }) as never);
    const before = await balance(network, 'usdc', account.address);
    const statuses: number[][] = [];
    /** What pays goes to both; the client hears of one that was served. */
    const both = async (input: string | URL | Request, init?: RequestInit) => {
      const request = new Request(input, init);
      if (!request.headers.has('payment-signature')) return nodes[0].fetch(request);
      const answers = await Promise.all(nodes.map((node) => node.fetch(request.clone())));
      statuses.push(answers.map(({ status }) => status).sort());
      return answers.find(({ status }) => status === 200) ?? (answers[0] as Response);
    };
    const paying = wrapFetchWithPayment(both as typeof fetch, new x402Client().register('eip155:*', scheme));
    for (let i = 1; i <= 4; i += 1) {
      expect(await (await paying(`http://localhost/${i}`)).json()).toEqual({ call: i });
      expect(calls).toBe(i);
    }
    // The other one answers the same, or says that it is being worked on.
    for (const [served, other] of statuses) expect([served, [200, 409].includes(other ?? 0)]).toEqual([200, true]);
    const { rows } = await nodes[0].registry.client.execute('SELECT state, captured, deposit FROM payment_channels');
    expect(rows).toMatchObject([{ state: 'open', captured: 40_000, deposit: 100_000 }]);
    expect(await scheme.refund('http://localhost/x', { fetch: nodes[1].fetch })).toMatchObject({ amount: '60000' });
    expect(await balance(network, 'usdc', account.address)).toBe(before - 40_000n);
    await until(async () => (await balance(network, 'usdc', payTo)) === 40_000n);
    // One of them keeps the books.
    const report = await Promise.any(nodes.map(({ payments }) => payments.ledger.reconcile()));
    expect(report.differences).toEqual([]);
  });
});
