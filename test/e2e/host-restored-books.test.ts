/** One box that comes back from a backup on a chain that has gone on: it pays nobody twice, and goes on selling. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createPublicClient, erc20Abi, http } from 'viem';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PaymentChain, startPaymentChain } from '../bench/peers/payment-chain.ts';
import { account, deploy, mppFetch, x402Fetch } from './support/callers.ts';
import { startHost, type TestHost } from './support/host.ts';
import { turnpike } from './support/turnpike-command.ts';

/** Of each sale of 0.01 USD, what is not the operator's share. */
const SHARE = 9_000n;
const SELLER = 2;

let folder: string;
let chain: PaymentChain;
beforeAll(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-restored-'));
  writeFileSync(path.join(folder, 'passphrase'), 'a passphrase for a test\n', { mode: 0o600 });
  chain = await startPaymentChain();
});
afterAll(async () => {
  await chain?.stop();
  rmSync(folder, { recursive: true, force: true });
});

const start = (data: string) => {
  const flags = {
    ...chain.options.flags,
    'payments-fee-bps': '1000',
    'payments-min-payout': '0.000001',
    'log-level': 'error',
  };
  return startHost({ ...chain.options, data, flags });
};

/** Once on each network. */
async function sell(host: TestHost): Promise<void> {
  for (const pay of [x402Fetch(chain.network, 1), mppFetch(chain.network, 1)])
    expect((await pay(`${host.url}/shop/paid`)).status).toBe(200);
}

/** What the seller has on each network. */
async function held(): Promise<bigint[]> {
  const { rpcUrl, token, x402 } = chain.network;
  const client = createPublicClient({ transport: http(rpcUrl) });
  const of = { abi: erc20Abi, functionName: 'balanceOf', args: [account(chain.network, SELLER).address] } as const;
  return await Promise.all([token, x402.token].map((address) => client.readContract({ address, ...of })));
}

/** Sends what is due, and compares the books with the chain. */
const books = async (host: TestHost) => (await host.operator('POST', '/payments/reconcile')).json;

it('pays nobody again that was paid since the backup', async () => {
  const command = async (...args: string[]) => {
    const done = await turnpike([...args, '--passphrase-file', 'passphrase'], { cwd: folder });
    expect(done).toMatchObject({ code: 0, stderr: '' });
  };
  const host = await start(chain.options.data);
  await deploy(x402Fetch(chain.network, SELLER), host.url, {
    slug: 'shop',
    code: `export default { fetch: () => new Response('sold') };`,
    paidRoutes: [{ method: 'GET', path: '/paid', price: '0.01' }],
  });
  expect(await books(host)).toMatchObject({ ok: true });
  const before = await held();
  await sell(host);
  await command('--data', host.data, 'backup', 'backups');
  await sell(host);
  expect(await books(host)).toMatchObject({ ok: true });
  const lost = await held();
  expect(lost).toEqual(before.map((one) => one + 2n * SHARE));
  await host.kill();

  const data = path.join(folder, 'restored');
  await command('--data', data, 'restore', 'backups');
  const restored = await start(data);
  try {
    expect(await books(restored)).toMatchObject({ ok: true, differences: [] });
    expect(await held()).toEqual(lost);
    await sell(restored);
    expect(await books(restored)).toMatchObject({ ok: true, differences: [] });
    expect(await held()).toEqual(lost.map((one) => one + SHARE));
  } finally {
    await restored.stop();
  }
});
