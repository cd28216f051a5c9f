/** The host's own paid calls and proofs: stock clients pay, nothing is charged twice, refused work costs nothing. */
import { execFile } from 'node:child_process';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Challenge, Credential } from 'mppx';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { Problem } from '../../host/shared/problem.ts';
import { balance, mppClient, mppOf, type Rig, startNetwork, startRig, x402Client } from './support/payments-rig.ts';
import { until } from './support/until.ts';

let network: Network;
let stop: () => Promise<void>;
let rig: Rig;

beforeAll(async () => {
  ({ network, stop } = await startNetwork());
});
afterAll(() => stop());
beforeEach(async () => {
  rig = await startRig(network, { payTo: privateKeyToAccount(generatePrivateKey()).address });
});
afterEach(() => rig.close());

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const deploy = (client: { fetch: typeof fetch }, body = '{"slug":"a"}', headers: Record<string, string> = {}) =>
  client.fetch(`${rig.url}/_deploy`, { method: 'POST', body, headers });
const raw = (authorization: string, body = '{"slug":"a"}') =>
  fetch(`${rig.url}/_deploy`, { method: 'POST', body, headers: { authorization } });

test('an empty unpaid call gets the 402 with both protocols and may not be cached', async () => {
  const response = await fetch(`${rig.url}/_deploy`, { method: 'POST' });
  expect(response.status).toBe(402);
  expect(response.headers.get('cache-control')).toBe('no-store');
  expect(response.headers.get('access-control-expose-headers')).toContain('PAYMENT-REQUIRED');
  const [challenge] = Challenge.fromResponseList(response);
  expect(challenge).toMatchObject({ method: 'tempo', intent: 'charge', realm: 'localhost' });
  expect(challenge?.request.amount).toBe('200000');
  expect(challenge?.description).toContain('TEST MONEY');
  const required = JSON.parse(Buffer.from(response.headers.get('payment-required') ?? '', 'base64').toString());
  expect(required).toMatchObject({ x402Version: 2, accepts: [{ scheme: 'exact', amount: '200000' }] });
  expect(await response.json()).toMatchObject({ code: 'payment_required', status: 402, testMoney: true });
});

test('a stock mppx client and a stock x402 client pay; the payer is known by its wallet', async () => {
  const mpp = mppClient(network, key(0));
  const x402 = x402Client(network, key(1));
  const before = await balance(network, 'tempo', mpp.address);
  const first = await deploy(mpp);
  expect(first.status).toBe(201);
  expect(await first.json()).toMatchObject({ payer: `did:pkh:eip155:1337:${mpp.address.toLowerCase()}` });
  expect(first.headers.get('payment-receipt')).toBeTruthy();
  expect(before - (await balance(network, 'tempo', mpp.address))).toBe(200_000n);
  const second = await deploy(x402);
  expect(second.status).toBe(201);
  expect(second.headers.get('payment-response')).toBeTruthy();
  expect(rig.completed).toHaveLength(2);
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
});

test.each(['mpp', 'x402'] as const)(
  'a wallet that holds too little is told what is missing, by %s',
  async (protocol) => {
    const client = (protocol === 'mpp' ? mppClient : x402Client)(network, generatePrivateKey());
    const token = protocol === 'mpp' ? network.mpp?.currency : network.x402?.token;
    const response = await deploy(client);
    expect(response.status).toBe(402);
    const { detail } = (await response.json()) as { detail: string };
    expect(detail.toLowerCase()).toContain(
      `wallet ${client.address} holds 0.00 of the 0.20 usd needed, in token ${token} on chain 1337 (`.toLowerCase(),
    );
  },
);

test('the stock mppx command pays and proves', async () => {
  const bin = fileURLToPath(new URL('../../node_modules/mppx/dist/bin.js', import.meta.url));
  const environment = {
    PATH: process.env.PATH,
    HOME: rig.folder,
    MPPX_PRIVATE_KEY: key(2),
    MPPX_RPC_URL: mppOf(network).rpcUrl,
  };
  const run = (...args: string[]) =>
    promisify(execFile)(process.execPath, [bin, ...args], { env: environment, cwd: path.dirname(bin) });
  const paid = await run(
    `${rig.url}/_deploy`,
    '-X',
    'POST',
    '-J',
    '{"slug":"cli"}',
    '-r',
    mppOf(network).rpcUrl,
    '--protocol',
    'mpp',
  );
  expect(paid.stdout).toContain('cli');
  const proved = await run(`${rig.url}/_proof`, '-X', 'PUT', '-J', '{}', '-r', mppOf(network).rpcUrl, '-s');
  expect(proved.stdout.toLowerCase()).toContain(privateKeyToAccount(key(2)).address.toLowerCase());
});

