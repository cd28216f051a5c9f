/** What the doctor and the log of a start say of Solana in the settings, on a node that has each trouble in turn. */
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Address, lamports } from '@solana/kit';
import pino from 'pino';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { checkFacilitator, checkSolana } from '../../host/cli/doctor/host.ts';
import { openNetwork } from '../../host/payments/network/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { type Config, configSchema } from '../../host/shared/config.ts';
import { DEVNET, type SolanaNode, startSolanaNode, tokenAccountOf, USDC } from '../e2e/support/solana-node.ts';

const RENT = 890_880n;
const MOST_LAMPORTS = 15_000n;

let node: SolanaNode;
let folder: string;
let config: Config;
let feePayer: Address;

beforeAll(async () => {
  node = await startSolanaNode();
  folder = await mkdtemp(path.join(tmpdir(), 'tp-solana-'));
  config = named((await node.wallet(0n)).address);
});
afterAll(async () => {
  await node?.close();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(() => {
  node.fault = () => undefined;
});

function named(recipient: string, rpcUrl = node.url, facilitator = ''): Config {
  const { x402 } = defaults.payments;
  return configSchema.parse({
    ...defaults,
    payments: {
      ...defaults.payments,
      network: 'none',
      solana: { ...defaults.payments.solana, network: 'solana-devnet', rpcUrl, recipient },
      x402: { ...x402, facilitator: { ...x402.facilitator, url: facilitator } },
    },
  });
}

const found = async (of = config) =>
  (await checkSolana(of, folder)).map(({ state, detail, fix }) => [state, detail, fix]);
const text = (part: string) => expect.stringContaining(part);

test('a start says what is missing, and the doctor the same until it is there', async () => {
  expect(await found()).toEqual([['warning', text('no address yet'), text('start the host once')]]);
  const said = Promise.withResolvers<string>();
  const log = pino({ level: 'warn' }, { write: (line) => said.resolve(line) });
  const network = await openNetwork({ config, dataFolder: folder, clock: new AdjustableClock(), log });
  feePayer = network.solana?.[0]?.feePayer as Address;
  const { msg } = JSON.parse(await said.promise);
  expect(msg).toMatch(`payments on Solana: ${feePayer}, which pays the fees on solana-devnet, has 0 SOL`);
  expect(msg).toMatch(/: send it at least 0\.0023\d* SOL$/);
  expect(await found()).toEqual([['fault', text('enough for 0 payments'), text('send it at least')]]);
  // An account keeps its rent, or nothing is taken from it.
  node.svm.airdrop(feePayer, lamports(RENT + 99n * MOST_LAMPORTS));
  expect(await found()).toEqual([['warning', text('enough for 99 payments'), 'send it at least 0.000015 SOL']]);
  node.svm.airdrop(feePayer, lamports(MOST_LAMPORTS));
  expect(await found()).toEqual([['ok', text(`${feePayer} pays the fees`), undefined]]);
});

test('a node that is away, busy, or of another network', async () => {
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, '127.0.0.1', resolve));
  const { port } = closed.address() as AddressInfo;
  await new Promise((resolve) => closed.close(resolve));
  const silent = [['fault', 'solana-devnet does not answer', text('check payments.solana.rpcUrl')]];
  expect(await found(named(config.payments.solana.recipient, `http://127.0.0.1:${port}/?key=secret`))).toEqual(silent);
  node.fault = (method) => (method === 'getBalance' ? { error: { code: -32005, message: 'busy' } } : undefined);
  expect(await found()).toEqual(silent);
  node.fault = (method) =>
    method === 'getGenesisHash' ? { result: '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d' } : undefined;
  expect(await found()).toEqual([['fault', text('a node of another network than solana-devnet'), text('name a node')]]);
});

test('a token that is not there, or has other decimals', async () => {
  const mint = (change: (data: Buffer) => void) => {
    const data = Buffer.from((node.svm.getAccount(USDC) as { data: Uint8Array }).data);
    change(data);
    node.fault = (method, [of]) => {
      if (method !== 'getAccountInfo' || of !== USDC) return undefined;
      const owner = 'TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA';
      return { result: { value: { owner, data: [data.toString('base64'), 'base64'] } } };
    };
  };
  mint((data) => data.writeUInt8(9, 44));
  expect(await found()).toEqual([['fault', text('has 9 decimals, not 6'), text('name a node')]]);
  node.fault = (method, [of]) => (method === 'getAccountInfo' && of === USDC ? { result: { value: null } } : undefined);
  expect(await found()).toEqual([['fault', text(`has no token ${USDC}`), text('name a node')]]);
});

test('a recipient without an account for USDC, with a frozen one, and that is no wallet', async () => {
  const { address } = await node.wallet(0n);
  const account = await tokenAccountOf(address);
  // Whoever sends USDC to an account of tokens as to a wallet has lost it.
  const owned = [['fault', text('an account for tokens, not a wallet'), text(`that owns it: ${address}`)]];
  expect(await found(named(account))).toEqual(owned);
  const held = node.svm.getAccount(account) as { data: Uint8Array };
  held.data[108] = 2;
  node.svm.setAccount(held as never);
  expect(await found(named(address))).toEqual([['warning', text('is frozen'), text('another wallet')]]);
  const nobody = 'HN7cABqLq46Es1jh92dQQisAq662SmxELLLsHHe4YWrH';
  expect(await found(named(nobody))).toEqual([
    ['warning', text('has no account for USDC'), text('send it a little USDC')],
  ]);
});

test('where a facilitator pays the fees it is asked for Solana, and the host needs no coins', async () => {
  const kind = { x402Version: 2, scheme: 'exact', network: DEVNET, extra: { feePayer } as object };
  const facilitator = createServer((_request, response) => response.end(JSON.stringify({ kinds: [kind] })));
  await new Promise<void>((resolve) => facilitator.listen(0, '127.0.0.1', resolve));
  try {
    const { port } = facilitator.address() as AddressInfo;
    const elsewhere = named(config.payments.solana.recipient, node.url, `http://127.0.0.1:${port}`);
    expect(await found(elsewhere)).toEqual([['ok', text('the facilitator pays the fees'), undefined]]);
    expect(await checkFacilitator(elsewhere)).toMatchObject([
      { state: 'ok', detail: text('settles exact on solana-devnet') },
    ]);
    // Without the account that payers sign for, nothing can be offered.
    kind.extra = {};
    expect(await checkFacilitator(elsewhere)).toMatchObject([
      { state: 'fault', detail: text('settles nothing'), fix: text('payments.solana.network') },
    ]);
  } finally {
    facilitator.closeAllConnections();
    facilitator.close();
  }
});
