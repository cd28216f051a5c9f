/** A host process with payments and one paid operation, to be killed. Arguments: its folder, the network's folder. */
import { appendFile, readFile } from 'node:fs/promises';
import path from 'node:path';
import { serve } from '@hono/node-server';
import pino from 'pino';
import defaults from '../../../config/turnpike.default.json' with { type: 'json' };
import { createPayments } from '../../../host/payments/index.ts';
import { localEvmChain, localTempoChain } from '../../../host/payments/network/chains.ts';
import { tempoClient, x402Client } from '../../../host/payments/network/clients.ts';
import { loadNetworkKeys } from '../../../host/payments/network/keys.ts';
import type { Network } from '../../../host/payments/network/types.ts';
import { openRegistry } from '../../../host/registry/index.ts';
import { AdjustableClock } from '../../../host/shared/clock.ts';
import { micro } from '../../../host/shared/money.ts';
import { asProblem } from '../../../host/shared/problem.ts';

const [folder = '', networkFolder = ''] = process.argv.slice(2);
const file = JSON.parse(await readFile(path.join(networkFolder, 'local-network.json'), 'utf8'));
const keys = await loadNetworkKeys(networkFolder);
const [mppChain, evmChain] = [localTempoChain(file.chainId, file.rpcUrl), localEvmChain(file.chainId, file.rpcUrl)];
const recipient = keys.accounts.operator.address;
const network: Network = {
  name: 'local',
  testMoney: true,
  mpp: {
    chain: mppChain,
    rpcUrl: file.rpcUrl,
    currency: file.token,
    decimals: 6,
    recipient,
    voucherSignatures: 'ecdsa',
    getClient: (account) => tempoClient(mppChain, account),
  },
  x402: {
    ...file.x402,
    chain: evmChain,
    rpcUrl: file.rpcUrl,
    decimals: 6,
    recipient,
    getClient: (account) => x402Client(evmChain, account),
  },
  hostAccounts: keys.accounts,
  healthy: async () => ({ ok: true, detail: '' }),
  close: async () => {},
};
const payments = await createPayments({
  config: defaults.payments as never,
  network,
  registry: await openRegistry(path.join(folder, 'registry.db')),
  dataFolder: folder,
  publicUrl: 'http://localhost:8402',
  clock: new AdjustableClock(),
  log: pino({ level: 'silent' }),
  forward: async () => Response.json({}),
});
const live = path.join(folder, 'live.txt');
const readLive = async () => new Set((await readFile(live, 'utf8').catch(() => '')).split('\n').filter(Boolean));
payments.registerCompletion('deploy', async (prepared) => {
  const name = JSON.stringify(prepared);
  if (!(await readLive()).has(name)) await appendFile(live, `${name}\n`);
  return { status: 201, body: 'live' };
});
await payments.start();
const server = serve({
  port: 0,
  hostname: '127.0.0.1',
  async fetch(request) {
    const url = new URL(request.url);
    if (url.pathname === '/_reconcile')
      return Response.json({ ...(await payments.ledger.reconcile()), live: (await readLive()).size });
    const context = { requestId: 'r', clientIp: '127.0.0.1', proto: 'http' as const, host: 'localhost' };
    try {
      return await payments.paidOperation(request, context, {
        name: 'deploy',
        scope: 'deploy',
        amount: micro(200_000),
        description: 'Deploy',
        prepare: async (_payer, body) => ({ body: Buffer.from(body).toString() }),
      });
    } catch (error) {
      return asProblem(error).toResponse();
    }
  },
});
server.once('listening', () => process.send?.((server.address() as { port: number }).port));
