/** Leases on both databases: who has one, until when, and what whoever lost it can still write. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { fences, LeaseLost, unfenced } from '../../host/registry/fences.ts';
import type { Registry } from '../../host/registry/index.ts';
import { type Holding, OwnLeases, RegistryLeases } from '../../host/registry/leases.ts';
import { settings } from '../../host/registry/schema/deployments.ts';
import { readSetting, savedSetting } from '../../host/registry/settings.ts';
import { isPostgres, openTestRegistry } from './support/open.ts';

const LONG_MS = 60_000;
const folder = mkdtempSync(path.join(tmpdir(), 'tp-leases-'));
let registry: Registry;

beforeAll(async () => {
  registry = await openTestRegistry(path.join(folder, 'registry.db'));
});
afterAll(() => {
  registry.close();
  rmSync(folder, { recursive: true });
});

const node = (name: string, validMs = LONG_MS) => new RegistryLeases(registry.client, name, validMs);

/** Ends the time of a lease, as it ends for a node that does not renew it. */
async function lapse(name: string): Promise<void> {
  await registry.client.execute('UPDATE leases SET valid_until = 0 WHERE name = ?', [name]);
}

async function renew(leases: RegistryLeases): Promise<void> {
  await leases.renew(async (sql, args) => (await registry.client.execute(sql, args)).rows);
}

test('a lease is one node’s for as long as it lasts, and of the next one when it has ended', async () => {
  const [a, b] = [node('a'), node('b')];
  expect(await a.run('one', async () => 'a')).toBe('a');
  expect(await b.run('one', async () => 'b')).toBeUndefined();
  expect(await a.run('one', async () => 'again')).toBe('again');
  await a.end();
  expect(await b.run('one', async () => 'b')).toBe('b');
});

test('of many nodes that want it at once one has it', async () => {
  for (let at = 0; at < 20; at++) {
    const nodes = Array.from({ length: 8 }, (_, index) => node(`n${index}`));
    const ends = await Promise.all(nodes.map((one) => one.run(`wanted ${at}`, async () => true)));
    expect(ends.filter((end) => end)).toHaveLength(1);
  }
});

test('who keeps a lease hears when it has it and when it is lost, and what is left is seen to first', async () => {
  const [a, b] = [node('a'), node('b')];
  const said: string[] = [];
  const holding = (name: string): Holding => ({
    async gained() {
      said.push(`${name} gained under ${fences().map((fence) => fence.name)}`);
    },
    lost: () => said.push(`${name} lost`),
  });
  await a.keep('kept', holding('a'));
  await b.keep('kept', holding('b'));
  await lapse('kept');
  // By its own clock it has the lease: the database knows better, and `run` hears of it by the next renewal.
  await b.takeKept();
  await renew(a);
  expect(await b.run('kept', async () => true)).toBe(true);
  expect(said).toEqual(['a gained under kept', 'b gained under kept', 'a lost']);
  await a.end();
  await b.end();
});

test('a lease whose time has passed unrenewed is lost by its holder’s own clock', async () => {
  const a = node('a', 60);
  const lost = Promise.withResolvers<void>();
  await a.keep('short', { gained: async () => {}, lost: lost.resolve });
  await expect.poll(() => a.run('short', async () => fences().length)).toBe(1);
  const [row] = (await registry.client.execute("SELECT epoch FROM leases WHERE name = 'short'")).rows;
  await expect
    .poll(async () => {
      await a.run('short', async () => {});
      return Number((await registry.client.execute("SELECT epoch FROM leases WHERE name = 'short'")).rows[0]?.epoch);
    })
    .toBeGreaterThan(Number(row?.epoch));
  await lost.promise;
});

test('nodes that ended long ago are forgotten, and no others', async () => {
  const { client } = registry;
  const [old, late, living] = [node('old'), node('late'), node('living')];
  for (const one of [old, late, living]) await one.takeKept();
  await lapse('node:old');
  await late.end();
  await living.forgetNodes();
  const { rows } = await client.execute("SELECT holder FROM leases WHERE name LIKE 'node:%' ORDER BY holder");
  expect(rows.map(({ holder }) => holder).filter((one) => /old|late|living/.test(String(one)))).toEqual([
    'late',
    'living',
  ]);
});

test('where what is left cannot be seen to, the lease is given back, and the next try sees to it', async () => {
  const a = node('a');
  let tries = 0;
  const gained = async () => {
    if (++tries === 1) throw new Error('not yet');
  };
  await expect(a.keep('left', { gained, lost: () => {} })).rejects.toThrow('not yet');
  expect(await node('b').run('left', async () => true)).toBe(true);
  await lapse('left');
  expect(await a.run('left', async () => true)).toBe(true);
  expect(tries).toBe(2);
});

test('what is had by one node after the other passes its note on', async () => {
  const nodes = [node('a'), node('b'), node('c')];
  const counted: number[] = [];
  await Promise.all(
    nodes.flatMap((one) =>
      Array.from({ length: 15 }, () =>
        one.exclusively('counter', async (passed) => {
          const next = Number(passed.note ?? 0) + 1;
          expect(passed.ageMs).toBeGreaterThanOrEqual(0);
          passed.note = String(next);
          counted.push(next);
        }),
      ),
    ),
  );
  expect(counted).toEqual(Array.from({ length: 45 }, (_, at) => at + 1));
  const own = new OwnLeases();
  const again = () => own.exclusively('counter', async (passed) => (passed.note = `${passed.note ?? ''}x`));
  expect(await Promise.all([again(), again(), again()])).toEqual(['x', 'xx', 'xxx']);
});

test.runIf(isPostgres)('who lost a lease writes nothing under it, and others go on', async () => {
  const { db } = registry;
  const [a, b] = [node('a'), node('b')];
  const write = (value: string) => savedSetting(db, 'fenced', value);
  await a.run('fence', async () => {
    await write('a');
    await lapse('fence');
    for (const refused of [
      () => write('a, late'),
      () => db.transaction(async (tx) => void (await tx.delete(settings))),
      () => registry.client.batch([{ sql: 'DELETE FROM settings', args: [] }]),
    ]) {
      const error = await refused().then(
        () => undefined,
        (reason: Error) => reason,
      );
      expect(error instanceof LeaseLost ? error : error?.cause).toBeInstanceOf(LeaseLost);
    }
    expect(await readSetting(db, 'fenced')).toBe('a');
    await unfenced(() => b.run('fence', () => write('b')));
    expect(await readSetting(db, 'fenced')).toBe('b');
    // What is no work of the lease goes on.
    await unfenced(() => write('neither'));
  });
  expect(await readSetting(db, 'fenced')).toBe('neither');
  // Of both that it is under.
  await b.run('fence', () =>
    b.run('inner', async () => {
      await write('both');
      await lapse('fence');
      await expect(write('one')).rejects.toThrow();
    }),
  );
  expect(await readSetting(db, 'fenced')).toBe('both');
});
