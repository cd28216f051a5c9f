/**
 * Payments of the host, composed: rails on the network, the settlement machine on the registry, and on top of it the
 * host's own paid calls, tenants' paid routes and their `env.PAYMENTS`.
 */
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { Registry } from '../registry/index.ts';
import { type KeyFiles, keyFilesIn } from '../registry/key-file.ts';
import { ChannelStore } from '../registry/payments/channels.ts';
import { Debts } from '../registry/payments/debts.ts';
import { Invariants } from '../registry/payments/invariants.ts';
import type { PaymentRow } from '../registry/payments/schema.ts';
import { addSetting, readSetting } from '../registry/settings.ts';
import { TrustedClock } from '../registry/trusted-clock.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import { CONSOLE_PATH } from '../shared/console-place.ts';
import { type Money, micro, parseUsd, ZERO } from '../shared/money.ts';
import type { Others } from '../shared/others.ts';
import { Problem } from '../shared/problem.ts';
import { Background } from './background.ts';
import { Challenger } from './challenge.ts';
import { Guard } from './ledger/guard.ts';
import { Reconciler } from './ledger/reconcile.ts';
import { Reports } from './ledger/reports.ts';
import { Restored } from './ledger/restored.ts';
import { hostWallets } from './ledger/wallets.ts';
import { credentialsOf, toolAnswer } from './mcp/transport.ts';
import { ChannelCalls } from './methods/channels/calls.ts';
import { SessionPlaces } from './methods/channels/places.ts';
import { ChannelSweeper, type SweepSchedule } from './methods/channels/sweeper.ts';
import { CREDENTIAL_HEADERS, EXPOSED_HEADERS, methodOfRail, openMandates, openRails } from './methods/index.ts';
import { ProofVerifier } from './methods/tempo/proof.ts';
import { SessionVerifier } from './methods/tempo/sessions/verifier.ts';
import { missingContracts } from './methods/x402/batch/contracts.ts';
import { BatchKeeper } from './methods/x402/batch/keeper.ts';
import { EvmLanes } from './methods/x402/evm-lanes.ts';
import { Gas } from './methods/x402/gas.ts';
import { uptoAvailable } from './methods/x402/rails.ts';
import { RemoteFacilitator } from './methods/x402/remote-facilitator.ts';
import { solanaCost } from './methods/x402/solana/cost.ts';
import { evmSchemes, type ReadSchemes, solanaSchemes } from './methods/x402/supported.ts';
import { mppNetworks, type Network, x402Networks } from './network/types.ts';
import { OfferBook } from './offers.ts';
import { Operations } from './operations.ts';
import { operatorMandates } from './operator-mandates.ts';
import { MONEY, Sender, withMoney } from './outgoing/sender.ts';
import { openWallets } from './outgoing/wallets.ts';
import { createOwnerTokens } from './owner-tokens.ts';
import { growing, Passes } from './passes.ts';
import { type ChallengePage, PaymentService } from './payment-service.ts';
import { openPaymentsKey } from './payments-key.ts';
import { bodyDigest, queryDigest } from './request.ts';
import { Answers } from './settlement/answers.ts';
import { LiveCalls } from './settlement/live-calls.ts';
import { SettlementMachine } from './settlement/machine.ts';
import { PaymentStore } from './settlement/payment-store.ts';
import { continueSettled, recoverAll } from './settlement/recovery.ts';
import { createSignIns } from './sign-in.ts';
import { SignInWithX } from './sign-in-with-x.ts';
import { lower } from './terms.ts';
import { withoutCredentials } from './toll/messages.ts';
import { Toll } from './toll/toll.ts';
import type { Forward, OpenSocket, PaymentEnd, Payments } from './types.ts';

export type * from './types.ts';

export interface PaymentsOptions {
  config: Config['payments'];
  network: Network;
  registry: Registry;
  /** `answers` are kept here. */
  dataFolder: string;
  /** Where `payments.key` is. Default: in the data folder. */
  keyFiles?: KeyFiles;
  /** Public origin; its host name is the realm of every challenge. */
  publicUrl: string;
  /** Address of the owner's console, where wallets sign in; default: below `publicUrl`. */
  consoleUrl?: string;
  clock: Clock;
  log: Logger;
  forward: Forward;
  /** Default: no WebSocket is for sale. */
  openSocket?: OpenSocket;
  /** Default: there are none. */
  others?: Others;
  /** Default: one of its own. */
  trustedClock?: TrustedClock;
  /** Whether the operator takes no payment of a wallet, lower case. Default: of every one. */
  isBlocked?: (wallet: string) => boolean;
  /** What browsers get of a tenant's own 402. Default: the problem document. */
  page?: ChallengePage;
  /** Told of every payment that is over. */
  onPayment?: (payment: PaymentEnd) => void;
  /** How often payouts go out, ms. Default: at once on the local network, else every ten minutes. */
  payoutEveryMs?: number;
  /** When channels are settled and closed. */
  schedule?: SweepSchedule;
}

