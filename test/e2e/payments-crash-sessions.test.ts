/**
 * The host dies before and after every write of a session, and a real one is killed in the middle of deploys: nothing is
 * charged twice, what was not used goes back, and the books agree with the chain.
 */
import { fork } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/client';
import { wrapFetchWithPayment, x402Client as x402Fetch } from '@x402/fetch';
import { tempo } from 'mppx/client';
import type { Hex } from 'viem';
import { generatePrivateKey, type PrivateKeyAccount, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Network } from '../../host/payments/network/index.ts';
import { begin, endWorld, newWorld, serveOn } from './support/mortal-payments.ts';
import { balance, mppClient, mppOf, startNetwork, x402Client } from './support/payments-rig.ts';
import { until } from './support/until.ts';

/** Each life of the process loads what payments need as a host does. */
const PACKED = new URL('./support/packed-packages.ts', import.meta.url).href;

let network: Network;
let networkFolder: string;
let stop: () => Promise<void>;

beforeAll(async () => {
  ({ network, stop, folder: networkFolder } = await startNetwork());
});
afterAll(() => stop());

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';

/** What pays for calls from a deposit, and asks for what is left of it. */
const PAYERS = {
  'tempo/session'(account, send) {
    const getClient = () => mppOf(network).getClient(account) as never;
    const session = tempo.session.manager({ account, getClient, maxDeposit: '1', fetch: send });
    return {
      asset: 'tempo',
      call: (url) => session.fetch(`${url}/metered`, { method: 'POST', body: '{}' }),
      close: () => session.close(),
    };
  },
  'x402/batch-settlement'(account, send) {
    const readContract = (asked: never) => network.x402?.getClient().readContract(asked);
    const scheme = new BatchSettlementEvmScheme(Object.assign(account, { readContract }) as never, {
      salt: generatePrivateKey(),
    });
    const paying = wrapFetchWithPayment(send, new x402Fetch().register('eip155:*', scheme));
    return {
      asset: 'usdc',
      call: (url) => paying(`${url}/metered`, { method: 'POST', body: '{}' }),
      // Its client asks by GET, of which nothing is sold here.
      close: (url) =>
        scheme.refund(`${url}/metered`, {
          fetch: ((input, init) => send(input, { ...init, method: 'POST', body: '{}' })) as typeof fetch,
        }),
    };
  },
} satisfies Record<string, (account: PrivateKeyAccount, send: typeof fetch) => Payer>;

interface Payer {
  asset: 'tempo' | 'usdc';
  call(url: string): Promise<Response>;
  close(url: string): Promise<unknown>;
}