test('the same credential again: one charge, the same answer', async () => {
  const client = mppClient(network, key(0));
  const before = await balance(network, 'tempo', client.address);
  const first = await deploy(client);
  const text = await first.text();
  for (let i = 0; i < 3; i += 1) {
    const again = await raw(client.sent.authorization ?? '');
    expect(again.status).toBe(201);
    expect(await again.text()).toBe(text);
    expect(again.headers.get('payment-receipt')).toBe(first.headers.get('payment-receipt'));
  }
  expect(rig.completed).toHaveLength(1);
  expect(before - (await balance(network, 'tempo', client.address))).toBe(200_000n);
});

test('the same credential ten times at once: one is worked on, all get its answer', async () => {
  const client = mppClient(network, key(0));
  rig.prepare = async () => {
    throw new Problem('code_rejected', 'not yet');
  };
  expect((await deploy(client)).status).toBe(422);
  let running = 0;
  let most = 0;
  rig.prepare = async () => {
    most = Math.max(most, ++running);
    await new Promise((resolve) => setTimeout(resolve, 50));
    running -= 1;
  };
  const answers = await Promise.all(Array.from({ length: 10 }, () => raw(client.sent.authorization ?? '')));
  expect(new Set(answers.map((answer) => answer.status))).toEqual(new Set([201]));
  expect(new Set(await Promise.all(answers.map((answer) => answer.text()))).size).toBe(1);
  expect(most).toBe(1);
  expect(rig.completed).toHaveLength(1);
});

test('what the checks refuse costs nothing, and the same credential can try again', async () => {
  const client = mppClient(network, key(1));
  const before = await balance(network, 'tempo', client.address);
  rig.prepare = async () => {
    throw new Problem('slug_taken', 'The slug is taken.');
  };
  const refused = await deploy(client);
  expect(refused.status).toBe(409);
  expect(refused.headers.get('payment-receipt')).toBeNull();
  expect(await balance(network, 'tempo', client.address)).toBe(before);
  rig.prepare = async () => {};
  expect((await raw(client.sent.authorization ?? '')).status).toBe(201);
  expect(before - (await balance(network, 'tempo', client.address))).toBe(200_000n);
});

test('a credential is good for the body it was made for', async () => {
  const client = mppClient(network, key(1));
  rig.prepare = async () => {
    throw new Problem('code_rejected', 'no');
  };
  await deploy(client, '{"slug":"mine"}');
  rig.prepare = async () => {};
  const other = await raw(client.sent.authorization ?? '', '{"slug":"theirs"}');
  expect(other.status).toBe(402);
  expect(rig.completed).toHaveLength(0);
});

test('Idempotency-Key: a retry that signs anew gets the first answer and pays nothing; another body is 409', async () => {
  const client = mppClient(network, key(2));
  const before = await balance(network, 'tempo', client.address);
  const first = await deploy(client, '{"slug":"a"}', { 'idempotency-key': 'k1' });
  const again = await deploy(client, '{"slug":"a"}', { 'idempotency-key': 'k1' });
  expect(again.status).toBe(201);
  expect(await again.text()).toBe(await first.text());
  expect((await deploy(client, '{"slug":"b"}', { 'idempotency-key': 'k1' })).status).toBe(409);
  expect(before - (await balance(network, 'tempo', client.address))).toBe(200_000n);
  const other = mppClient(network, key(3));
  expect((await deploy(other, '{"slug":"a"}', { 'idempotency-key': 'k1' })).status).toBe(201);
  expect(rig.completed).toHaveLength(2);
});

