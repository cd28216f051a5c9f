/** What only a registry on PostgreSQL can go through: several processes at once, and a server that dies. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { SettlementMachine } from '../../host/payments/settlement/machine.ts';
import type { PaymentStore } from '../../host/payments/settlement/payment-store.ts';
import { brokenConstraint } from '../../host/registry/constraints.ts';
import { Deployments } from '../../host/registry/deployments.ts';
import { Domains } from '../../host/registry/domains.ts';
import { openRegistry } from '../../host/registry/index.ts';
import { ChannelStore } from '../../host/registry/payments/channels.ts';
import { Invariants } from '../../host/registry/payments/invariants.ts';
import { PaymentKeys } from '../../host/registry/payments/keys.ts';
import { openPostgresRegistry, type PostgresRegistry } from '../../host/registry/postgres/index.ts';
import { readSetting } from '../../host/registry/settings.ts';
import { micro } from '../../host/shared/money.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { newDeployment } from './support/new-deployment.ts';
import { newPayment, paymentsOn } from './support/paying.ts';
import { PostgresServer } from './support/postgres-server.ts';
import { admit, machineOn, TERMS } from './support/showing.ts';

/** Turns of each race. */
const RACES = Number(process.env.RACES ?? 30);
const CHILD = fileURLToPath(new URL('support/paying-child.ts', import.meta.url));

