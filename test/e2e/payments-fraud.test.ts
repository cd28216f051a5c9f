/** Payers who move first on the chain: what they signed is gone before it is settled, and buys nothing. */
import { authorizationTypes, PERMIT2_ADDRESS } from '@x402/evm';
import { type Hex, parseAbi } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { waitForTransactionReceipt, writeContract } from 'viem/actions';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import {
  balance,
  behind,
  mppClient,
  mppOf,
  type Rig,
  startNetwork,
  startRig,
  x402Client,
} from './support/payments-rig.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;
let payTo: Hex;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
afterEach(() => rig.close());

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const start = async (mode?: string) => {
  payTo = privateKeyToAccount(generatePrivateKey()).address;
  rig = await startRig(network, { payTo, routes: [{ method: 'GET', path: '/a', price: '0.05', mode }] });
};
const states = async () =>
  (await rig.registry.client.execute('SELECT state FROM payments ORDER BY created_at')).rows.map(({ state }) => state);

const AUTHORIZATION = parseAbi([
  'function transferWithAuthorization(address, address, uint256, uint256, uint256, bytes32, bytes)',
  'function cancelAuthorization(address, bytes32, bytes)',
]);
const PERMIT2 = parseAbi(['function invalidateUnorderedNonces(uint256 wordPos, uint256 mask)']);

function payloadOf(signature = '') {
  const { payload } = JSON.parse(Buffer.from(signature, 'base64').toString());
  return payload as {
    authorization: { from: Hex; validAfter: string; validBefore: string; nonce: Hex };
    permit2Authorization: { nonce: string };
  };
}

test('an authorization whose nonce its payer spends on somebody else while the handler works', async () => {
  await start();
  const client = x402Client(network, key(1));
  const { x402 } = network;
  if (!x402) throw new Error('no x402 network');
  const friend = privateKeyToAccount(generatePrivateKey()).address;
  rig.handler = async () => {
    const { authorization } = payloadOf(client.sent.signature);
    const { from, nonce } = authorization;
    const message = {
      from,
      to: friend,
      value: 50_000n,
      validAfter: BigInt(authorization.validAfter),
      validBefore: BigInt(authorization.validBefore),
      nonce,
    };
    const signature = await client.account.signTypedData({
      domain: {
        name: x402.name,
        version: x402.version,
        chainId: Number(x402.network.slice(7)),
        verifyingContract: x402.token,
      },
      types: authorizationTypes,
      primaryType: 'TransferWithAuthorization',
      message,
    });
    const chain = x402.getClient(client.account);
    const hash = await writeContract(chain, {
      account: client.account,
      chain: x402.chain,
      address: x402.token,
      abi: AUTHORIZATION,
      functionName: 'transferWithAuthorization',
      args: [from, friend, message.value, message.validAfter, message.validBefore, nonce, signature],
    });
    await waitForTransactionReceipt(chain, { hash });
    return new Response('secret', { headers: { 'content-length': '6' } });
  };
  const response = await client.fetch(`${rig.url}/a`);
  expect(await balance(network, 'usdc', friend)).toBe(50_000n);
  expect(await balance(network, 'usdc', payTo)).toBe(0n);
  expect(response.status).toBe(402);
  expect(await response.text()).not.toContain('secret');
  expect(await states()).toEqual(['released']);
});

test('a permit that its payer takes back while the handler works, after one like it was paid', async () => {
  await start('metered');
  const client = x402Client(network, key(2));
  const { x402 } = network;
  if (!x402) throw new Error('no x402 network');
  expect((await client.fetch(`${rig.url}/a`)).status).toBe(200);
  rig.handler = async () => {
    const nonce = BigInt(payloadOf(client.sent.signature).permit2Authorization.nonce);
    const chain = x402.getClient(client.account);
    const hash = await writeContract(chain, {
      account: client.account,
      chain: x402.chain,
      address: PERMIT2_ADDRESS as Hex,
      abi: PERMIT2,
      functionName: 'invalidateUnorderedNonces',
      args: [nonce >> 8n, 1n << (nonce & 255n)],
    });
    await waitForTransactionReceipt(chain, { hash });
    return new Response('secret', { headers: { 'content-length': '6' } });
  };
  const response = await client.fetch(`${rig.url}/a`);
  expect(await balance(network, 'usdc', payTo)).toBe(50_000n);
  expect(response.status).toBe(402);
  expect(await response.text()).not.toContain('secret');
  expect(await states()).toEqual(['answered', 'released']);
});

