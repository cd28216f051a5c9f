/** Nodes of one host on one PostgreSQL: what one hears of the other, and who goes on when one ends or stops. */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Sessions } from '../../host/control/console/sessions.ts';
import { OperatorTokens } from '../../host/control/console/tokens.ts';
import { Passes } from '../../host/payments/passes.ts';
import { Blocks } from '../../host/registry/blocks.ts';
import { Deployments } from '../../host/registry/deployments.ts';
import { Books } from '../../host/registry/payments/books.ts';
import { PaymentKeys } from '../../host/registry/payments/keys.ts';
import { openPostgresRegistry, type PostgresRegistry } from '../../host/registry/postgres/index.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { postgresPrograms } from '../e2e/support/databases.ts';
import { expectTime } from '../times.ts';
import { newDeployment } from './support/new-deployment.ts';
import { PostgresServer } from './support/postgres-server.ts';

/** How soon a change at one node is seen at the other, ms. */
const SEEN_MS = 50;
const TURNS = 20;

describe.skipIf(!postgresPrograms())('nodes', () => {
  let server: PostgresServer;
  let url: string;
  const opened: PostgresRegistry[] = [];

  beforeAll(async () => {
    server = await PostgresServer.start();
    url = server.create('host');
  });
  afterAll(() => server.stop());
  afterEach(async () => {
    for (const node of opened.splice(0)) await node.end();
  });

  async function nodes(count: number, options = {}): Promise<PostgresRegistry[]> {
    const made = await Promise.all(Array.from({ length: count }, () => openPostgresRegistry(url, options)));
    opened.push(...made);
    return made;
  }

  /** Cuts the connections by which nodes hear of each other. */
  async function cut(node: PostgresRegistry): Promise<void> {
    const ended = async () => {
      const { rows } = await node.client.execute(
        `SELECT pg_terminate_backend(pid) AS ended FROM pg_stat_activity WHERE application_name = 'turnpike presence'`,
      );
      return rows.length;
    };
    await expect.poll(ended).toBeGreaterThan(0);
  }

  test('a node that serves no more is waited for by no change, leaves its work to others, and lives until its end', async () => {
    const [a, b] = (await nodes(2)) as [PostgresRegistry, PostgresRegistry];
    const at = new Deployments(a.db, a.changes);
    b.changes.on('deployments', () => new Promise(() => undefined));
    await b.leases.keep('work', { gained: async () => undefined, lost: () => undefined });
    expect(await a.leases.run('work', async () => 'done')).toBeUndefined();
    await b.retire();
    expect(await a.leases.run('work', async () => 'done')).toBe('done');
    expect(await b.leases.run('work', async () => 'done')).toBeUndefined();
    await at.create(newDeployment({ slug: 'without' }), 0);
    await a.changes.everywhere(['deployments']);
    const { rows } = await a.client.execute({
      sql: "SELECT valid_until - CAST(unixepoch('subsec') * 1000 AS BIGINT) AS left FROM leases WHERE name = ?",
      args: [`node:${b.node}`],
    });
    expect(Number(rows[0]?.left)).toBeGreaterThan(0);
  });

  test('who waits for all has what the slowest of them has done, and waits for none that has ended', async () => {
    const [a, b] = (await nodes(2, { leaseMs: 1_500 })) as [PostgresRegistry, PostgresRegistry];
    const at = new Deployments(a.db, a.changes);
    const isDone = Promise.withResolvers<void>();
    let done = 0;
    b.changes.on('deployments', async () => {
      await isDone.promise;
      done += 1;
    });
    const made = await at.create(newDeployment({ slug: 'slow' }), 0);
    let waited = false;
    const waiting = a.changes.everywhere(['deployments']).then(() => {
      waited = true;
    });
    await expect.poll(async () => (await b.client.execute('SELECT 1 FROM changes')).rows.length).toBeGreaterThan(0);
    expect(waited).toBe(false);
    isDone.resolve();
    await waiting;
    expect(done).toBeGreaterThan(0);
    const since = performance.now();
    for (let turn = 0; turn < TURNS; turn++) {
      await at.decisions.note(made.tenant, `${turn}`);
      await a.changes.everywhere(['deployments']);
    }
    console.info(`a change, and the other node has it: ${((performance.now() - since) / TURNS).toFixed(1)} ms each`);
    b.changes.on('deployments', () => {
      throw new Error('it fails at what it hears');
    });
    await at.decisions.note(made.tenant, 'failed');
    const failing = a.changes.everywhere(['deployments']);
    await b.end();
    await failing;
  });

  test('a deployment that a node leaves behind keeps those waiting who changed it, and nobody else', async () => {
    const [a, b] = (await nodes(2)) as [PostgresRegistry, PostgresRegistry];
    const at = new Deployments(a.db, a.changes);
    const isDone = Promise.withResolvers<void>();
    b.changes.on('deployments', () => b.changes.behind('behind', isDone.promise));
    await at.create(newDeployment({ slug: 'behind' }), 0);
    await a.changes.everywhere(['deployments', 'domains'], 'another');
    let done = false;
    const waiting = a.changes.everywhere(['deployments', 'domains'], 'behind').then(() => {
      done = true;
    });
    // Longer than it takes to look again.
    const looked = performance.now() + 300;
    await expect.poll(() => performance.now() > looked).toBe(true);
    expect(done).toBe(false);
    isDone.resolve();
    await waiting;
  });

  test('what one changes the other remembers no longer, within 50 ms', async () => {
    const [a, b] = (await nodes(2)) as [PostgresRegistry, PostgresRegistry];
    const [at, there] = [new Deployments(a.db, a.changes), new Deployments(b.db, b.changes)];
    const [blocks, blocksThere] = [await Blocks.open(a), await Blocks.open(b)];
    const tokens = await OperatorTokens.open(a);
    await tokens.keepFresh();
    const tokensThere = await OperatorTokens.open(b);
    const made = await at.create(newDeployment({ slug: 'seen' }), 0);
    const seen: number[] = [];
    const within = async (isSeen: () => Promise<boolean> | boolean): Promise<void> => {
      const since = performance.now();
      await expect.poll(isSeen, { interval: 1 }).toBe(true);
      seen.push(performance.now() - since);
    };
    for (let turn = 0; turn < TURNS; turn++) {
      expect((await there.lookUp('seen'))?.note ?? null).toBe(turn === 0 ? null : `${turn - 1}`);
      await at.decisions.note(made.tenant, `${turn}`);
      await within(async () => (await there.lookUp('seen'))?.note === `${turn}`);
      await blocks.add({ subject: `0x${turn}`, kind: 'wallet', reason: null }, 0);
      await within(() => blocksThere.hasWallet(`0x${turn}`));
      const token = await tokens.replace('operator');
      await within(() => tokensThere.roleOf(token) === 'operator');
    }
    seen.sort((one, other) => one - other);
    console.info(
      `seen at the other node after ${seen[seen.length >> 1]?.toFixed(1)} ms, at most ${seen.at(-1)?.toFixed(1)}`,
    );
    expectTime('nine of ten changes, seen at the other node', seen[Math.floor(seen.length * 0.9)] ?? 0, SEEN_MS);
  });

  test('the operator’s log-out, and a new token, end at both what goes on, and of two first starts one shows its token', async () => {
    const registries = await nodes(2);
    await registries[0]?.client.execute("DELETE FROM settings WHERE name = 'operator-token-sha256'");
    const made = await Promise.all(
      registries.map(async (registry) => {
        const keys = new PaymentKeys(new Books(registry, new ManualClock(Date.now())));
        const passes = <Claims extends object>(purpose: string) =>
          new Passes<Claims>({ purpose, key: Buffer.alloc(32, purpose), keys, now: () => Date.now() });
        const tokens = await OperatorTokens.open(registry);
        await tokens.keepFresh();
        return { tokens, sessions: new Sessions({ passes, tokens, changes: registry.changes }) };
      }),
    );
    const [a, b] = made as [(typeof made)[0], (typeof made)[0]];
    const shown = made.flatMap(({ tokens }) => tokens.fresh ?? []);
    expect(shown).toHaveLength(1);
    expect(made.map(({ tokens }) => tokens.roleOf(shown[0] ?? ''))).toEqual(['operator', 'operator']);
    const cookies = [a, b].map(({ sessions }) => sessions.open('operator', false));
    const followed = await Promise.all(
      cookies.map(async (cookie) => {
        const session = await a.sessions.find(cookie, false);
        if (!session) throw new Error('it was opened just now');
        return a.sessions.ended(session);
      }),
    );
    await b.sessions.end(cookies[0] ?? '');
    expect(await a.sessions.find(cookies[0] ?? '', false)).toBeUndefined();
    await expect.poll(() => followed.map(({ aborted }) => aborted)).toEqual([true, false]);
    const token = await b.tokens.replace('operator');
    // No wait: the other had it before it was told here.
    expect([a.tokens.roleOf(token), a.tokens.roleOf(shown[0] ?? '')]).toEqual(['operator', undefined]);
    expect(followed[1]?.aborted).toBe(true);
    expect(await a.sessions.find(cookies[1] ?? '', false)).toBeUndefined();
  });

  test('a node hears again though its connection was lost together with the answer to a beat', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'tp-registry-relay-'));
    const socket = '.s.PGSQL.5432';
    const address = new URL(url);
    const behind = address.searchParams.get('host') ?? '';
    let lost = 0;
    const relay = createServer((one) => {
      const other = connect(path.join(behind, socket));
      let held: Buffer[] | undefined;
      one.on('data', (piece) => {
        // The last question of a beat: its answer comes in one piece with the server's last word.
        if (lost === 0 && piece.includes('SELECT topic, number FROM changes')) {
          lost++;
          held = [];
          other.once('data', () => void cut(a));
        }
        other.write(piece);
      });
      other.on('data', (piece) => (held ? held.push(piece) : one.write(piece)));
      other.on('close', () => one.end(Buffer.concat(held ?? [])));
      for (const end of [one, other]) end.on('error', () => undefined);
      one.on('close', () => other.destroy());
    });
    await once(relay.listen(path.join(folder, socket)), 'listening');
    const [a] = (await nodes(1)) as [PostgresRegistry];
    address.searchParams.set('host', folder);
    const b = await openPostgresRegistry(address.href, { leaseMs: 1_500 });
    opened.push(b);
    const [blocks, blocksThere] = [await Blocks.open(a), await Blocks.open(b)];
    await blocks.add({ subject: '0xe', kind: 'wallet', reason: null }, 0);
    await expect.poll(() => blocksThere.hasWallet('0xe')).toBe(true);
    expect(lost).toBe(1);
    await Promise.all(opened.splice(0).map((node) => node.end()));
    relay.close();
    rmSync(folder, { recursive: true });
  });

  test('what was changed while nothing could be heard is seen once it can, by its number', async () => {
    const [a, b] = (await nodes(2)) as [PostgresRegistry, PostgresRegistry];
    const [blocks, blocksThere] = [await Blocks.open(a), await Blocks.open(b)];
    for (let turn = 0; turn < TURNS / 4; turn++) {
      await cut(b);
      await blocks.add({ subject: `0xc${turn}`, kind: 'wallet', reason: null }, 0);
      await expect.poll(() => blocksThere.hasWallet(`0xc${turn}`)).toBe(true);
    }
    await server.kill();
    await server.start();
    await expect.poll(async () => blocks.remove('0xc0').catch(() => false)).toBe(true);
    await expect.poll(() => blocksThere.hasWallet('0xc0')).toBe(false);
    await blocks.add({ subject: '0xd', kind: 'wallet', reason: null }, 0);
    await expect.poll(() => blocksThere.hasWallet('0xd')).toBe(true);
  });
});