/** How long a start waits for a facilitator elsewhere, ms. */
const FACILITATOR_WAIT_MS = 1_000;
const LOCAL_PAYOUT_MS = 250;
const PAYOUT_MS = 600_000;
const MIN_PAYOUT = micro(100_000);

export async function createPayments(options: PaymentsOptions): Promise<Payments> {
  const { config, network, registry, clock, log, forward } = options;
  const keyFiles = options.keyFiles ?? keyFilesIn(options.dataFolder);
  const key = await openPaymentsKey(keyFiles('payments.key'));
  const { challengeKey } = key;
  const realm = () => new URL(options.publicUrl).hostname;
  const trustedClock = options.trustedClock ?? new TrustedClock(registry.db, clock);
  const answers = new Answers(path.join(options.dataFolder, 'answers'), config.answers, log, options.others);
  const store = new PaymentStore(registry, clock, answers, (row) => options.onPayment?.(paymentEnd(row)));
  const channels = new ChannelStore(store.books);
  const { mpp: firstMpp, x402: firstX402, solana: solanaNetworks = [], hostAccounts } = network;
  const calls = new ChannelCalls();
  const mpp = mppNetworks(network).map((each) => ({
    network: each,
    verifier: new SessionVerifier({
      network: each,
      settler: hostAccounts.settler,
      channels,
      calls,
      leases: registry.leases,
      log,
    }),
  }));
  const verifiers = mpp.map(({ verifier }) => verifier);
  const collector = lower(hostAccounts.settler.address);
  // Made from the rails, and told by what they depend on.
  let book: OfferBook | undefined;
  const offersChanged = () => book?.changed();
  const { facilitator: settings } = config.x402;
  const remoteOf = (name: string, schemes: ReadSchemes) =>
    settings.url === ''
      ? undefined
      : new RemoteFacilitator({ settings, network: name, schemes, log, onChange: offersChanged });
  const evm = x402Networks(network).map((each) => ({
    network: each,
    lanes: new EvmLanes(each, registry.leases),
    remote: remoteOf(each.network, evmSchemes(each.getClient)),
  }));
  const solana = solanaNetworks.map((each) => ({ network: each, remote: remoteOf(each.network, solanaSchemes) }));
  const remotes = [...evm, ...solana].flatMap(({ remote }) => remote ?? []);
  const minPrice = usdOr(config.gas.minPrice, ZERO);
  const gas = new Gas({
    registry,
    clock,
    gasPrices: new Map(evm.map(({ network: { chain, getClient } }) => [chain.id, () => getClient().getGasPrice()])),
    fixed: new Map(solanaNetworks.map((each) => [each.network, solanaCost(config.solana.coinUsd)])),
    coinUsd: config.gas.coinUsd,
    minPrice,
    budget: usdOr(config.gas.perDay, ZERO),
    onChange: offersChanged,
  });
  const debts = new Debts(store.books, offersChanged);
  const { facilitator } = hostAccounts;
  const x402 = await Promise.all(
    evm.map(async (place) => {
      const kept = { ...place, receiver: facilitator, channels, calls, gas, clock, log };
      // What another settles this host has no coins for.
      const [upto, missing] = await Promise.all([
        uptoAvailable(place.network),
        place.remote ? undefined : missingContracts(place.network),
      ]);
      return { ...place, upto, keeper: missing?.length === 0 ? new BatchKeeper(kept) : undefined };
    }),
  );
  const rails = await openRails({ mpp, x402, solana, facilitator, collector, challengeKey, gas });
  const offers = new OfferBook(rails, (tenant) => debts.owes(tenant));
  book = offers;
  const challenger = new Challenger(challengeKey, network.testMoney, `${options.publicUrl}/docs`);
  const machine = new SettlementMachine({
    store,
    rails,
    log,
    isBlocked: options.isBlocked,
    channels: {
      receipt(row, channel, charged) {
        return JSON.stringify(methodOfRail(row.rail).channelReceipt?.(row, channel, charged) ?? {});
      },
    },
  });
  const operations = new Operations({ machine, offers, challenger, challengeKey, realm, log });
  const invariants = new Invariants(registry);
  const restored = new Restored({ store, network, log });
  const look = async (signal?: AbortSignal) => {
    await restored.look();
    return invariants.check(signal);
  };
  const guard = new Guard(registry, look, log);
  const sender = new Sender({
    store,
    wallets: openWallets(network, (each) => {
      const place = x402.find((one) => one.network === each);
      if (!place) throw new Error('a network without lanes');
      return place.lanes;
    }),
    log,
    maySend: () => guard.maySend,
    debts,
    restored,
    minPayout: usdOr(config.minPayout, network.name === 'local' ? ZERO : MIN_PAYOUT),
  });
  const chainId = firstX402?.chain.id ?? firstMpp?.chain.id ?? 1;
  const signIn = new SignInWithX({
    publicUrl: options.publicUrl,
    chainId,
    key: challengeKey,
    claim: (name, until) => machine.keys.claim(name, until),
  });
  const proof = new ProofVerifier({ network: firstMpp, challengeKey, challenger, keys: machine.keys, signIn });
  const now = growing(() => trustedClock.latest() - clock.offsetMs, (await trustedClock.highest()) - clock.offsetMs);
  const passes = <Claims extends object>(purpose: string) =>
    new Passes<Claims>({ purpose, key: key.derive(purpose), keys: machine.keys, now });
  const { feeBps } = config;
  const keepers = x402.flatMap(({ keeper }) => keeper ?? []);
  const sessions = new SessionPlaces(channels, calls, verifiers, keepers);
  const openSocket =
    options.openSocket ?? (async () => new Problem('not_implemented', 'No WebSocket is for sale here.').toResponse());
  const live = new LiveCalls(store.meters);
  const toll = new Toll({
    machine,
    live,
    offers,
    challenger,
    challengeKey,
    sessions,
    feeBps,
    realm,
    forward,
    openSocket,
    log,
  });
  const mandates = openMandates({ mpp, collector, challengeKey }, (purpose) => key.derive(purpose));
  const tokenKey = key.derive('binding-token');
  const service = new PaymentService({
    machine,
    live,
    offers,
    challenger,
    proof,
    challengeKey,
    tokenKey,
    mandates,
    mandateKey: key.derive('binding-mandate'),
    feeBps,
    realm,
    page: options.page,
    log,
  });
  const recovery = { machine, operations, live, log };
  const sweepers = sessions.keepers.map(
    (keeper) =>
      new ChannelSweeper({
        keeper,
        channels,
        clock,
        log,
        ...(options.schedule ? { schedule: options.schedule } : {}),
      }),
  );
  const payoutEveryMs = options.payoutEveryMs ?? (network.name === 'local' ? LOCAL_PAYOUT_MS : PAYOUT_MS);
  const background = new Background({
    ...recovery,
    sender,
    sweepers,
    guard,
    gas,
    remotes,
    payoutEveryMs,
    trustedClock,
    clock,
  });
  const reconciler = new Reconciler({
    store,
    channels,
    network,
    keepers: sessions.keepers,
    restored,
    opening: openingBalance(registry),
  });
  const reports = new Reports({
    store,
    machine,
    sender,
    restored,
    continue: async (row) => void (await continueSettled(machine, operations, row)),
  });

  return {
    async start() {
      const { leases, changes } = registry;
      const begin = async () => {
        await restored.load();
        await guard.begin();
      };
      await leases.keep(MONEY, { gained: begin, lost: () => undefined });
      await recoverAll(recovery);
      await channels.recountReserved();
      await reconciler
        .noteOpening()
        .catch((error) => log.warn({ err: error }, 'what the wallets hold cannot be read yet'));
      changes.on('settings:payments-stopped', () => guard.load());
      changes.on('debts', () => debts.load());
      await guard.load();
      await debts.load();
      // A host starts while the facilitator is away: x402 is offered once that has said what it settles.
      await Promise.all([
        gas.refresh(),
        ...remotes.map((remote) => Promise.race([remote.refresh(), delay(FACILITATOR_WAIT_MS)])),
      ]);
      background.start();
    },
    async stop() {
      await live.stop();
      await background.stop();
      await service.closeAll();
    },
    registerCompletion: (name, complete, abandon) => operations.register(name, complete, abandon),
    paidOperation: (request, context, operation) => operations.call(request, context, operation),
    async proveOwner(request, context, proved) {
      const { pathname, search } = new URL(request.url);
      const path = pathname + search;
      const asked = { ...proved, scope: proved.scope + queryDigest(search) };
      const digest = await bodyDigest(request, context);
      const resource = `${context.proto}://${context.host}${path}`;
      return await proof.prove(
        request.headers,
        { realm: realm(), resource, requestId: context.requestId, digest },
        asked,
        {
          caller: context.clientIp,
          scope: asked.scope,
          description: asked.description ?? 'Prove that you own this',
          method: request.method,
          path,
          digest,
        },
      );
    },
    passes,
    ownerTokens: createOwnerTokens(passes('owner-token')),
    signIns: createSignIns({
      key: key.derive('sign-in'),
      keys: machine.keys,
      consoleUrl: options.consoleUrl ?? `${options.publicUrl}${CONSOLE_PATH}`,
      chainId,
    }),
    toll: (request, context, deployment) => toll.handle(request, context, deployment),
    tollSocket: (request, context, deployment, caller) => toll.handshake(request, context, deployment, caller),
    bare402: (call, context, deployment) => toll.bare(call, context, deployment),
    bindings: service,
    mandates: mandates && firstMpp && operatorMandates(mandates, lower(firstMpp.recipient), realm),
    ledger: {
      revenue: (filter) => reports.revenue(filter),
      csv: (filter) => reports.csv(filter),
      lines: (filter) => reports.lines(filter),
      open: () => reports.open(),
      async resolve(id, how) {
        if (how.action === 'retry' && guard.stopped())
          throw new Problem('conflict', 'Payouts and refunds are stopped; look at turnpike payments, then resume.');
        const item = await reports.resolve(id, how);
        await debts.load();
        return item;
      },
      summary: () => reports.summary(),
      debt: (tenant) => reports.debt(tenant),
      gas: async () => ({ floor: remotes.length > 0 ? minPrice : gas.floor, tenants: await gas.use() }),
      facilitator() {
        const told = remotes.map((remote) => remote.status());
        return told.find(({ problem }) => problem !== undefined) ?? told[0];
      },
      wallets: () => hostWallets(network, remotes.length > 0),
      stopped: () => guard.stopped(),
      async resume() {
        await guard.resume();
        await sender.run();
      },
      async reconcile() {
        await withMoney(registry.leases, async () => {
          await Promise.all(sweepers.map((sweeper) => sweeper.run()));
          await guard.run();
        });
        await sender.run();
        return reconciler.run();
      },
    },
    offers: (amount, about) => offers.describe(amount, about),
    headers: { credentials: CREDENTIAL_HEADERS, exposed: EXPOSED_HEADERS },
    tools: { credentialsOf, toolAnswer },
    withoutCredentials,
    hostWallets: [hostAccounts.settler, hostAccounts.facilitator, hostAccounts.feePayer].map(({ address }) =>
      lower(address),
    ),
    status: () => ({
      network: network.name,
      testMoney: network.testMoney,
      recipient: firstMpp ? lower(firstMpp.recipient) : firstX402 ? lower(firstX402.recipient) : undefined,
    }),
  };
}

