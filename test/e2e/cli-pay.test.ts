/** `turnpike pay` settles real 402s of stock servers on the local network, in both protocols, within its limit. */
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { type ServerType, serve } from '@hono/node-server';
import { x402Facilitator } from '@x402/core/facilitator';
import { toFacilitatorEvmSigner } from '@x402/evm';
import { registerExactEvmScheme } from '@x402/evm/exact/facilitator';
import { Mppx, Store, tempo } from 'mppx/server';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  mppBalance,
  startTestNetwork,
  stopTestNetwork,
  type TestNetwork,
  x402Balance,
} from './support/local-network.ts';
import { turnpike } from './support/turnpike-command.ts';

const recipient = privateKeyToAccount(generatePrivateKey()).address;
let network: TestNetwork;
let server: ServerType;
let operator: Server | undefined;
let url: string;

beforeAll(async () => {
  network = await startTestNetwork();
  const mppx = Mppx.create({
    secretKey: 'a secret of this test, long enough',
    realm: 'localhost',
    methods: [
      tempo.charge({
        getClient: () => network.mpp.getClient() as never,
        currency: network.mpp.currency,
        recipient,
        store: Store.memory(),
      }),
    ],
  });
  const charge = mppx.charge({ amount: '0.05' });
  const facilitator = new x402Facilitator();
  registerExactEvmScheme(facilitator, {
    signer: toFacilitatorEvmSigner({
      ...network.x402.getClient(network.hostAccounts.facilitator),
      address: network.hostAccounts.facilitator.address,
    } as never),
    networks: network.x402.network,
  });
  const offer = {
    scheme: 'exact',
    network: network.x402.network,
    asset: network.x402.token,
    amount: '50000',
    payTo: recipient,
    maxTimeoutSeconds: 60,
    extra: { name: network.x402.name, version: network.x402.version },
  } as const;
  url = await new Promise((resolve) => {
    server = serve(
      {
        port: 0,
        hostname: '127.0.0.1',
        fetch: async (request) => {
          const body = await request.clone().text();
          const answer = Response.json({ method: request.method, body, seen: request.headers.get('x-test') });
          if (new URL(request.url).pathname === '/mpp') {
            const result = await charge(request);
            return result.status === 402 ? (result.challenge as Response) : result.withReceipt(answer);
          }
          const header = request.headers.get('payment-signature');
          if (header === null) {
            const required = { x402Version: 2, resource: { url: request.url }, accepts: [offer] };
            return new Response('{}', {
              status: 402,
              headers: { 'payment-required': Buffer.from(JSON.stringify(required)).toString('base64') },
            });
          }
          const settled = await facilitator.settle(JSON.parse(Buffer.from(header, 'base64').toString()), offer);
          return settled.success ? answer : new Response(settled.errorReason ?? '', { status: 402 });
        },
      },
      ({ port }) => resolve(`http://localhost:${port}`),
    );
  });
  // As a host on this port would: the command then knows the test network and its wallets.
  await writeFile(join(network.folder, 'host.json'), JSON.stringify({ port: Number(new URL(url).port) }));
  await mkdir(join(network.folder, 'run'));
  operator = createServer().listen(join(network.folder, 'run/operator.sock'));
  await once(operator, 'listening');
});

afterAll(async () => {
  server?.close();
  operator?.close();
  await stopTestNetwork(network);
});

const run = (...args: string[]) =>
  turnpike([...args, '--data', network.folder, '--host-url', url], { cwd: network.folder });

test.each([
  ['mpp', mppBalance],
  ['x402', x402Balance],
] as const)('pays by %s with the first test wallet, and the answer comes through', async (protocol, balanceOf) => {
  const before = [await balanceOf(network, network.wallets![0]!.address), await balanceOf(network, recipient)];
  const flags = ['-X', 'PUT', '-H', 'x-test: yes', '-d', 'a body', '--max-pay', '0.05'];
  const { code, stdout, stderr } = await run('pay', `${url}/${protocol}`, ...flags);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  expect(JSON.parse(stdout)).toEqual({ method: 'PUT', body: 'a body', seen: 'yes' });
  expect(await balanceOf(network, network.wallets![0]!.address)).toBe(before[0]! - 50_000n);
  expect(await balanceOf(network, recipient)).toBe(before[1]! + 50_000n);
});

test('--json says what was paid, and by which wallet is up to --wallet', async () => {
  const before = await mppBalance(network, network.wallets![3]!.address);
  const result = await run('pay', `${url}/mpp`, '--yes', '--json', '--wallet', 'test:3');
  expect(result.json()).toMatchObject({
    status: 200,
    paid: { protocol: 'mpp', intent: 'charge', chainId: 1337, amount: '0.05', testMoney: true },
    body: expect.stringContaining('"GET"'),
  });
  expect(await mppBalance(network, network.wallets![3]!.address)).toBe(before - 50_000n);
});

test('above the limit nothing is paid, and the exit code says so', async () => {
  const before = await mppBalance(network, network.wallets![0]!.address);
  const { code, stdout, stderr } = await run('pay', `${url}/mpp`, '--max-pay', '0.049999');
  expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
  expect(stderr).toContain('costs 0.05 USD, more than the limit of 0.049999');
  const asJson = await run('pay', `${url}/x402`, '--max-pay', '0.01', '--json');
  expect(asJson.code).toBe(4);
  expect(asJson.json()).toMatchObject({ error: { exit: 'payment' } });
  expect(await mppBalance(network, network.wallets![0]!.address)).toBe(before);
});

test('without the data folder the test tokens are strangers, and are not paid', async () => {
  const key = network.wallets![0]!.privateKey;
  const { code, stderr } = await turnpike(['pay', `${url}/mpp`, '--max-pay', '1', '--data', '/nowhere'], {
    cwd: network.folder,
    env: { TURNPIKE_PRIVATE_KEY: key },
  });
  expect(code).toBe(4);
  expect(stderr).toContain('--allow-asset');
  expect(stderr).not.toContain(key.slice(2));
});

test.each([
  [['nonsense'], 2],
  [['pay'], 2],
  [['pay', 'ftp://x'], 2],
  [['get', 'hello', '--host-url', 'http://127.0.0.1:9'], 5],
  [['deploy', 'none.js', '--slug', 'x'], 2],
  [['--help'], 0],
  [['--version'], 0],
] as const)('%j ends with %i', async (args, expected) => {
  const { code } = await turnpike([...args], { cwd: network.folder });
  expect(code).toBe(expected);
});
