/** Stock mppx clients (library and command line) pay on the local network: charge, proof, session. */
import { execFile } from 'node:child_process';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type ServerType, serve } from '@hono/node-server';
import { Credential, Receipt } from 'mppx';
import { Mppx as Client, tempo as clientTempo } from 'mppx/client';
import { Mppx, Store, tempo } from 'mppx/server';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { mppBalance, startTestNetwork, stopTestNetwork, type TestNetwork, walletOf } from './support/local-network.ts';

/** What mppx answers for a route: the 402, or a way to put the receipt on the answer. */
type Answer = { status: 402; challenge: Response } | { status: 200; withReceipt(response: Response): Response };

let network: TestNetwork;
let server: ServerType;
let url: string;
const recipient = privateKeyToAccount(generatePrivateKey()).address;

beforeAll(async () => {
  network = await startTestNetwork();
  const getClient = () => network.mpp.getClient(network.hostAccounts.settler) as never;
  const mppx = Mppx.create({
    secretKey: 'a secret of this test, long enough',
    realm: 'test.local',
    methods: [
      tempo.charge({ getClient, currency: network.mpp.currency, recipient, store: Store.memory() }),
      tempo.session({
        account: network.hostAccounts.settler,
        currency: network.mpp.currency,
        getClient,
        store: Store.memory(),
      }),
    ],
  });
  const routes: Record<string, (request: Request) => Promise<Answer>> = {
    '/charge': mppx.charge({ amount: '0.01' }),
    '/proof': mppx.charge({ amount: '0' }),
    '/session': mppx.session({ amount: '0.01', unitType: 'request', suggestedDeposit: '0.05' }),
  };
  url = await new Promise((resolve) => {
    server = serve(
      {
        port: 0,
        hostname: '127.0.0.1',
        fetch: async (request) => {
          const result = await routes[new URL(request.url).pathname]!(request);
          if (result.status === 402) return result.challenge;
          return result.withReceipt(Response.json({ payer: Credential.fromRequest(request).source ?? null }));
        },
      },
      ({ port }) => resolve(`http://127.0.0.1:${port}`),
    );
  });
});

afterAll(async () => {
  server?.close();
  await stopTestNetwork(network);
});

describe('stock mppx library', () => {
  for (const mode of ['pull', 'push'] as const) {
    test(`pays a charge (${mode}) exactly, without any fee`, async () => {
      const payer = walletOf(network, 0);
      const client = Client.create({
        polyfill: false,
        methods: [clientTempo.charge({ account: payer, getClient: () => network.mpp.getClient() as never, mode })],
      });
      const before = [await mppBalance(network, payer), await mppBalance(network, recipient)];
      const response = await client.fetch(`${url}/charge`);
      expect(response.status).toBe(200);
      expect(Receipt.fromResponse(response).status).toBe('success');
      expect(await mppBalance(network, payer)).toBe(before[0]! - 10_000n);
      expect(await mppBalance(network, recipient)).toBe(before[1]! + 10_000n);
    });
  }

  test('twenty payments of one wallet at once all arrive', async () => {
    const payer = walletOf(network, 1);
    const client = Client.create({
      polyfill: false,
      methods: [clientTempo.charge({ account: payer, getClient: () => network.mpp.getClient() as never })],
    });
    const before = await mppBalance(network, recipient);
    const statuses = await Promise.all(
      Array.from({ length: 20 }, () => client.fetch(`${url}/charge`).then(({ status }) => status)),
    );
    expect(statuses).toEqual(Array.from({ length: 20 }, () => 200));
    expect(await mppBalance(network, recipient)).toBe(before + 200_000n);
  });

  test('proves a wallet without paying', async () => {
    const payer = walletOf(network, 2);
    const client = Client.create({
      polyfill: false,
      methods: [clientTempo.charge({ account: payer, getClient: () => network.mpp.getClient() as never })],
    });
    const before = await mppBalance(network, payer);
    const response = await client.fetch(`${url}/proof`);
    expect(await response.json()).toEqual({ payer: `did:pkh:eip155:1337:${payer.address}` });
    expect(await mppBalance(network, payer)).toBe(before);
  });

  test('runs a session: deposit, vouchers, top-ups, close with the rest given back', async () => {
    const payer = walletOf(network, 3);
    const session = clientTempo.session.manager({
      account: payer,
      getClient: () => network.mpp.getClient(payer) as never,
      maxDeposit: '0.2',
    });
    const settler = network.hostAccounts.settler;
    const before = [await mppBalance(network, payer), await mppBalance(network, settler)];
    for (let call = 0; call < 12; call++) expect((await session.fetch(`${url}/session`)).status).toBe(200);
    expect(await mppBalance(network, payer)).toBeLessThanOrEqual(before[0]! - 120_000n);
    expect(await mppBalance(network, settler)).toBe(before[1]!);
    await session.close();
    expect(await mppBalance(network, payer)).toBe(before[0]! - 120_000n);
    expect(await mppBalance(network, settler)).toBe(before[1]! + 120_000n);
  });
});

describe('stock mppx command', () => {
  const command = join(dirname(fileURLToPath(import.meta.resolve('mppx'))), 'bin.js');

  function mppx(args: string[], privateKey: string): Promise<string> {
    return new Promise((resolve, reject) => {
      const env = { ...process.env, MPPX_PRIVATE_KEY: privateKey, MPPX_RPC_URL: network.mpp.rpcUrl };
      execFile(process.execPath, [command, ...args], { env, timeout: 180_000 }, (error, stdout, stderr) => {
        if (error) reject(new Error(`${error.message}\n${stdout}${stderr}`));
        else resolve(stdout);
      });
    });
  }

  test('pays a charge and gives a proof', async () => {
    const payer = network.wallets![4]!;
    const before = await mppBalance(network, payer.address);
    expect(await mppx([`${url}/charge`], payer.privateKey)).toContain('"payer"');
    expect(await mppBalance(network, payer.address)).toBe(before - 10_000n);
    expect(await mppx([`${url}/proof`, '-s'], payer.privateKey)).toContain(payer.address);
    expect(await mppBalance(network, payer.address)).toBe(before - 10_000n);
  });
});
