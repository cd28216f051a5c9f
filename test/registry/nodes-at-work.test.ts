/** Two nodes of one host at work: payouts, payments and crons are made once, whoever is killed, stopped or cut off. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import pino from 'pino';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { EvmLanes } from '../../host/payments/methods/x402/evm-lanes.ts';
import { MONEY, Sender } from '../../host/payments/outgoing/sender.ts';
import { openWallets } from '../../host/payments/outgoing/wallets.ts';
import type { Admitted, SettlementMachine } from '../../host/payments/settlement/machine.ts';
import { recoverLeft } from '../../host/payments/settlement/recovery.ts';
import type { Share } from '../../host/payments/terms.ts';
import { CronRuns } from '../../host/registry/cron-runs.ts';
import { Deployments } from '../../host/registry/deployments.ts';
import { Debts } from '../../host/registry/payments/debts.ts';
import { Invariants } from '../../host/registry/payments/invariants.ts';
import { openPostgresRegistry, type PostgresRegistry } from '../../host/registry/postgres/index.ts';
import { TrustedClock } from '../../host/registry/trusted-clock.ts';
import { createScheduler } from '../../host/scheduler/index.ts';
import { TenantCrons } from '../../host/scheduler/tenant-crons.ts';
import { AdjustableClock, ManualClock } from '../../host/shared/clock.ts';
import { ZERO } from '../../host/shared/money.ts';
import { TIMED_WORK, TimedWork } from '../../host/supervisor/timed-work.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { expectTime } from '../times.ts';
import { newDeployment } from './support/new-deployment.ts';
import { paymentsOn } from './support/paying.ts';
import { PostgresServer } from './support/postgres-server.ts';
import { admit, machineOn, TERMS } from './support/showing.ts';
import { account, networkAt, StrictChain } from './support/strict-chain.ts';

/** Transactions of one wallet by two nodes. */
const NONCES = Number(process.env.NONCES ?? 100);
/** Kills and stops of nodes that pay out. */
const KILLS = Number(process.env.NODE_KILLS ?? 4);
/** How often eight calls of a wallet come at once. */
const SHOWN = Number(process.env.SHOWN ?? 6);
const LEASE_MS = 1_500;
/** How often all connections are cut before each of those. */
const CUTS = 3;
/** A node that is stopped within a write holds up all other writes for so long, ms. */
const STOPPED_WRITE_MS = 5_500;
/** A chain tells so late what it took, ms. */
const LATE_MS = 30;
const HOUR_MS = 3_600_000;
const CHILD = fileURLToPath(new URL('support/node-child.ts', import.meta.url));
const log = pino({ level: 'silent' });
const SELLER = `0x${'aa'.repeat(20)}`;

interface Node {
  process: ChildProcess;
  id: string;
  said: string[];
}