test('work that cannot be completed after it was paid is refunded', async () => {
  for (const [client, token] of [
    [mppClient(network, key(3)), 'tempo'],
    [x402Client(network, key(3)), 'usdc'],
  ] as const) {
    const before = await balance(network, token, client.address);
    rig.completionFails = true;
    const response = await deploy(client);
    expect(response.status).toBe(502);
    expect(await response.json()).toMatchObject({ refund: 'owed', amount: '0.20' });
    await until(async () => (await balance(network, token, client.address)) === before);
    await until(async () => (await rig.payments.ledger.open()).length === 0);
    const again =
      token === 'tempo'
        ? await raw(client.sent.authorization ?? '')
        : await fetch(`${rig.url}/_deploy`, {
            method: 'POST',
            body: '{"slug":"a"}',
            headers: { 'payment-signature': client.sent.signature ?? '' },
          });
    expect(await again.json()).toMatchObject({ refund: 'done' });
    rig.completionFails = false;
  }
  expect((await rig.payments.ledger.reconcile()).differences).toEqual([]);
  expect(await rig.payments.ledger.open()).toEqual([]);
});

test('a proof names its wallet, is taken once, and for one operation', async () => {
  const client = mppClient(network, key(0));
  const response = await client.fetch(`${rig.url}/_proof`, { method: 'PUT' });
  expect(await response.json()).toEqual({
    address: client.address.toLowerCase(),
    did: `did:pkh:eip155:1337:${client.address.toLowerCase()}`,
  });
  const authorization = client.sent.authorization ?? '';
  expect((await fetch(`${rig.url}/_proof`, { method: 'PUT', headers: { authorization } })).status).toBe(402);
  expect((await raw(authorization)).status).toBe(402);
  const stranger = await client.fetch(`${rig.url}/_proof?owner=0x00000000000000000000000000000000000000aa`, {
    method: 'PUT',
  });
  expect(stranger.status).toBe(403);
  await rig.restart();
  expect((await fetch(`${rig.url}/_proof`, { method: 'PUT', headers: { authorization } })).status).toBe(402);
});

test('a payment credential proves nothing, and a proof of somebody else’s wallet is refused', async () => {
  const client = mppClient(network, key(0));
  await client.fetch(`${rig.url}/_proof`, { method: 'PUT' });
  const fresh = await fetch(`${rig.url}/_proof`, { method: 'PUT' });
  const [challenge] = Challenge.fromResponseList(fresh);
  const proof = Credential.deserialize(client.sent.authorization ?? '');
  const forged = Credential.serialize({
    ...proof,
    challenge: challenge as never,
    source: `did:pkh:eip155:1337:0x${'11'.repeat(20)}`,
  });
  expect((await fetch(`${rig.url}/_proof`, { method: 'PUT', headers: { authorization: forged } })).status).toBe(402);
});

test('owner tokens are good for one slug, however business time is moved', async () => {
  const payer = { address: `0x${'ab'.repeat(20)}` as const, did: `did:pkh:eip155:1337:0x${'ab'.repeat(20)}` };
  const { token } = rig.payments.ownerTokens.issue('hello', payer);
  expect(await rig.payments.ownerTokens.verify('hello', token)).toEqual(payer);
  expect(await rig.payments.ownerTokens.verify('other', token)).toBeUndefined();
  expect(await rig.payments.ownerTokens.verify('hello', `${token.slice(0, -2)}AA`)).toBeUndefined();
  rig.clock.setOffset(15 * 60_000 + 1);
  expect(await rig.payments.ownerTokens.verify('hello', token)).toEqual(payer);
});

test('ten thousand random and mutated credentials: none is accepted and nothing breaks', {
  timeout: 600_000,
}, async () => {
  const mpp = mppClient(network, key(4));
  const x402 = x402Client(network, key(4));
  rig.prepare = async () => {
    throw new Problem('code_rejected', 'no');
  };
  await deploy(mpp);
  await deploy(x402);
  // What is sent must differ from what was signed.
  const signed = [mpp.sent.authorization, x402.sent.signature];
  const context = { requestId: 'r', clientIp: '127.0.0.1', proto: 'http' as const, host: 'localhost' };
  let accepted = 0;
  const attempt = async (headers: Record<string, string>) => {
    const request = new Request(`${rig.url}/_deploy`, { method: 'POST', body: '{"slug":"a"}', headers });
    const response = await rig.payments.paidOperation(request, context, {
      name: 'deploy',
      scope: 'deploy',
      amount: 200_000n as never,
      description: 'Deploy',
      prepare: async () => {
        accepted += 1;
        throw new Problem('code_rejected', 'it came through');
      },
    });
    expect(response.status).toBe(402);
  };
  const mutated = async (name: string, value: string) => {
    if (!signed.includes(value)) await attempt({ [name]: value });
  };
  const random = seeded(42);
  for (let round = 0; round < 5000; round += 50) {
    const rounds = Array.from({ length: 50 }, (_, i) => round + i);
    await Promise.all(
      rounds.flatMap((i) => [
        mutated('authorization', mutateMpp(mpp.sent.authorization ?? '', random, i)),
        mutated('payment-signature', mutateX402(x402.sent.signature ?? '', random, i)),
      ]),
    );
  }
  expect(accepted).toBe(0);
  expect(rig.completed).toHaveLength(0);
  await attempt({});
});