describe.skipIf(!postgresPrograms())('a registry on PostgreSQL', () => {
  let server: PostgresServer;
  let url: string;
  /** Two nodes of one host. */
  let nodes: [PostgresRegistry, PostgresRegistry];
  let stores: [PaymentStore, PaymentStore];

  beforeAll(async () => {
    server = await PostgresServer.start();
    url = server.create('host');
    nodes = await Promise.all([openPostgresRegistry(url), openPostgresRegistry(url)]);
    stores = [paymentsOn(nodes[0]), paymentsOn(nodes[1])];
  });
  afterAll(async () => {
    for (const node of nodes) await node.end();
    await server.stop();
  });

  /** Does it on both nodes at the same time. @returns what came of it where it succeeded */
  async function race<T>(work: (node: 0 | 1) => Promise<T>): Promise<T[]> {
    const ends = await Promise.allSettled([work(0), work(1)]);
    return ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
  }

  const books = async () => await new Invariants(nodes[0]).check();

  test('has the tables of libSQL, column by column', async () => {
    const folder = await mkdtemp(path.join(tmpdir(), 'turnpike-registry-'));
    onTestFinished(() => rm(folder, { recursive: true }));
    const file = await openRegistry(path.join(folder, 'registry.db'));
    const there = await file.client.execute(
      `SELECT m.name AS "table", c.name, c.type, max(c."notnull", c.pk) > 0 AS filled FROM sqlite_schema m, pragma_table_info(m.name) c
        WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' ORDER BY m.name, c.cid`,
    );
    file.close();
    const types: Record<string, string> = { bigint: 'INTEGER', text: 'TEXT', bytea: 'BLOB' };
    const here = await nodes[0].client.execute(
      `SELECT table_name AS "table", column_name AS name, data_type AS type, is_nullable = 'NO' AS filled
        FROM information_schema.columns WHERE table_schema = 'public' AND table_name NOT IN ('nodes', 'certificates', 'payment_shares') ORDER BY table_name, ordinal_position`,
    );
    const plain = (rows: typeof here.rows) =>
      rows.map(({ table, name, type, filled }) => [table, name, type, filled].join(' '));
    expect(plain(here.rows.map((row) => ({ ...row, type: types[String(row.type)] ?? row.type }) as never))).toEqual(
      plain(there.rows),
    );
  });

  test('takes and gives the values that libSQL does', async () => {
    const { client } = nodes[0];
    await client.executeMultiple('CREATE TABLE t (id TEXT PRIMARY KEY, n INTEGER CHECK (n >= 0), bytes BLOB) STRICT');
    const insert = (id: string, n: unknown, bytes: unknown = null) => ({
      sql: 'INSERT INTO t (id, n, bytes) VALUES (?, ?, ?)',
      args: [id, n as number, bytes as null],
    });
    expect(await client.execute(insert('a', 2 ** 53 - 1, new Uint8Array([1, 2])))).toMatchObject({
      rowsAffected: 1,
      rows: [],
    });
    const { rows, columns } = await client.execute("SELECT *, n > 1 AS big, '?' AS mark FROM t");
    expect(columns).toEqual(['id', 'n', 'bytes', 'big', 'mark']);
    expect({ ...rows[0] }).toEqual({
      id: 'a',
      n: 2 ** 53 - 1,
      bytes: new Uint8Array([1, 2]).buffer,
      big: 1,
      mark: '?',
    });
    for (const refused of [insert('b', undefined), insert('b', Number.NaN)])
      await expect(client.execute(refused)).rejects.toThrow();
    await client.execute(insert('big', 2n ** 60n));
    await expect(client.execute('SELECT n FROM t')).rejects.toThrow(RangeError);
    await client.execute(insert('nul\0', 1));
    expect((await client.execute({ sql: 'SELECT n FROM t WHERE id = ?', args: ['nul\0'] })).rows).toHaveLength(1);
    const refusals = [insert('a', 1), insert('c', -1), insert(null as never, 1)];
    const broken = await Promise.all(
      refusals.map((one) => client.execute(one).then(() => undefined, brokenConstraint)),
    );
    expect(broken).toEqual(['UNIQUE', 'CHECK', 'NOT NULL']);
    await expect(client.batch([insert('d', 1), insert('e', -1), insert('f', 1)])).rejects.toMatchObject({
      code: 'SQLITE_CONSTRAINT',
      message: expect.stringContaining('CHECK constraint failed'),
    });
    expect((await client.execute("SELECT id FROM t WHERE id IN ('d', 'e', 'f')")).rows).toEqual([]);
  });

  test('opened by many at once, is migrated once', async () => {
    const empty = server.create('empty');
    const opened = await Promise.all([1, 2, 3].map(() => openPostgresRegistry(empty)));
    for (const one of opened) await one.end();
    await expect(opened[0]?.client.execute('SELECT 1')).rejects.toMatchObject({ code: 'CLIENT_CLOSED' });
  });

  test('one credential at both nodes is one payment, and each of its steps is taken once', async () => {
    for (let at = 0; at < RACES; at++) {
      const begun = await race((node) => stores[node].begin(newPayment(`credential ${at}`), 'working', undefined));
      expect(begun).toHaveLength(1);
      const [row] = begun as [(typeof begun)[0]];
      // One takes the money, the other gives it back.
      const ends = await race((node) =>
        node === at % 2
          ? stores[node].settling(row, { charged: row.authorized })
          : stores[node].released(row, 'given up'),
      );
      expect(ends).toHaveLength(1);
      const [end] = ends as [(typeof ends)[0]];
      if (end.state === 'settling') {
        const settled = await race((node) => stores[node].settled(end, `0x${at}`, end.authorized, '{}'));
        expect(settled).toHaveLength(1);
        expect(await race((node) => stores[node].answered(settled[0] ?? row, undefined, false))).toHaveLength(1);
      } else {
        expect(await race((node) => stores[node].begin(newPayment(`credential ${at}`), 'working', end))).toHaveLength(
          1,
        );
      }
    }
    expect(await books()).toEqual([]);
  });

  test('one Idempotency-Key at both nodes begins one payment, whatever the credentials', async () => {
    for (let at = 0; at < RACES; at++) {
      const begin = (node: 0 | 1) =>
        stores[node].begin(newPayment(`keyed ${at} ${node}`), 'working', undefined, undefined, `key ${at}`);
      const [row, ...others] = await race(begin);
      expect(others).toEqual([]);
      expect(await new PaymentKeys(stores[0].books).byKey(`key ${at}`)).toMatchObject({ id: row?.id });
      // What was given up leaves the key to the next.
      if (row) await stores[0].released(row, 'given up');
      await stores[1].begin(newPayment(`keyed ${at} again`), 'working', undefined, undefined, `key ${at}`);
    }
  });

  test('who shows one credential, or one Idempotency-Key, at both nodes is charged once', async () => {
    let charges = 0;
    const settle = async () => ({ status: 'settled' as const, reference: `0x${++charges}` });
    const machines = stores.map((store) => machineOn(store, settle));
    const show = async (node: 0 | 1, id: string, idempotencyKey?: string): Promise<string> => {
      const machine = machines[node] as SettlementMachine;
      const admitted = await admit(machine, id, idempotencyKey);
      if (admitted.kind !== 'work') return admitted.kind;
      await machine.take(admitted.row, TERMS.amount);
      admitted.done();
      return 'work';
    };
    for (let at = 0; at < RACES; at++) {
      await race((node) => show(node, `shown ${at}`));
      expect(charges).toBe(at * 2 + 1);
      await race((node) => show(node, `shown ${at} at ${node}`, `key ${at}`));
      expect(charges).toBe(at * 2 + 2);
    }
    expect(await books()).toEqual([]);
  });

  test('vouchers at both nodes cover no more calls than they are worth, and only grow', async () => {
    const channels = [new ChannelStore(stores[0].books), new ChannelStore(stores[1].books)] as const;
    const parties = { asset: 'usd', payer: 'payer', payee: 'host', signer: 'payer', descriptor: '{}', escrow: 'e' };
    await channels[0].opening(
      { id: 'ch', ...parties, chainId: 1, openTransaction: null },
      { cumulative: micro(0), signature: '0' },
    );
    await channels[0].opened('ch', micro(1_000_000), null);
    const call = (id: string) =>
      newPayment(id, { custody: 'channel', channel: 'ch', authorized: micro(10), rail: 'tempo/session' });
    for (let at = 1; at <= RACES; at++) {
      // Both show the same voucher, which is worth one call more; and one shows an older one.
      const voucher = { cumulative: micro(at * 10), signature: `${at}` };
      const late = { cumulative: micro(at * 10 - 5), signature: 'late' };
      const taken = await race((node) =>
        stores[node].begin(
          call(`${at} at ${node}`),
          'working',
          undefined,
          node === 1 ? voucher : at % 2 ? voucher : late,
        ),
      );
      expect(taken.length).toBeLessThanOrEqual(1);
      if (taken.length === 0) continue;
      const [row] = taken as [(typeof taken)[0]];
      expect(
        await race((node) => stores[node].channel.captured(row, row.authorized, () => '{}', undefined, 'answered')),
      ).toHaveLength(1);
    }
    const channel = await channels[1].byId('ch');
    expect(channel).toMatchObject({ voucher: micro(RACES * 10), voucherSignature: `${RACES}`, reserved: 0n });
    expect(channel?.captured).toBe(BigInt((channel?.units ?? 0) * 10));
    expect(await books()).toEqual([]);
  });

  test('calls of one channel that both nodes end at once have each spent another sum', async () => {
    const channels = new ChannelStore(stores[0].books);
    const parties = { asset: 'usd', payer: 'payer', payee: 'host', signer: 'payer', descriptor: '{}', escrow: 'e' };
    const signed = { cumulative: micro(RACES * 40), signature: '1' };
    await channels.opening({ id: 'spent', ...parties, chainId: 1, openTransaction: null }, signed);
    await channels.opened('spent', signed.cumulative, null);
    const call = { custody: 'channel', channel: 'spent', authorized: micro(10), rail: 'tempo/session' } as const;
    const said: string[] = [];
    for (let at = 0; at < RACES; at++) {
      const ended = await race((node) =>
        Promise.all(
          [0, 1].map(async (one) => {
            const row = await stores[node].begin(newPayment(`spent ${at} ${node} ${one}`, call), 'working', undefined);
            const receiptOf = ({ captured, units }: { captured: bigint; units: number }) => `${captured} ${units}`;
            return await stores[node].channel.captured(row, row.authorized, receiptOf, undefined, 'answered');
          }),
        ),
      );
      said.push(...ended.flat().map(({ receipt }) => receipt ?? ''));
    }
    const sums = Array.from({ length: RACES * 4 }, (_, at) => `${(at + 1) * 10} ${at + 1}`);
    expect(said.toSorted()).toEqual(sums.toSorted());
    expect(await books()).toEqual([]);
  });

  test('a channel that one node closes is not taken for one whose payer took the deposit back', async () => {
    const channels = [new ChannelStore(stores[0].books), new ChannelStore(stores[1].books)] as const;
    const parties = { asset: 'usd', payer: 'payer', payee: 'host', signer: 'payer', descriptor: '{}', escrow: 'e' };
    const signed = { cumulative: micro(10), signature: '1' };
    for (const isSeenFirst of [true, false]) {
      const id = `gone ${isSeenFirst}`;
      await channels[0].opening({ id, ...parties, chainId: 1, openTransaction: null }, signed);
      await channels[0].opened(id, micro(10), null);
      const call = { custody: 'channel', channel: id, authorized: micro(10), rail: 'tempo/session' } as const;
      const row = await stores[0].begin(newPayment(id, call), 'working', undefined);
      await stores[0].channel.captured(row, micro(10), () => '{}', undefined, 'answered');
      const open = await channels[1].byId(id);
      await channels[0].closing(id);
      const closing = await channels[0].byId(id);
      if (!open || !closing) throw new Error('no channel');
      // The other looked at it while it was open, and finds no deposit.
      if (isSeenFirst) await channels[1].withdrawn(open);
      await channels[0].settled(closing, micro(10), '0xc', true);
      if (!isSeenFirst) await channels[1].withdrawn(open);
      expect(await channels[1].byId(id)).toMatchObject({ state: 'closed', error: null, committed: 10n });
    }
    expect(await books()).toEqual([]);
  });

  test('what the chain settled of a channel is booked once, though both nodes saw it; a closed one is not opened again', async () => {
    const channels = [new ChannelStore(stores[0].books), new ChannelStore(stores[1].books)] as const;
    const parties = { asset: 'usd', payer: 'payer', payee: 'host', signer: 'payer', descriptor: '{}', escrow: 'e' };
    // More than 32 bits hold.
    const much = micro(4_000_000_000);
    const signed = { cumulative: much, signature: '1' };
    for (let at = 0; at < RACES / 3; at++) {
      const id = `large ${at}`;
      await channels[0].opening({ id, ...parties, chainId: 1, openTransaction: null }, signed);
      await channels[0].opened(id, much, null);
      const call = { custody: 'channel', channel: id, authorized: much, rail: 'tempo/session' } as const;
      const row = await stores[0].begin(newPayment(id, call), 'working', undefined);
      await stores[0].channel.captured(row, much, () => '{}', undefined, 'answered');
      const channel = await channels[0].byId(id);
      if (!channel) throw new Error('no channel');
      const isClosed = at % 2 === 0;
      const booked = await race(async (node) => {
        await channels[node].settled(channel, much, '0xs', isClosed);
        return node;
      });
      expect(booked).toHaveLength(1);
      await race((node) => channels[node].opened(id, much, null));
      await race((node) => channels[node].failed(id, 'late'));
      expect(await channels[1].byId(id)).toMatchObject({ settled: much, state: isClosed ? 'closed' : 'open' });
    }
    expect(await books()).toEqual([]);
  });

  test('a proof, a slug and a domain are one node’s', async () => {
    const keys = stores.map((store) => new PaymentKeys(store.books));
    const deployments = nodes.map((node) => new Deployments(node.db));
    const domains = nodes.map((node) => new Domains(node.db));
    for (let at = 0; at < RACES; at++) {
      expect(
        (await race(async (node) => await keys[node]?.claim(`proof ${at}`, 2 ** 50))).filter(Boolean),
      ).toHaveLength(1);
      const slug = `slug-${at}`;
      expect(
        await race(async (node) => await deployments[node]?.claims.take(slug, `claim ${node}`, '0xa', 0, 1)),
      ).toHaveLength(1);
      const [made, ...others] = await race(
        async (node) => await deployments[node]?.create(newDeployment({ slug, owner: `0x${node}` }), 0),
      );
      expect(others).toEqual([]);
      const other = await deployments[0]?.create(newDeployment({ slug: `other-${at}` }), 0);
      const tenants = [made?.tenant, other?.tenant] as [string, string];
      expect(
        await race(async (node) => await domains[node]?.attach(`${at}.example`, tenants[node], 'token', 0)),
      ).toHaveLength(1);
      // As many renewals as payments.
      const before = (await deployments[0]?.byTenant(tenants[0]))?.expiresAt ?? 0;
      await race(async (node) => await deployments[node]?.terms.renew(tenants[0], `renewal ${at}`, 10, 0));
      expect((await deployments[1]?.byTenant(tenants[0]))?.expiresAt).toBe(before + 10);
    }
  });

  test('the books are seen whole while both write, and no line of the ledger is missed', async () => {
    const invariants = new Invariants(nodes[0]);
    let isOver = false;
    const looking = (async () => {
      while (!isOver) expect(await invariants.check()).toEqual([]);
    })();
    const paying = (node: 0 | 1, worker: number) => payAll(stores[node], `whole ${node} ${worker}`, RACES / 3);
    await Promise.all([paying(0, 0), paying(1, 0), paying(0, 1), paying(1, 1)]);
    isOver = true;
    await looking;
    expect(await invariants.check()).toEqual([]);
  });

  test('a node that stops within a transaction holds up the others for seconds, and what it wrote is taken back', async () => {
    const held = await nodes[0].client.transaction('write');
    await held.execute("INSERT INTO settings (name, value) VALUES ('stopped', 'here')");
    const begun = payAll(stores[1], 'after the stopped', 1);
    expect(await stores[1].byId('nobody'), 'reads wait for nobody').toBeUndefined();
    await begun;
    await expect(held.commit()).rejects.toThrow();
    expect(await readSetting(nodes[0].db, 'stopped')).toBeUndefined();
    await payAll(stores[0], 'again', 1);
  });

  test('of a node that is killed nothing is lost that it has acknowledged, and the other goes on', async () => {
    const child = spawn(process.execPath, [CHILD, url, 'killed'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const said = await linesUntil(child, RACES);
    child.kill('SIGKILL');
    await once(child, 'exit');
    await payAll(stores[0], 'beside the killed', 3);
    await expectAnswered(said);
    expect(await books()).toEqual([]);
  });

  test('when the server is killed nothing is lost that was acknowledged, and both go on when it is back', async () => {
    const said: string[] = [];
    let isBack = false;
    const paying = async (node: 0 | 1) => {
      for (let at = 0; ; at++) {
        const wasBack = isBack;
        await payAll(stores[node], `server ${node} ${at}`, 1).then(
          (ids) => said.push(...ids),
          () => undefined,
        );
        if (wasBack && said.length > 40) return;
      }
    };
    const all = [paying(0), paying(1)];
    await expect.poll(() => said.length).toBeGreaterThan(20);
    await server.kill();
    await server.start();
    isBack = true;
    await Promise.all(all);
    await expectAnswered(said);
    expect(await books()).toEqual([]);
  });

  async function expectAnswered(ids: string[]): Promise<void> {
    const states = await Promise.all(ids.map(async (id) => (await stores[1].byId(id))?.state));
    expect(states.filter((state) => state !== 'answered')).toEqual([]);
  }
});

/** @returns ids of what was answered */
async function payAll(store: PaymentStore, name: string, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let at = 0; at < count; at++) {
    let row = await store.begin(newPayment(`${name} ${at}`), 'working', undefined);
    row = await store.settling(row, { charged: row.authorized });
    row = await store.settled(row, `0x${row.id}`, row.authorized, '{}');
    await store.answered(row, undefined, false);
    ids.push(row.id);
  }
  return ids;
}

async function linesUntil(child: ChildProcess, count: number): Promise<string[]> {
  const lines: string[] = [];
  for await (const line of createInterface({ input: child.stdout as NodeJS.ReadableStream })) {
    lines.push(line);
    if (lines.length >= count) break;
  }
  return lines;
}
