/**
 * The host dies before and after every write of every kind of payment. Afterwards the payer was charged once for work
 * that is done, or not at all, or has its money back; and the books agree with the chain.
 * A death is played by a registry and a network that never answer again, which is all that a dead process does; a last
 * test kills a real one.
 */
import { fork } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { tempo } from 'mppx/client';
import type { Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import defaults from '../../config/turnpike.default.json' with { type: 'json' };
import { createPayments, type Payments, type TollDeployment } from '../../host/payments/index.ts';
import type { Network } from '../../host/payments/network/index.ts';
import { parsePaidRoutes } from '../../host/payments/paid-routes.ts';
import { openRegistry, type Registry } from '../../host/registry/index.ts';
import { AdjustableClock } from '../../host/shared/clock.ts';
import { asProblem } from '../../host/shared/problem.ts';
import { balance, mppClient, mppOf, quiet, startNetwork, until, x402Client } from '../e2e/support/payments-rig.ts';

let network: Network;
let networkFolder: string;
let stop: () => Promise<void>;

beforeAll(async () => {
  ({ network, stop, folder: networkFolder } = await startNetwork());
});
afterAll(() => stop());

const key = (index: number): Hex => network.wallets?.[index]?.privateKey ?? '0x';
const never = new Promise<never>(() => {});

interface Life {
  payments: Payments;
  registry: Registry;
  /** Writes so far. */
  writes: number;
  dead: boolean;
  died: Promise<void>;
  /** Counts and dies only while it is armed. */
  armed: boolean;
}

/** Long enough for the writes that follow a payout. */
const quiesce = () => new Promise((resolve) => setTimeout(resolve, 200));

interface World {
  folder: string;
  payTo: string;
  deployment: TollDeployment;
  /** Deploys that are live: an effect outside the books, as real ones are. */
  live: Set<string>;
  handled: number;
}

async function begin(world: World, crash: { at: number; when: 'before' | 'after' } | undefined): Promise<Life> {
  const real = await openRegistry(path.join(world.folder, 'registry.db'));
  const died = Promise.withResolvers<void>();
  const life = { writes: 0, dead: false, died: died.promise, registry: real } as Life;
  const die = () => {
    life.dead = true;
    died.resolve();
    return never;
  };
  const batch = real.db.batch.bind(real.db);
  (real.db as { batch: unknown }).batch = async (statements: never) => {
    if (life.dead) return never;
    life.writes += life.armed ? 1 : 0;
    const now = life.armed && crash !== undefined && life.writes === crash.at;
    if (now && crash.when === 'before') return die();
    const result = await batch(statements);
    return now ? die() : life.dead ? never : result;
  };
  const payments = await createPayments({
    config: defaults.payments as never,
    network: mortal(network, life),
    registry: real,
    dataFolder: world.folder,
    publicUrl: 'http://localhost:8402',
    clock: new AdjustableClock(),
    log: quiet,
    payoutEveryMs: 20,
    forward: async () => {
      if (life.dead) return never;
      world.handled += 1;
      return Response.json({ done: true }, { headers: { 'x-charge': '0.02' } });
    },
  });
  payments.registerCompletion('deploy', async (prepared) => {
    if (life.dead) return never;
    world.live.add(JSON.stringify(prepared));
    return { status: 201, body: 'live' };
  });
  await payments.start();
  life.armed = true;
  life.payments = payments;
  return life;
}

/** A network that stops answering when its host is dead. */
function mortal(alive: Network, life: Life): Network {
  const wrap = <T extends { request: (...args: never[]) => Promise<unknown> }>(client: T): T => {
    const request = client.request.bind(client) as (...args: unknown[]) => Promise<unknown>;
    const guarded = async (...args: unknown[]) => {
      if (life.dead) return never;
      const result = await request(...args);
      return life.dead ? never : result;
    };
    return Object.assign(client, { request: guarded });
  };
  const { mpp, x402 } = alive;
  if (!mpp || !x402) throw new Error('no network');
  return {
    ...alive,
    mpp: { ...mpp, getClient: (account) => wrap(mpp.getClient(account) as never) },
    x402: { ...x402, getClient: (account) => wrap(x402.getClient(account) as never) },
  };
}

async function serveOn(world: World, current: () => Life): Promise<{ url: string; close(): Promise<void> }> {
  const { serve } = await import('@hono/node-server');
  const server = serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch: async (request) => {
      const url = new URL(request.url);
      const context = { requestId: 'r', clientIp: '127.0.0.1', proto: 'http' as const, host: url.host };
      const life = current();
      try {
        const answer =
          url.pathname === '/_deploy'
            ? life.payments.paidOperation(request, context, {
                name: 'deploy',
                scope: 'deploy',
                amount: 200_000n as never,
                description: 'Deploy',
                prepare: async () => ({ slug: 'a' }),
              })
            : life.payments.toll(
                request,
                { ...context, slug: 'shop', tenantPath: url.pathname, prefix: '' },
                world.deployment,
              );
        return await Promise.race([answer, life.died.then(() => Promise.reject(new Error('connection reset')))]);
      } catch (error) {
        return life.dead ? new Response('the connection broke', { status: 599 }) : asProblem(error).toResponse();
      }
    },
  });
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  return {
    url: `http://127.0.0.1:${port}`,
    close: async () => {
      (server as unknown as { closeAllConnections(): void }).closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

type Flow = { name: string; path: string; rail: 'mpp' | 'x402'; price: bigint };

const FLOWS: Flow[] = [
  { name: 'a deploy by MPP', path: '/_deploy', rail: 'mpp', price: 200_000n },
  { name: 'a deploy by x402', path: '/_deploy', rail: 'x402', price: 200_000n },
  { name: 'a fixed route by MPP', path: '/fixed', rail: 'mpp', price: 10_000n },
  { name: 'a fixed route by x402', path: '/fixed', rail: 'x402', price: 10_000n },
  {
    name: 'a metered route by MPP: collected, divided, the rest given back',
    path: '/metered',
    rail: 'mpp',
    price: 20_000n,
  },
  { name: 'a metered route by x402 upto', path: '/metered', rail: 'x402', price: 20_000n },
];

async function newWorld(): Promise<World> {
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  return {
    folder: await mkdtemp(path.join(tmpdir(), 'tp-crash-')),
    payTo,
    live: new Set(),
    handled: 0,
    deployment: {
      slug: 'shop',
      tenant: 'tshop0000000000000000',
      payTo: payTo.toLowerCase() as Hex,
      paidRoutes: parsePaidRoutes([
        { method: 'POST', path: '/fixed', price: '0.01' },
        { method: 'POST', path: '/metered', price: '0.05', mode: 'metered' },
      ]),
    },
  };
}

describe.each(FLOWS)('$name', ({ path: route, rail, price }) => {
  test('survives a death before and after each of its writes', { timeout: 300_000 }, async () => {
    const token = rail === 'mpp' ? 'tempo' : 'usdc';
    let walked = 0;
    for (let at = 1; at <= 30; at += 1) {
      let crashed = false;
      for (const when of ['before', 'after'] as const) {
        const world = await newWorld();
        let life = await begin(world, { at, when });
        const server = await serveOn(world, () => life);
        const client = rail === 'mpp' ? mppClient(network, key(0)) : x402Client(network, key(1));
        const before = await balance(network, token, client.address);
        const call = () => client.fetch(`${server.url}${route}`, { method: 'POST', body: '{}' });
        const first = await call();
        // Payouts go out behind the answer: give a death there the time to come.
        const quietly = until(
          async () => (await life.payments.ledger.open()).length === 0 && first.status < 300,
          2_000,
        );
        await Promise.race([life.died, quietly.catch(() => {})]);
        const where = `write ${at}, ${when}`;
        life.armed = false;
        if (life.dead) {
          crashed = true;
          walked += 1;
          life = await begin(world, undefined);
          const { authorization, signature } = client.sent;
          const retry = await fetch(`${server.url}${route}`, {
            method: 'POST',
            body: '{}',
            headers: authorization ? { authorization } : { 'payment-signature': signature ?? '' },
          });
          // Either the work is (or was) done, or it was lost and the money goes back; never a second bill.
          expect([200, 201, 502], where).toContain(retry.status);
          await until(async () => (await life.payments.ledger.open()).every((item) => item.kind === 'stuck'));
          const paid = before - (await balance(network, token, client.address));
          const problem = retry.status === 502 ? ((await retry.json()) as { refund: string }) : undefined;
          if (problem) expect(problem.refund, where).toBeDefined();
          else expect(paid, where).toBe(price);
          if (route === '/_deploy') expect(world.live.size, where).toBe(paid === 0n ? 0 : 1);
        }
        const report = await life.payments.ledger.reconcile();
        expect(report.differences, where).toEqual([]);
        await life.payments.stop();
        life.registry.close();
        await server.close();
        await rm(world.folder, { recursive: true, force: true });
      }
      if (!crashed) break;
    }
    expect(walked).toBeGreaterThanOrEqual(6);
  });
});

test('a session survives a death before and after each of its writes', { timeout: 300_000 }, async () => {
  const account = privateKeyToAccount(key(2));
  let walked = 0;
  for (let at = 1; at <= 30; at += 1) {
    let crashed = false;
    for (const when of ['before', 'after'] as const) {
      const world = await newWorld();
      let life = await begin(world, { at, when });
      const server = await serveOn(world, () => life);
      const sent: Request[] = [];
      const recorder = async (input: string | URL | Request, init?: RequestInit) => {
        const request = new Request(input, init);
        if (request.headers.get('authorization')) sent.push(request.clone());
        return fetch(request);
      };
      const client = () => mppOf(network).getClient(account) as never;
      const session = tempo.session.manager({
        account,
        getClient: client,
        maxDeposit: '1',
        fetch: recorder as typeof fetch,
      });
      const before = await balance(network, 'tempo', account.address);
      const call = () => session.fetch(`${server.url}/metered`, { method: 'POST', body: '{}' });
      const statuses: number[] = [];
      const where = `write ${at}, ${when}`;
      for (let i = 0; i < 2 && !life.dead; i += 1) statuses.push((await call()).status);
      if (!life.dead) await session.close().catch(() => undefined);
      // Payouts go out behind the answer: give a death there the time to come.
      const quietly = until(async () => (await balance(network, 'tempo', world.payTo)) === 40_000n, 3_000);
      await Promise.race([life.died, quietly.then(() => quiesce()).catch(() => {})]);
      life.armed = false;
      if (life.dead) {
        crashed = true;
        walked += 1;
        life = await begin(world, undefined);
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
      await until(keeper, 20_000);
      const captured = (
        await life.registry.client.execute('SELECT coalesce(sum(captured), 0) AS sum FROM payment_channels')
      ).rows[0]?.sum;
      expect(before - (await balance(network, 'tempo', account.address)), where).toBe(BigInt(Number(captured)));
      await until(async () => (await balance(network, 'tempo', world.payTo)) === BigInt(Number(captured)));
      await life.payments.stop();
      life.registry.close();
      await server.close();
      await rm(world.folder, { recursive: true, force: true });
    }
    if (!crashed) break;
  }
  expect(walked).toBeGreaterThanOrEqual(8);
});

test('kill -9 of a real process in the middle of deploys: every one is live and paid, or neither', {
  timeout: 240_000,
}, async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-kill-'));
  const child = () =>
    new Promise<{ port: number; kill(): Promise<void> }>((resolve, reject) => {
      const process_ = fork(new URL('../e2e/support/payments-child.ts', import.meta.url), [folder, networkFolder], {
        execArgv: [],
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
  for (const [round, delay] of [0, 6, 12, 20, 40].entries()) {
    let host = await child();
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
    await host.kill();
  }
  const after = await Promise.all(
    [0, 1].map((index) => balance(network, index === 0 ? 'tempo' : 'usdc', privateKeyToAccount(key(index)).address)),
  );
  expect(before.reduce((sum, value) => sum + value, 0n) - after.reduce((sum, value) => sum + value, 0n)).toBe(paid);
  await rm(folder, { recursive: true, force: true });
});