describe.skipIf(!postgresPrograms())('two nodes', () => {
  let server: PostgresServer;
  let chain: StrictChain;
  let url: string;
  let databases = 0;
  const opened: PostgresRegistry[] = [];
  const children: ChildProcess[] = [];

  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server.stop());
  beforeEach(async () => {
    chain = await StrictChain.start(LATE_MS);
    url = server.create(`host${++databases}`);
  });
  afterEach(async () => {
    for (const child of children.splice(0)) await end(child);
    for (const node of opened.splice(0)) await node.end();
    await chain.stop();
  });

  async function open(leaseMs = LEASE_MS): Promise<PostgresRegistry> {
    const node = await openPostgresRegistry(url, { leaseMs });
    opened.push(node);
    return node;
  }

  /** @param aheadMs of its system clock */
  async function spawnNode(name: string, aheadMs = 0): Promise<Node> {
    const clock = `data:text/javascript,const now = Date.now; Date.now = () => now() + ${aheadMs};`;
    const args = ['--import', clock, CHILD, `${url}&application_name=child`, chain.url, name, String(LEASE_MS), SELLER];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    children.push(child);
    const said: string[] = [];
    createInterface({ input: child.stdout as NodeJS.ReadableStream }).on('line', (line) => said.push(line));
    const id = () => said.find((line) => line.startsWith('node '))?.slice(5) ?? '';
    await expect.poll(id).not.toBe('');
    return { process: child, id: id(), said };
  }

  async function end(child: ChildProcess): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill('SIGKILL');
    await exit;
  }

  /** Both nodes, with a chain that takes everything. @param settles what a settlement waits for */
  function both(
    a: PostgresRegistry,
    b: PostgresRegistry,
    shares: () => Promise<readonly Share[]>,
    settles?: () => Promise<void>,
  ): [SettlementMachine, SettlementMachine] {
    const settle = async () => {
      await settles?.();
      return { status: 'settled' as const, reference: '0x1' };
    };
    return [machineOn(paymentsOn(a), settle, shares), machineOn(paymentsOn(b), settle, shares)];
  }

  /** Cuts the connections of the nodes that are processes of their own. */
  async function cutAll(watcher: PostgresRegistry): Promise<void> {
    const { rows } = await watcher.client.execute(
      `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'child'`,
    );
    expect(rows.length).toBeGreaterThan(0);
  }

  async function holder(node: PostgresRegistry, name: string): Promise<string> {
    const { rows } = await node.client.execute('SELECT holder FROM leases WHERE name = ?', [name]);
    return String(rows[0]?.holder);
  }

  test('sign with each nonce of a wallet once, though the chain tells late of what it took', {
    timeout: 60_000 + NONCES * 50,
  }, async () => {
    const lanes = [await open(), await open()].map(({ leases }) => {
      const { x402 } = networkAt(chain.url);
      if (!x402) throw new Error('no network');
      return new EvmLanes(x402, leases);
    });
    const data = await import('viem').then(({ encodeFunctionData, erc20Abi }) =>
      encodeFunctionData({ abi: erc20Abi, functionName: 'transfer', args: [SELLER as `0x${string}`, 1n] }),
    );
    const call = { to: account.address, data, gas: 100_000n };
    const begun = performance.now();
    await Promise.all(
      lanes.flatMap((lane) =>
        [0, 1].map(async () => {
          for (let at = 0; at < NONCES / 4; at++) await lane.send(account, call);
        }),
      ),
    );
    console.info(`${NONCES} nonces by two nodes, ${((performance.now() - begun) / NONCES).toFixed(1)} ms each`);
    expect(chain.refused).toEqual([]);
    expect(chain.taken).toHaveLength(4 * Math.ceil(NONCES / 4));
  });

  test('pay out once what is owed, while those who do are killed, or stopped for longer than their lease', {
    timeout: 60_000 + KILLS * 20_000,
  }, async () => {
    const watcher = await open();
    // One of them is an hour ahead: leases are by the database's clock.
    let nodes = [await spawnNode('first'), await spawnNode('second', HOUR_MS)];
    const takenOver: number[] = [];
    for (let turn = 0; turn < KILLS; turn++) {
      // Whatever is being written: nobody hears whether it was.
      for (let cuts = 0; cuts < CUTS; cuts++) {
        const writes = chain.taken.length;
        await expect.poll(() => chain.taken.length, { interval: 3 }).toBeGreaterThan(writes);
        await cutAll(watcher);
      }
      const before = chain.taken.length;
      await expect.poll(() => chain.taken.length).toBeGreaterThan(before + 10);
      const id = await holder(watcher, MONEY);
      const node = nodes.find((one) => one.id === id);
      const other = nodes.find((one) => one.id !== id);
      if (!node || !other) throw new Error('nobody pays out');
      node.process.kill(turn % 2 ? 'SIGSTOP' : 'SIGKILL');
      const since = performance.now();
      await expect.poll(() => holder(watcher, MONEY), { interval: 10 }).toBe(other.id);
      takenOver.push(Math.round(performance.now() - since));
      const taken = chain.taken.length;
      await expect.poll(() => chain.taken.length).toBeGreaterThan(taken + 3);
      if (turn % 2) {
        // It goes on where it stood, beside the one that took over.
        const losses = () => node.said.filter((line) => line === 'lost').length;
        const known = losses();
        node.process.kill('SIGCONT');
        await expect.poll(losses).toBe(known + 1);
      } else nodes = [other, await spawnNode(`turn ${turn}`, turn % 4 ? HOUR_MS : 0)];
    }
    console.info(
      `taken over after ${takenOver.join(', ')} ms of a lease of ${LEASE_MS}; refused: ${chain.refused.length}`,
    );
    for (const ms of takenOver) expectTime('a take-over', ms, LEASE_MS + STOPPED_WRITE_MS);
    for (const { process: child } of nodes) await end(child);

    const store = paymentsOn(watcher);
    const network = networkAt(chain.url);
    const sender = new Sender({
      store,
      wallets: openWallets(network, (x402) => new EvmLanes(x402, watcher.leases)),
      log,
      maySend: () => true,
      debts: new Debts(store.books, () => {}),
      minPayout: ZERO,
    });
    await expect
      .poll(
        async () => {
          await sender.run();
          const { rows } = await watcher.client.execute(
            "SELECT count(*) AS count FROM payment_outgoing WHERE state IN ('owed', 'sending')",
          );
          return rows[0]?.count;
        },
        { timeout: 60_000, interval: 50 },
      )
      .toBe(0);
    const { rows } = await watcher.client.execute(
      "SELECT sum(amount) AS total, count(*) AS count FROM payment_outgoing WHERE kind = 'payout' AND state = 'sent'",
    );
    expect(chain.received.get(SELLER)).toBe(BigInt(Number(rows[0]?.total)));
    const answered = await watcher.client.execute(
      "SELECT sum(charged) AS total FROM payments WHERE state = 'answered'",
    );
    expect(answered.rows[0]?.total).toBe(rows[0]?.total);
    expect(await new Invariants(watcher).check()).toEqual([]);
    console.info(`${rows[0]?.count} payouts in ${chain.taken.length} transactions`);
  });

  test('answer of what the other works on that it is at work, until that one has ended, and then take it over', async () => {
    // So long that no renewal comes between.
    const [a, b] = [await open(60_000), await open(60_000)];
    let charges = 0;
    const settle = async () => ({ status: 'settled' as const, reference: `0x${++charges}` });
    const [at, there] = [machineOn(paymentsOn(a), settle), machineOn(paymentsOn(b), settle)];
    const operations = undefined as never;
    const recover = async () => {
      await there.store.takeOver();
      await recoverLeft({ machine: there, operations, live: { isOpen: () => false } as never, log });
    };
    const begun = await admit(at, 'credential', 'key');
    if (begun.kind !== 'work') throw new Error('it was not begun');
    await recover();
    const again = [admit(there, 'credential'), admit(there, 'another credential', 'key')];
    await Promise.all(again.map((call) => expect(call).rejects.toMatchObject({ code: 'in_progress' })));
    await a.client.execute('UPDATE leases SET valid_until = 0 WHERE holder = ?', [String(a.node)]);
    await there.store.takeOver();
    await expect(at.store.settling(begun.row, { charged: TERMS.amount })).rejects.toThrow();
    await recover();
    expect((await there.store.byId(begun.row.id))?.state).toBe('released');
    // The first goes on after all.
    await expect(at.take(begun.row, TERMS.amount)).rejects.toThrow();
    await expect(at.release(begun.row, 'given up')).rejects.toThrow();
    const anew = await admit(there, 'credential');
    if (anew.kind !== 'work') throw new Error('it was not begun again');
    expect((await there.take(anew.row, TERMS.amount)).state).toBe('settled');
    expect(charges).toBe(1);
    expect(await new Invariants(b).check()).toEqual([]);
  });

  test('a settlement that one node asks the chain for is not asked for by the other, which says that it is pending', async () => {
    const [a, b] = [await open(60_000), await open(60_000)];
    const answer = Promise.withResolvers<{ status: 'settled'; reference: string }>();
    const at = machineOn(paymentsOn(a), () => answer.promise);
    const there = machineOn(paymentsOn(b), () => Promise.reject(new Error('asked twice')));
    const begun = await admit(at, 'slow');
    if (begun.kind !== 'work') throw new Error('it was not begun');
    const taken = at.take(begun.row, TERMS.amount);
    await expect.poll(async () => (await there.store.byId(begun.row.id))?.state).toBe('settling');
    await there.store.takeOver();
    await recoverLeft({ machine: there, operations: undefined as never, live: { isOpen: () => false } as never, log });
    await expect(admit(there, 'slow')).rejects.toMatchObject({ code: 'payment_pending' });
    answer.resolve({ status: 'settled', reference: '0x1' });
    expect((await taken).state).toBe('settled');
  });

  test.each(['The wallet holds', 'The access key may spend'])(
    '%s: work for as many calls at once as that covers, and for more when those are over or their node is',
    async (holds) => {
      const [a, b] = [await open(), await open()];
      let money = 1n;
      const left = async () => money * TERMS.amount;
      const shares = async () => [
        { of: 'enough', amount: 1n, left: async () => 1_000n, holds: 'There are' },
        { of: holds, amount: TERMS.amount, left, holds },
      ];
      const [at, there] = both(a, b, shares);
      let shown = 0;
      const calls = async (machine: (at: number) => SettlementMachine) => {
        const told = await Promise.allSettled(
          Array.from({ length: 8 }, (_, at) => admit(machine(at), `call ${++shown}`)),
        );
        for (const one of told)
          if (one.status === 'rejected')
            expect(one.reason).toMatchObject({
              code: 'payment_invalid',
              message: expect.stringContaining('are promised'),
            });
        return told.flatMap((one) => (one.status === 'fulfilled' && one.value.kind === 'work' ? one.value : []));
      };
      const either = (index: number) => (index % 2 ? at : there);
      for (let round = 0; round < SHOWN; round++) {
        money = BigInt(1 + (round % 3));
        const begun = await calls(either);
        expect([round, begun.length]).toEqual([round, Number(money)]);
        for (const { row, done } of begun) {
          // What is taken leaves the wallet; what is given back does not.
          const isTaken = round % 2 === 0;
          if (isTaken) money -= 1n;
          await (isTaken ? at.take(row, TERMS.amount) : at.release(row, 'over'));
          done();
        }
      }
      money = 1n;
      expect(await calls(() => at)).toHaveLength(1);
      expect(await calls(() => there)).toHaveLength(0);
      await opened.splice(opened.indexOf(a), 1)[0]?.end();
      await there.store.takeOver();
      await recoverLeft({
        machine: there,
        operations: undefined as never,
        live: { isOpen: () => false } as never,
        log,
      });
      expect(await calls(() => there)).toHaveLength(1);
    },
  );

  test('of transactions with one nonce work for one, and for the next nonce once that is used', async () => {
    const [a, b] = [await open(), await open()];
    let next = 0;
    let signed = 0;
    const shares = async () => {
      const nonce = signed;
      return [{ of: 'nonce', amount: 1n, left: async () => (next === nonce ? 1n : 0n) }];
    };
    const machines = both(a, b, shares);
    let shown = 0;
    for (; next < SHOWN; next++, signed++) {
      const told = await Promise.allSettled(
        Array.from({ length: 8 }, (_, at) => admit(machines[at % 2 ? 0 : 1], `transaction ${++shown}`)),
      );
      const refused = told.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []));
      expect(refused).toEqual(Array.from({ length: 7 }, () => expect.objectContaining({ code: 'payment_invalid' })));
      expect(refused[0]?.message).toContain('same nonce');
      const begun = told.findIndex(({ status }) => status === 'fulfilled');
      const admitted = (told[begun] as PromiseFulfilledResult<Admitted>).value;
      if (admitted.kind !== 'work') throw new Error('it was not begun');
      await machines[begun % 2 ? 0 : 1].take(admitted.row, TERMS.amount);
      admitted.done();
    }
  });

  test('what the other took while a payment was verified counts, and what it takes just now is waited for', async () => {
    const [a, b] = [await open(60_000), await open(60_000)];
    let money = 1n;
    let asked = 0;
    let verifying = 0;
    let verified: Promise<void> | undefined;
    const left = async () => {
      asked++;
      return money * TERMS.amount;
    };
    const shares = async () => {
      const share = { of: 'wallet', amount: TERMS.amount, left, holds: 'The wallet holds' };
      verifying++;
      await verified;
      return [share];
    };
    const moved = Promise.withResolvers<void>();
    let settling: Promise<void> | undefined;
    const [at, there] = both(a, b, shares, async () => {
      money -= 1n;
      await settling;
    });
    const take = async (id: string) => {
      const begun = await admit(at, id);
      if (begun.kind !== 'work') throw new Error('it was not begun');
      const taken = at.take(begun.row, TERMS.amount);
      return { taken, done: begun.done };
    };
    const gate = Promise.withResolvers<void>();
    verified = gate.promise;
    const late = admit(there, 'late');
    await expect.poll(() => verifying).toBe(1);
    verified = undefined;
    const early = await take('early');
    await early.taken;
    early.done();
    gate.resolve();
    await expect(late).rejects.toMatchObject({ code: 'payment_invalid' });
    // What ended before a verification began is in what that found.
    money = 2n;
    const againAsked = async () => {
      asked = 0;
      const begun = await admit(there, 'after');
      if (begun.kind !== 'work') throw new Error('it was not begun');
      await there.release(begun.row, 'over');
      begun.done();
      return asked;
    };
    await expect.poll(againAsked).toBe(0);

    settling = moved.promise;
    const { taken } = await take('slow');
    await expect.poll(() => money).toBe(1n);
    const beside = admit(there, 'beside');
    await expect.poll(() => asked).toBeGreaterThan(1);
    moved.resolve();
    expect((await beside).kind).toBe('work');
    expect((await taken).state).toBe('settled');
    expect(await new Invariants(b).check()).toEqual([]);
  });

  test('make each run of a cron once, and again where the one that made it ended before it did', async () => {
    const clock = new ManualClock(Date.parse('2026-11-21T10:00:30Z'));
    const runs: string[] = [];
    let hold: Promise<void> | undefined;
    const nodes = await Promise.all(
      ['a', 'b'].map(async (name) => {
        const registry = await open(60_000);
        const scheduler = createScheduler({ clock, log });
        const history = new CronRuns(registry.db);
        const crons = new TenantCrons({
          scheduler,
          history,
          clock,
          log,
          async run(_slug, _cron, time) {
            runs.push(`${name} ${new Date(time).toISOString().slice(11, 16)}`);
            if (name === 'a') await hold;
            return { outcome: 'ok' };
          },
        });
        const deployments = new Deployments(registry.db, registry.changes);
        const lifecycle = { tick: async () => undefined } as never;
        const timedWork = new TimedWork({ scheduler, lifecycle, crons, deployments, registry });
        return { registry, scheduler, history, deployments, timedWork };
      }),
    );
    const [a, b] = nodes as [(typeof nodes)[0], (typeof nodes)[0]];
    const crons = ['* * * * *'];
    const { tenant } = await b.deployments.create(newDeployment({ slug: 'often', settings: { crons } }), clock.now());
    await a.timedWork.start();
    await b.timedWork.start();
    const ended = async () => (await b.history.latest(tenant)).filter(({ outcome }) => outcome === 'ok').length;
    for (let minute = 1; minute <= 5; minute++) {
      clock.advance(60_000);
      await expect.poll(ended).toBe(minute);
    }
    expect(runs).toEqual(['a 10:01', 'a 10:02', 'a 10:03', 'a 10:04', 'a 10:05']);
    // Another deployment, made at the node that does no timed work.
    await b.deployments.create(newDeployment({ slug: 'too', owner: '0xb', settings: { crons } }), clock.now());
    const planned = async () => (await b.registry.client.execute('SELECT tenant FROM cron_triggers')).rows.length;
    await expect.poll(planned).toBe(2);
    clock.advance(60_000);
    await expect.poll(() => runs.length).toBe(7);

    // The node stops within a run, and its lease ends.
    const goOn = Promise.withResolvers<void>();
    hold = goOn.promise;
    clock.advance(60_000);
    await expect.poll(() => runs.length).toBe(9);
    await a.registry.client.execute('UPDATE leases SET valid_until = 0 WHERE name = ?', [TIMED_WORK]);
    await b.timedWork.plan();
    await expect.poll(() => runs.slice(9).toSorted()).toEqual(['b 10:07', 'b 10:07']);
    clock.advance(60_000);
    await expect.poll(() => runs.slice(11).toSorted()).toEqual(['b 10:08', 'b 10:08']);
    // It goes on: what it says of its run, and what it would run next, is no longer its own.
    goOn.resolve();
    await a.timedWork.plan();
    clock.advance(60_000);
    await expect.poll(() => runs.slice(13).toSorted()).toEqual(['b 10:09', 'b 10:09']);
    for (const { scheduler } of nodes) await scheduler.stop();
    const outcomes = (await b.history.latest(tenant)).map(
      ({ scheduledAt, outcome }) => `${new Date(scheduledAt).toISOString().slice(11, 16)} ${outcome}`,
    );
    expect(outcomes.slice(0, 4)).toEqual(['10:09 ok', '10:08 ok', '10:07 ok', '10:07 interrupted']);
    expect(runs).toHaveLength(15);
  });

  test('trust no earlier time than either has trusted, with clocks an hour apart', async () => {
    const [a, b] = [await open(), await open()];
    const [behind, ahead] = [new AdjustableClock(), new AdjustableClock()];
    const late = new TrustedClock(a.db, behind);
    const early = new TrustedClock(b.db, ahead);
    await late.now();
    await early.now();
    ahead.setOffset(HOUR_MS);
    const highest = await early.highest();
    expect(highest).toBeGreaterThanOrEqual(Date.now() + HOUR_MS - 1_000);
    // The one behind saves its own time after that.
    behind.setOffset(HOUR_MS / 4);
    await late.now();
    expect(await late.highest()).toBeGreaterThanOrEqual(highest);
    expect(await new TrustedClock(a.db, new AdjustableClock()).highest()).toBeGreaterThanOrEqual(highest);
    expect(late.latest()).toBeLessThan(highest);
  });
});