test.each(Object.keys(PAYERS) as (keyof typeof PAYERS)[])(
  '%s survives a death before and after each of its writes',
  async (rail) => {
    const account = privateKeyToAccount(key(2));
    let walked = 0;
    for (let at = 1; at <= 30; at += 1) {
      let crashed = false;
      for (const when of ['before', 'after'] as const) {
        const world = await newWorld();
        let life = await begin(network, world, { at, when });
        const server = await serveOn(world, () => life);
        const sent: Request[] = [];
        const recorder = async (input: string | URL | Request, init?: RequestInit) => {
          const request = new Request(input, init);
          if (request.headers.has('authorization') || request.headers.has('payment-signature'))
            sent.push(request.clone());
          return fetch(request);
        };
        const payer: Payer = PAYERS[rail](account, recorder as typeof fetch);
        const { asset } = payer;
        const before = await balance(network, asset, account.address);
        const call = () => payer.call(server.url);
        const statuses: number[] = [];
        const where = `write ${at}, ${when}`;
        for (let i = 0; i < 2 && !life.dead; i += 1) statuses.push((await call()).status);
        if (!life.dead) await payer.close(server.url).catch(() => undefined);
        // Payouts go out behind the answer: give a death there the time to come.
        const paidOut = async () =>
          (await balance(network, asset, world.payTo)) === 40_000n && (await life.payments.ledger.open()).length === 0;
        await Promise.race([life.died, until(paidOut).catch(() => {})]);
        life.armed = false;
        if (life.dead) {
          crashed = true;
          walked += 1;
          life = await begin(network, world, undefined);
          const retry = await fetch(sent.at(-1)!.clone());
          // 502: an answer that streamed was lost, and the channel no longer owes it.
          expect([200, 204, 402, 502], where).toContain(retry.status);
        }
        // Whatever the client remembers, the host closes what is left and gives the rest back.
        const keeper = async () => {
          await life.registry.client.execute('UPDATE payment_channels SET used_at = 0');
          const report = await life.payments.ledger.reconcile();
          expect(report.differences, where).toEqual([]);
          const rows = (
            await life.registry.client.execute(
              "SELECT count(*) AS n FROM payment_channels WHERE state IN ('opening', 'open', 'closing')",
            )
          ).rows;
          return Number(rows[0]?.n) === 0;
        };
        await until(keeper);
        // An answer that was lost while its channel was closing is paid by the chain, and sent back from there.
        const [sums] = (
          await life.registry.client.execute(`SELECT
          (SELECT coalesce(sum(captured), 0) FROM payment_channels)
          - (SELECT coalesce(sum(amount), 0) FROM payment_outgoing WHERE kind = 'refund') AS kept`)
        ).rows;
        const kept = BigInt(Number(sums?.kept));
        await until(async () => before - (await balance(network, asset, account.address)) === kept);
        await until(async () => (await balance(network, asset, world.payTo)) === kept);
        await endWorld(world, life, server);
      }
      if (!crashed) break;
    }
    expect(walked).toBeGreaterThanOrEqual(8);
  },
);

test('kill -9 of a real process in the middle of deploys: every one is live and paid, or neither', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-kill-'));
  const child = () =>
    new Promise<{ port: number; kill(): Promise<void> }>((resolve, reject) => {
      const process_ = fork(new URL('./support/payments-child.ts', import.meta.url), [folder, networkFolder], {
        execArgv: ['--import', PACKED],
      });
      const exited = new Promise<void>((done) => process_.once('exit', () => done()));
      process_.once('message', (port) =>
        resolve({
          port: port as number,
          kill: async () => {
            process_.kill('SIGKILL');
            await exited;
          },
        }),
      );
      process_.once('error', reject);
    });
  let paid = 0n;
  const before = await Promise.all(
    [0, 1].map((index) => balance(network, index === 0 ? 'tempo' : 'usdc', privateKeyToAccount(key(index)).address)),
  );
  // What is started for a retry is what the next round kills.
  let host = await child();
  for (const [round, delay] of [0, 6, 12, 20, 40].entries()) {
    const client = round % 2 === 0 ? mppClient(network, key(0)) : x402Client(network, key(1));
    const call = client
      .fetch(`http://127.0.0.1:${host.port}/_deploy`, { method: 'POST', body: `{"n":${round}}` })
      .catch(() => undefined);
    await until(async () => client.sent.authorization !== undefined || client.sent.signature !== undefined);
    await new Promise((resolve) => setTimeout(resolve, delay));
    await host.kill();
    await call;
    host = await child();
    const { authorization, signature } = client.sent;
    const retry = await fetch(`http://127.0.0.1:${host.port}/_deploy`, {
      method: 'POST',
      body: `{"n":${round}}`,
      headers: authorization ? { authorization } : { 'payment-signature': signature ?? '' },
    });
    expect(retry.status).toBe(201);
    paid += 200_000n;
    const report = (await (await fetch(`http://127.0.0.1:${host.port}/_reconcile`)).json()) as {
      differences: unknown[];
      live: number;
    };
    expect(report.differences).toEqual([]);
    expect(report.live).toBe(round + 1);
  }
  await host.kill();
  const after = await Promise.all(
    [0, 1].map((index) => balance(network, index === 0 ? 'tempo' : 'usdc', privateKeyToAccount(key(index)).address)),
  );
  expect(before.reduce((sum, value) => sum + value, 0n) - after.reduce((sum, value) => sum + value, 0n)).toBe(paid);
  await rm(folder, { recursive: true, force: true });
});
