/**
 * Payments that die before or after a chosen write of their registry. A death is played by a registry and a network
 * that never answer again, which is all that a dead process does.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { serve } from '@hono/node-server';
import type { Account, Hex } from 'viem';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import defaults from '../../../config/turnpike.default.json' with { type: 'json' };
import { createPayments, type Payments, type TollDeployment } from '../../../host/payments/index.ts';
import type { Network } from '../../../host/payments/network/index.ts';
import { parsePaidRoutes } from '../../../host/payments/paid-routes.ts';
import { openRegistry, type Registry } from '../../../host/registry/index.ts';
import { AdjustableClock } from '../../../host/shared/clock.ts';
import { asProblem } from '../../../host/shared/problem.ts';
import { quiet } from './payments-rig.ts';

/** Signs nothing. */
const NOBODY = privateKeyToAccount(generatePrivateKey());
const never = new Promise<never>(() => {});

export interface Life {
  payments: Payments;
  registry: Registry;
  /** Writes so far. */
  writes: number;
  dead: boolean;
  died: Promise<void>;
  /** Counts and dies only while it is armed. */
  armed: boolean;
}

export interface World {
  folder: string;
  payTo: string;
  deployment: TollDeployment;
  /** Deploys that are live: an effect outside the books, as real ones are. */
  live: Set<string>;
  /** Calls that the handler saw. */
  handled: number;
}

export async function newWorld(): Promise<World> {
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

/** Starts payments on a world's registry. @param crash the write, counted from the end of the start, and its side */
export async function begin(
  network: Network,
  world: World,
  crash: { at: number; when: 'before' | 'after' } | undefined,
): Promise<Life> {
  const real = await openRegistry(path.join(world.folder, 'registry.db'));
  const died = Promise.withResolvers<void>();
  const life = { writes: 0, dead: false, died: died.promise, registry: real as Registry } as Life;
  const die = () => {
    life.dead = true;
    died.resolve();
    // What only looks at the books would go on; that the rest of it never ends is as it should be.
    void life.payments.stop();
    return never;
  };
  // Drizzle’s batches come here too.
  const batch = real.client.batch.bind(real.client);
  (real.client as { batch: unknown }).batch = async (statements: (string | { sql: string })[]) => {
    if (life.dead) return never;
    const isCounted =
      life.armed && statements.some((one) => !/^\s*SELECT/i.test(typeof one === 'string' ? one : one.sql));
    life.writes += isCounted ? 1 : 0;
    const now = isCounted && crash !== undefined && life.writes === crash.at;
    if (now && crash.when === 'before') return die();
    const result = await batch(statements as never);
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
  // A network makes one client for an account. Other lives are not to have this one's.
  const own = (account?: Account) => ({ ...(account ?? NOBODY) }) as Account;
  return {
    ...alive,
    mpp: { ...mpp, getClient: (account) => wrap(mpp.getClient(own(account)) as never) },
    x402: { ...x402, getClient: (account) => wrap(x402.getClient(own(account)) as never) },
  };
}

/** The host's HTTP server, which outlives its payments. @param current the present life */
export async function serveOn(world: World, current: () => Life): Promise<{ url: string; close(): Promise<void> }> {
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

export async function endWorld(world: World, life: Life, server: { close(): Promise<void> }): Promise<void> {
  await life.payments.stop();
  life.registry.close();
  await server.close();
  await rm(world.folder, { recursive: true, force: true });
}
