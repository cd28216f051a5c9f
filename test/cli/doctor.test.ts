/** Which host the doctor looks at, and the facilitator that it names. */
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { json } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  checkConfiguration,
  checkDeposits,
  checkFacilitator,
  checkNetwork,
  urlOf,
} from '../../host/cli/doctor/host.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'turnpike-doctor-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

async function url(settings: object): Promise<string> {
  writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify(settings));
  const { config } = await checkConfiguration(folder, {});
  return urlOf(config, [path.resolve(folder, config.data)]).href;
}

it.each([
  [{ port: 9000 }, 'http://localhost:9000/'],
  [{ port: 9000, host: '0.0.0.0', payments: { allowTestMoneyInPublic: true } }, 'http://localhost:9000/'],
  [{ host: '192.0.2.1' }, 'http://192.0.2.1:8402/'],
  [{ host: '2001:db8::1' }, 'http://[2001:db8::1]:8402/'],
])('before the first start it is the one of the configuration: %j', async (settings, expected) => {
  expect(await url(settings)).toBe(expected);
});

it('later it is the one that was started, in the data folder of the configuration', async () => {
  mkdirSync(path.join(folder, 'elsewhere'));
  writeFileSync(path.join(folder, 'elsewhere/host.json'), '{"port": 9001}');
  expect(await url({ port: 0, data: './elsewhere' })).toBe('http://localhost:9001/');
});

it('a folder with settings of its own has a host of its own, wherever others keep their data', async () => {
  expect((await checkConfiguration(folder, { TURNPIKE_PORT: '9000' })).isOwn).toBe(false);
  writeFileSync(path.join(folder, 'turnpike.host.json'), '{"port": 9000}');
  expect((await checkConfiguration(folder, {})).isOwn).toBe(true);
  rmSync(path.join(folder, 'turnpike.host.json'));
  writeFileSync(path.join(folder, 'turnpike.json'), '{"slug": "hello"}');
  expect((await checkConfiguration(folder, {})).isOwn).toBe(false);
});

it('a file under the former name is read, and the finding says what to rename; that of a project is left alone', async () => {
  const file = path.join(folder, 'turnpike.json');
  writeFileSync(file, '{"port": 9000}');
  expect((await checkConfiguration(folder, {})).finding).toMatchObject({
    state: 'warning',
    fix: expect.stringContaining('rename it to turnpike.host.json'),
  });
  writeFileSync(file, '{"slug": "hello"}');
  const { finding, config } = await checkConfiguration(folder, {});
  expect([finding.state, config.port]).toEqual(['ok', 8402]);
});

it.each([
  [200, 'eip155:84532', { state: 'ok', detail: expect.stringContaining('settles exact on Base Sepolia') }],
  [200, 'eip155:8453', { state: 'fault', detail: expect.stringContaining('settles nothing') }],
  [401, 'eip155:84532', { state: 'fault', detail: expect.stringContaining('it answered 401') }],
])('a facilitator is asked what it settles: %s %s', async (status, network, expected) => {
  const server = createServer((_request, response) => {
    response.writeHead(status).end(JSON.stringify({ kinds: [{ x402Version: 2, scheme: 'exact', network }] }));
  }).listen(0, '127.0.0.1');
  try {
    await once(server, 'listening');
    const facilitator = { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
    const x402 = { network: 'base-sepolia', recipient: `0x${'a'.repeat(40)}`, facilitator };
    writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ payments: { network: 'none', x402 } }));
    const { config } = await checkConfiguration(folder, {});
    expect(await checkFacilitator(config)).toMatchObject([expected]);
  } finally {
    server.close();
  }
});

it.each([
  ['0x60', { state: 'ok', detail: expect.stringContaining('is offered on Base Sepolia') }],
  [
    '0x',
    { state: 'ok', detail: expect.stringMatching(/not offered on Base Sepolia, .* 0x4020074e\w+ and 0x4020806\w+$/) },
  ],
  [undefined, { state: 'warning', detail: expect.stringContaining('does not answer') }],
])('whether calls are paid from deposits depends on what is on the chain: %s', async (code, expected) => {
  const server = createServer(async (request, response) => {
    const { id } = (await json(request)) as { id: number };
    response.writeHead(code === undefined ? 400 : 200).end(JSON.stringify({ jsonrpc: '2.0', id, result: code }));
  }).listen(0, '127.0.0.1');
  try {
    await once(server, 'listening');
    const rpcUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const x402 = { network: 'base-sepolia', recipient: `0x${'a'.repeat(40)}`, rpcUrl };
    writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ payments: { network: 'none', x402 } }));
    const { config } = await checkConfiguration(folder, {});
    expect(await checkDeposits(config)).toMatchObject([expected]);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

it.each([
  ['0x1079', { state: 'ok' }],
  ['0x1', { state: 'fault', detail: expect.stringContaining('for chain 1, not 4217'), fix: 'check payments.rpcUrl' }],
  [undefined, { state: 'fault', detail: expect.stringContaining('does not answer'), fix: 'check payments.rpcUrl' }],
])('the chain that pays is asked which it is: %s', async (result, expected) => {
  const server = createServer((_request, response) => {
    if (result === undefined) response.destroy();
    else response.end(JSON.stringify({ jsonrpc: '2.0', id: 1, result }));
  }).listen(0, '127.0.0.1');
  try {
    await once(server, 'listening');
    const rpcUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const payments = { network: 'tempo', rpcUrl, recipient: `0x${'a'.repeat(40)}` };
    writeFileSync(path.join(folder, 'turnpike.host.json'), JSON.stringify({ payments }));
    const { config } = await checkConfiguration(folder, {});
    expect(await checkNetwork(config)).toMatchObject(expected);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});