function usdOr(text: string, otherwise: Money): Money {
  return text === '' ? otherwise : parseUsd(text);
}

function paymentEnd(row: PaymentRow): PaymentEnd {
  const { rail, kind, state, fee } = row;
  const charged = row.charged ?? ZERO;
  const nothing = { rail, kind, microUsd: ZERO, earnedMicroUsd: ZERO };
  if (state === 'released') return { ...nothing, outcome: 'released' };
  if (state === 'answered' && charged === ZERO) return { ...nothing, outcome: 'free' };
  if (state === 'answered')
    return { rail, kind, outcome: 'charged', microUsd: charged, earnedMicroUsd: kind === 'operation' ? charged : fee };
  const microUsd = row.refunded > ZERO ? row.refunded : (row.charged ?? row.authorized);
  return { ...nothing, outcome: 'refunded', microUsd };
}

/** The balance of a collecting wallet when the books began, kept in the registry's settings. */
function openingBalance(registry: Registry) {
  return async (asset: string, balance: () => Promise<bigint>): Promise<bigint> => {
    const name = `payments-opening:${asset}`;
    const kept = await readSetting(registry.db, name);
    if (kept !== undefined) return BigInt(kept);
    const value = await balance();
    await addSetting(registry.db, name, value.toString());
    return value;
  };
}
