/**
 * Payments on the real local network behind a real HTTP server: one paid operation, proofs, and a tenant with paid
 * routes whose handler is a function of the test. Everything but the sandbox is the real thing.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { serve } from '@hono/node-server';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import { x402Client as StockX402Client, wrapFetchWithPayment } from '@x402/fetch';
import { Mppx, tempo } from 'mppx/client';
import pino from 'pino';
import { erc20Abi, type Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { readContract } from 'viem/actions';
import { Account, Actions } from 'viem/tempo';
import defaults from '../../../config/turnpike.default.json' with { type: 'json' };
import {
  createPayments,
  type Payments,
  type PaymentsOptions,
  type TollDeployment,
} from '../../../host/payments/index.ts';
import { type Network, openNetwork } from '../../../host/payments/network/index.ts';
import { parsePaidRoutes } from '../../../host/payments/paid-routes.ts';
import { openRegistry, type Registry } from '../../../host/registry/index.ts';
import { AdjustableClock } from '../../../host/shared/clock.ts';
import type { EdgeContext } from '../../../host/shared/contracts.ts';
import { type Money, micro } from '../../../host/shared/money.ts';
import { asProblem, Problem } from '../../../host/shared/problem.ts';

export type Handler = (request: Request, signal: AbortSignal) => Promise<Response> | Response;

export const OPERATION_PRICE = micro(200_000);

export interface Rig {
  url: string;
  folder: string;
  network: Network;
  registry: Registry;
  payments: Payments;
  clock: AdjustableClock;
  /** What the paid operation was completed with, in order. */
  completed: unknown[];
  /** Calls of the tenant's handler. */
  calls: Request[];
  deployment: TollDeployment;
  handler: Handler;
  operationPrice: Money;
  /** Where calls come from. */
  clientIp: string;
  /** Checks of the paid operation; throws to refuse. */
  prepare: (body: string) => Promise<void>;
  /** Makes the operation's completion fail. */
  completionFails: boolean;
  /** Ends payments as a crash would (nothing is finished), and starts them anew on the same registry. */
  restart(options?: Partial<PaymentsOptions>): Promise<void>;
  close(): Promise<void>;
}

