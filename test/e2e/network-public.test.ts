/** openNetwork() with public networks, whose RPC is played by the embedded chain: settings, token, health. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterAll, beforeAll, expect, test } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { openNetwork } from '../../host/payments/network/index.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { type Config, configSchema } from '../../host/shared/config.ts';
import { startTestNetwork, stopTestNetwork, type TestNetwork } from './support/local-network.ts';

const RECIPIENT = '0x00000000000000000000000000000000000000aa';
const OTHER = '0x00000000000000000000000000000000000000cc';
type Also = Config['payments']['also'][number];
/** Nothing listens there: port 9 is discard. */
const DEAD = 'http://127.0.0.1:9';
const { facilitator } = defaults.payments.x402;
let chain: TestNetwork;
let folder: string;

beforeAll(async () => {
  chain = await startTestNetwork({ payments: { localChainId: 84532 } });
  folder = await mkdtemp(join(tmpdir(), 'turnpike-public-'));
});
afterAll(async () => {
  await stopTestNetwork(chain);
  await rm(folder, { recursive: true, force: true });
});

function one(network: string, more: Partial<Also> = {}): Also {
  return { network, rpcUrl: DEAD, token: '', recipient: RECIPIENT, testMoney: false, ...more };
}

function open(payments: Partial<Config['payments']>) {
  const config = configSchema.parse({ ...defaults, payments: { ...defaults.payments, ...payments } });
  return openNetwork({ config, dataFolder: folder, clock: new ManualClock(0), log: pino({ level: 'silent' }) });
}

test('base-sepolia: the token is read from the chain, and health is the chain’s', async () => {
  const x402 = { network: 'base-sepolia', rpcUrl: chain.x402.rpcUrl, recipient: RECIPIENT, facilitator } as const;
  const network = await open({ network: 'none', x402 });
  expect(network.x402).toMatchObject({
    network: 'eip155:84532',
    token: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
    name: 'USDC',
    version: '2',
    decimals: 6,
    recipient: '0x00000000000000000000000000000000000000AA',
  });
  expect([network.testMoney, network.mpp, network.wallets]).toEqual([true, undefined, undefined]);
  expect(await network.healthy()).toEqual({ ok: true, detail: 'Base Sepolia answers' });
});

test('a silent RPC does not keep the host from starting, and shows in its health', async () => {
  const network = await open({
    network: 'none',
    x402: { network: 'base', rpcUrl: DEAD, recipient: RECIPIENT, facilitator },
  });
  expect(network.x402).toMatchObject({ name: 'USD Coin', version: '2', network: 'eip155:8453' });
  expect(network.testMoney).toBe(false);
  expect(await network.healthy()).toEqual({ ok: false, detail: 'Base does not answer' });
});

test('tempo with Base beside it; an RPC of another chain is noticed', async () => {
  const network = await open({
    network: 'tempo',
    rpcUrl: chain.mpp.rpcUrl,
    recipient: RECIPIENT,
    x402: { network: 'base', rpcUrl: DEAD, recipient: '', facilitator },
  });
  expect(network.mpp).toMatchObject({ currency: '0x20C000000000000000000000b9537d11c60E8b50', decimals: 6 });
  expect(network.mpp?.chain.id).toBe(4217);
  expect(network.x402?.recipient).toBe(network.mpp?.recipient);
  const { ok, detail } = await network.healthy();
  expect(ok).toBe(false);
  expect(detail).toContain('answers for chain 84532, not 4217');
});

test.each([
  [403, '{"error":{"message":"JSON is not a valid request object"}}'],
  [401, 'Who are you?'],
  [200, 'null'],
])('an RPC that answers %i with %s is not taken for a chain', async (status, body) => {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(status).end(body);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const { port } = server.address() as AddressInfo;
  const base = { network: 'base', rpcUrl: `http://127.0.0.1:${port}`, recipient: RECIPIENT, facilitator } as const;
  const network = await open({ network: 'none', x402: base });
  const health = await network.healthy();
  server.close();
  expect(health).toEqual({ ok: false, detail: `Base: the RPC URL answers ${status} without a chain id` });
});

test.each([
  ['tempo without a recipient', { network: 'tempo', recipient: '' } as const],
  [
    'base without a recipient',
    { network: 'none', x402: { network: 'base', rpcUrl: DEAD, recipient: '', facilitator } } as const,
  ],
  [
    'base beside the local network',
    { network: 'local', x402: { network: 'base', rpcUrl: DEAD, recipient: RECIPIENT, facilitator } } as const,
  ],
  [
    'test money beside real money',
    {
      network: 'tempo',
      recipient: RECIPIENT,
      x402: { network: 'base-sepolia', rpcUrl: DEAD, recipient: '', facilitator },
    } as const,
  ],
  [
    'one network twice',
    { network: 'tempo', recipient: RECIPIENT, also: [one('tempo:4217', { token: RECIPIENT })] as Also[] } as const,
  ],
  ['a network of one’s own without its token', { network: 'none', also: [one('eip155:10')] as Also[] } as const],
  [
    'one without a recipient',
    { network: 'none', also: [one('eip155:10', { token: RECIPIENT, recipient: '' })] as Also[] } as const,
  ],
])('%s is refused, with what to set', async (_, payments) => {
  await expect(open(payments)).rejects.toMatchObject({
    code: 'invalid_config',
    message: expect.stringContaining('payments.'),
  });
});

test('further networks are offered after the first ones, each with its own recipient', async () => {
  const network = await open({
    network: 'tempo',
    rpcUrl: DEAD,
    recipient: RECIPIENT,
    also: [
      one('base', { recipient: '' }),
      one('eip155:10', { token: OTHER, recipient: OTHER }),
      one('tempo:5', { token: OTHER }),
    ],
  });
  expect([network.x402?.network, network.x402?.recipient]).toEqual(['eip155:8453', network.mpp?.recipient]);
  const [other] = network.also?.x402 ?? [];
  expect([other?.network, other?.recipient.toLowerCase()]).toEqual(['eip155:10', OTHER]);
  expect(network.also?.mpp.map(({ chain: { id }, currency }) => [id, currency.toLowerCase()])).toEqual([[5, OTHER]]);
});

test('payments may be off', async () => {
  const network = await open({ network: 'none' });
  expect([network.mpp, network.x402]).toEqual([undefined, undefined]);
  expect(await network.healthy()).toEqual({ ok: true, detail: 'payments are off' });
});