/** A small generator with a seed, so that a failure can be repeated. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

function randomText(random: () => number, length: number): string {
  return Array.from({ length }, () => String.fromCharCode(33 + Math.floor(random() * 94))).join('');
}

/** Changes one character for another of the same kind, so that the text stays decodable. */
function flip(text: string, random: () => number): string {
  const at = Math.floor(random() * text.length);
  const char = text[at] ?? '';
  const pool = /[0-9]/.test(char)
    ? '0123456789'
    : /[a-f]/.test(char)
      ? 'abcdef'
      : /[a-z]/.test(char)
        ? 'ghijklmnopqrstuvwxyz'
        : 'ABCDEFXYZ_';
  const other = pool.replace(char, '');
  return text.slice(0, at) + other[Math.floor(random() * other.length)] + text.slice(at + 1);
}

function mutateMpp(header: string, random: () => number, round: number): string {
  const encoded = header.replace(/^Payment /, '');
  const decoded = Buffer.from(encoded, 'base64url').toString();
  const parsed = JSON.parse(decoded) as {
    challenge: Record<string, string>;
    payload: Record<string, string>;
    source?: string;
  };
  switch (round % 6) {
    case 0:
      return `Payment ${randomText(random, 1 + Math.floor(random() * 400)).replace(/[",]/g, 'x')}`;
    case 1:
      return `Payment ${encoded.slice(0, Math.floor(random() * (encoded.length - 8)))}`;
    case 2:
    case 3: {
      const names = Object.keys(parsed.challenge).filter((name) => name !== 'description');
      const name = names[Math.floor(random() * names.length)] ?? 'id';
      parsed.challenge[name] = flip(parsed.challenge[name] ?? 'x', random);
      return `Payment ${Buffer.from(JSON.stringify(parsed)).toString('base64url')}`;
    }
    case 4:
      // The signed transaction: any change breaks the signature, or makes it another payer's without money.
      parsed.payload.signature = flip(parsed.payload.signature ?? '0x', random);
      return `Payment ${Buffer.from(JSON.stringify(parsed)).toString('base64url')}`;
    default: {
      const strange = [
        null,
        0,
        [],
        {},
        '',
        '0x',
        true,
        { type: 'proof' },
        { type: 'hash', hash: `0x${'00'.repeat(32)}` },
      ];
      const payload = strange[Math.floor(random() * strange.length)];
      return `Payment ${Buffer.from(JSON.stringify({ ...parsed, payload })).toString('base64url')}`;
    }
  }
}

function mutateX402(header: string, random: () => number, round: number): string {
  const parsed = JSON.parse(Buffer.from(header, 'base64').toString()) as {
    accepted: Record<string, unknown>;
    payload: { signature: string; authorization: Record<string, string> };
    x402Version: number;
  };
  const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64');
  switch (round % 6) {
    case 0:
      return randomText(random, 1 + Math.floor(random() * 400));
    case 1:
      return header.slice(0, Math.floor(random() * (header.length - 8)));
    case 2:
      parsed.payload.signature = flip(parsed.payload.signature, random);
      return encode(parsed);
    case 3: {
      const names = Object.keys(parsed.payload.authorization);
      const name = names[Math.floor(random() * names.length)] ?? 'from';
      parsed.payload.authorization[name] = flip(parsed.payload.authorization[name] ?? '0', random);
      return encode(parsed);
    }
    case 4: {
      const names = ['scheme', 'network', 'asset', 'amount', 'payTo'];
      const name = names[Math.floor(random() * names.length)] ?? 'amount';
      parsed.accepted[name] = flip(String(parsed.accepted[name]), random);
      return encode(parsed);
    }
    default: {
      const strange = [null, 0, [], {}, '', { signature: '0x' }, { authorization: {} }, { permit2Authorization: {} }];
      return encode({ ...parsed, payload: strange[Math.floor(random() * strange.length)] });
    }
  }
}