export async function startNetwork(
  chainId = 1337,
): Promise<{ network: Network; folder: string; stop(): Promise<void> }> {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-net-'));
  const config = { ...defaults, payments: { ...defaults.payments, localChainId: chainId } } as never;
  const network = await openNetwork({ config, dataFolder: folder, clock: new AdjustableClock(), log: quiet });
  return {
    network,
    folder,
    async stop() {
      await network.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export const quiet = pino({ level: process.env.TURNPIKE_TEST_LOG ?? 'silent' });

export async function startRig(
  network: Network,
  options: {
    routes?: unknown[];
    payTo: string;
    feeBps?: number;
    schedule?: PaymentsOptions['schedule'];
    facilitator?: Partial<PaymentsOptions['config']['x402']['facilitator']>;
  },
): Promise<Rig> {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-pay-'));
  const registry = await openRegistry(path.join(folder, 'registry.db'));
  const clock = new AdjustableClock();
  const facilitator = { ...defaults.payments.x402.facilitator, ...options.facilitator };
  const x402 = { ...defaults.payments.x402, facilitator };
  const config = { ...defaults.payments, x402, feeBps: options.feeBps ?? 0 } as PaymentsOptions['config'];
  const rig = {
    folder,
    network,
    registry,
    clock,
    completed: [] as unknown[],
    calls: [] as Request[],
    handler: (() => Response.json({ ok: true })) as Handler,
    operationPrice: OPERATION_PRICE,
    clientIp: '127.0.0.1',
    prepare: async () => {},
    completionFails: false,
    deployment: {
      slug: 'shop',
      tenant: 'tshop0000000000000000',
      payTo: options.payTo.toLowerCase() as `0x${string}`,
      paidRoutes: parsePaidRoutes(options.routes ?? []),
    },
  } as unknown as Rig;

  async function create(more: Partial<PaymentsOptions> = {}): Promise<Payments> {
    const payments = await createPayments({
      config,
      network,
      registry,
      dataFolder: folder,
      publicUrl: 'http://localhost:8402',
      clock,
      log: quiet,
      payoutEveryMs: 50,
      ...(options.schedule ? { schedule: options.schedule } : {}),
      forward: async (_slug, request, headers, signal) => {
        const { url, method, body } = request;
        const seen = new Request(url, { method, headers: request.headers, body, ...(body ? { duplex: 'half' } : {}) });
        for (const [name, value] of Object.entries(headers)) seen.headers.set(name, value);
        rig.calls.push(seen.clone());
        return rig.handler(seen, signal);
      },
      ...more,
    });
    payments.registerCompletion('deploy', async (prepared, payment) => {
      if (rig.completionFails) throw new Error('the disk is full');
      rig.completed.push({ prepared, payment: payment.id });
      return {
        status: 201,
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ live: prepared, payer: payment.payer.did }),
      };
    });
    await payments.start();
    return payments;
  }

  rig.payments = await create();
  rig.restart = async (more) => {
    await rig.payments.stop();
    rig.payments = await create(more);
  };

  // On a busy machine a connection is idle for so long that it would be closed just as it is used again.
  const serverOptions = { keepAliveTimeout: 0 };
  const server = serve({ port: 0, hostname: '127.0.0.1', fetch: (request) => answer(rig, request), serverOptions });
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  rig.url = `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`;
  rig.close = async () => {
    await rig.payments.stop();
    (server as unknown as { closeAllConnections(): void }).closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
    registry.close();
    await rm(folder, { recursive: true, force: true });
  };
  return rig;
}

let requestCount = 0;

async function answer(rig: Rig, request: Request): Promise<Response> {
  const url = new URL(request.url);
  const context: EdgeContext = {
    requestId: `r${++requestCount}`,
    clientIp: rig.clientIp,
    proto: 'http',
    host: url.host,
  };
  try {
    if (url.pathname === '/_deploy') {
      return await rig.payments.paidOperation(request, context, {
        name: 'deploy',
        scope: 'deploy',
        amount: rig.operationPrice,
        description: 'Deploy',
        prepare: async (_payer, body) => {
          const text = Buffer.from(body).toString();
          await rig.prepare(text);
          return { body: text };
        },
      });
    }
    if (url.pathname === '/_proof') {
      const result = await rig.payments.proveOwner(request, context, {
        scope: 'PUT /_proof',
        ...(url.searchParams.get('owner') ? { expectedOwner: url.searchParams.get('owner') as Hex } : {}),
      });
      return 'response' in result ? result.response : Response.json(result.payer);
    }
    return await rig.payments.toll(
      request,
      { ...context, slug: 'shop', tenantPath: `${url.pathname}${url.search}`, prefix: '', via: 'path' },
      rig.deployment,
    );
  } catch (error) {
    const problem = asProblem(error);
    if (problem.code === 'internal' && !(error instanceof Problem)) quiet.error({ err: error }, 'rig');
    return problem.toResponse(context.requestId);
  }
}

/** A stock mppx client that pays single charges. Keeps the last credential it sent in `sent`. */
export function mppClient(network: Network, key: Hex) {
  const account = privateKeyToAccount(key);
  const recorder = recording();
  const client = Mppx.create({
    polyfill: false,
    fetch: recorder.fetch,
    methods: [tempo.charge({ account, getClient: () => mppOf(network).getClient() as never })],
  });
  return { account, address: account.address, sent: recorder.sent, fetch: client.fetch as typeof fetch };
}

/** A stock mppx client that signs mandates (MPP's subscriptions). Keeps the last credential it sent in `sent`. */
export function mandateClient(network: Network, key: Hex) {
  const account = privateKeyToAccount(key);
  const recorder = recording();
  const client = Mppx.create({
    polyfill: false,
    fetch: recorder.fetch,
    methods: [tempo.subscription({ account, getClient: () => mppOf(network).getClient() as never })],
  });
  return { account, address: account.address, sent: recorder.sent, fetch: client.fetch as typeof fetch };
}

/** The wallet takes a key of a mandate back, on the chain. */
export async function revokeKey(network: Network, wallet: Hex, accessKey: string): Promise<void> {
  const client = mppOf(network).getClient(Account.fromSecp256k1(wallet) as never);
  await Actions.accessKey.revokeSync(client as never, { accessKey } as never);
}

/** A stock x402 client for exact and upto. */
/** @param purchase names what it buys, by x402's own extension */
export function x402Client(network: Network, key: Hex, purchase?: string) {
  const account = privateKeyToAccount(key);
  const recorder = recording();
  const { x402 } = network;
  if (!x402) throw new Error('no x402 network');
  const client = StockX402Client.fromConfig({
    schemes: [
      { network: 'eip155:*', client: new ExactEvmScheme(account) },
      { network: 'eip155:*', client: new UptoEvmScheme(account, { rpcUrl: x402.rpcUrl } as never) },
    ],
    spendControls: { allowedAssets: [{ network: x402.network, asset: x402.token, maxAmountPerPayment: '100000000' }] },
  } as never);
  if (purchase !== undefined)
    client.onBeforePaymentCreation(async ({ paymentRequired }) => {
      appendPaymentIdentifierToExtensions(paymentRequired.extensions ?? {}, purchase);
    });
  const paying = wrapFetchWithPayment(recorder.fetch, client);
  return { account, address: account.address, sent: recorder.sent, fetch: paying as typeof fetch };
}

function recording() {
  const sent: { authorization?: string; signature?: string } = {};
  const recorded = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    const authorization = request.headers.get('authorization');
    const signature = request.headers.get('payment-signature');
    if (authorization) sent.authorization = authorization;
    if (signature) sent.signature = signature;
    return fetch(request);
  };
  return { sent, fetch: recorded as typeof fetch };
}

export function mppOf(network: Network): NonNullable<Network['mpp']> {
  if (!network.mpp) throw new Error('no MPP network');
  return network.mpp;
}

/** Balance in the token of MPP (`tempo`) or of x402 (`usdc`), atomic units. */
export async function balance(network: Network, token: 'tempo' | 'usdc', address: string): Promise<bigint> {
  const { x402 } = network;
  const mpp = mppOf(network);
  if (!x402) throw new Error('no x402 network');
  return readContract(token === 'tempo' ? mpp.getClient() : x402.getClient(), {
    address: token === 'tempo' ? mpp.currency : x402.token,
    abi: erc20Abi,
    functionName: 'balanceOf',
    args: [address as Hex],
  });
}

export type Args = { method: string; params?: unknown[] };
export type Ask = (args: Args, options?: unknown) => Promise<unknown>;

/** The network with something between the host and its node. */
export function behind(network: Network, between: (ask: Ask, args: Args) => Promise<unknown>): Network {
  const mpp = mppOf(network);
  return {
    ...network,
    mpp: {
      ...mpp,
      getClient: (account) => {
        const client = mpp.getClient(account);
        const ask = client.request.bind(client) as unknown as Ask;
        const request: Ask = (args, options) => between((changed) => ask(changed, options), args);
        return Object.assign({ ...client }, { request }) as never;
      },
    },
  };
}