const PRICE = 50_000n;
const TRANSFER = parseAbi(['function transfer(address, uint256) returns (bool)']);

const BALANCE_OF = '0x70a08231';
const TOKENS = ['mpp', 'x402'] as const;

/** A wallet that holds the price once. */
async function poorWallet(via: (typeof TOKENS)[number]): Promise<Hex> {
  const secret = generatePrivateKey();
  const { x402 } = network;
  if (!x402) throw new Error('no x402 network');
  const account = privateKeyToAccount(key(2));
  const chain = via === 'mpp' ? mppOf(network).getClient(account) : x402.getClient(account);
  const address = via === 'mpp' ? mppOf(network).currency : x402.token;
  const hash = await writeContract(chain as never, {
    account,
    chain: null,
    address,
    abi: TRANSFER,
    functionName: 'transfer',
    args: [privateKeyToAccount(secret).address, PRICE],
  });
  await waitForTransactionReceipt(chain as never, { hash });
  return secret;
}

test.for(TOKENS)('%s: many calls at once of a wallet that has money for one', async (via) => {
  await start();
  const secret = await poorWallet(via);
  const enough = Promise.withResolvers<void>();
  rig.handler = async () => {
    await enough.promise;
    return Response.json({});
  };
  let refused = 0;
  const call = async () => {
    const client = via === 'mpp' ? mppClient(network, secret) : x402Client(network, secret);
    const { status } = await client.fetch(`${rig.url}/a`);
    refused += Number(status === 402);
    if (refused === 2) enough.resolve();
    return status;
  };
  const answers = await Promise.all(Array.from({ length: 3 }, call));
  expect(answers.toSorted()).toEqual([200, 402, 402]);
  expect([rig.calls.length, await balance(network, via === 'mpp' ? 'tempo' : 'usdc', payTo)]).toEqual([1, PRICE]);
});

test('calls at once of a wallet that has let Permit2 spend enough for one', async () => {
  await start('metered');
  const client = x402Client(network, key(4));
  const { x402 } = network;
  if (!x402) throw new Error('no x402 network');
  const chain = x402.getClient(client.account);
  const hash = await writeContract(chain, {
    account: client.account,
    chain: x402.chain,
    address: x402.token,
    abi: parseAbi(['function approve(address, uint256) returns (bool)']),
    functionName: 'approve',
    args: [PERMIT2_ADDRESS as Hex, (PRICE * 3n) / 2n],
  });
  await waitForTransactionReceipt(chain, { hash });
  let second: unknown;
  rig.handler = async () => {
    rig.handler = () => Response.json({});
    const answer = await client.fetch(`${rig.url}/a`);
    second = [answer.status, ((await answer.json()) as { detail: string }).detail];
    return Response.json({});
  };
  expect((await client.fetch(`${rig.url}/a`)).status).toBe(200);
  expect(second).toEqual([402, expect.stringContaining('Permit2 may spend 0.075 USD, of which 0.05 are promised')]);
  expect([rig.calls.length, await balance(network, 'usdc', payTo)]).toEqual([1, PRICE]);
});

test('a call that comes while the money of the one before is on its way', async () => {
  await start();
  const secret = await poorWallet('mpp');
  const call = () => mppClient(network, secret).fetch(`${rig.url}/a`);
  const seen = Promise.withResolvers<void>();
  let second: Promise<Response> | undefined;
  let balances = 0;
  const slow = behind(network, async (ask, args) => {
    if (second && JSON.stringify(args).includes(BALANCE_OF)) balances += 1;
    // Verified, and asked again whether there is enough for both.
    if (balances === 2) seen.resolve();
    if (second || !args.method.startsWith('eth_sendRawTransaction')) return ask(args);
    second = call();
    await Promise.race([seen.promise, second]);
    return ask(args);
  });
  await rig.close();
  rig = await startRig(slow, { payTo, routes: [{ method: 'GET', path: '/a', price: '0.05' }] });
  expect((await call()).status).toBe(200);
  expect((await second)?.status).toBe(402);
  expect([rig.calls.length, await balance(network, 'tempo', payTo)]).toEqual([1, PRICE]);
});
