/**
 * Watches on the real host when things happen at the same moment, or in the middle of which a process is killed; and
 * days at the odd places of the calendar.
 */
import { readdirSync, readFileSync, realpathSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  ANY_WATCH,
  balanceUsd,
  createWatch,
  DAY_MS,
  dealsAreUp,
  deleteWatch,
  grant,
  readDatabase,
  readWatches,
  register,
  runCrons,
  startDealsHost,
} from './support/deals-host.ts';
import type { TestHost } from './support/host.ts';
import { payFromCredit } from './support/pay-callers.ts';
import { until } from './support/until.ts';

let host: TestHost;

beforeAll(async () => {
  host = await startDealsHost();
});
afterAll(() => host?.stop());

const ledgerIsSound = async () => ((await host.operator('GET', '/pay/ledger')).json as { ok: boolean }).ok;
const days = async (watch: string) =>
  (
    await readDatabase<{ key: string }>(
      host,
      'pay',
      `SELECT request_id AS key FROM ledger_transactions WHERE kind = 'charge' AND request_id LIKE 'watch_day:${watch}:%' ORDER BY rowid`,
    )
  ).map(({ key }) => key.slice(`watch_day:${watch}:`.length));

/** Kills every process that the slug's sockets are mounted for: the instance and its database. */
function killInstance(slug: string): number {
  const services = realpathSync(path.join(host.data, 'run', slug));
  const cell = `${path.dirname(services)}/`;
  const found = readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/mountinfo`, 'latin1').includes(cell);
      } catch {
        return false;
      }
    });
  for (const pid of found) {
    try {
      process.kill(Number(pid), 'SIGKILL');
    } catch {}
  }
  return found.length;
}

test.each(['deals', 'pay'])(
  '%s is killed while watches are made: each request makes one watch for one price',
  async (victim) => {
    const account = await register(host);
    await grant(host, account, '5.00');
    const make = (round: number) =>
      payFromCredit(`${host.url}/pay/deals/v1/watches`, account, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'idempotency-key': `${victim}-${round}` },
        body: JSON.stringify({ ...ANY_WATCH, every_s: 900 + round }),
      });
    const rounds = 8;
    let killed = 0;
    for (let round = 0; round < rounds; round++) {
      const first = make(round).catch(() => undefined);
      // At another moment of the call each time: before, in the middle, after.
      await new Promise((resolve) => setTimeout(resolve, round * 8));
      killed += killInstance(victim);
      const answered = await first;
      await answered?.body?.cancel();
      // A new version of the tenant, or the host would take it for a crash loop and wait ever longer.
      await host.advance(1_500);
      await dealsAreUp(host);
      // A call whose process died is taken over after four minutes; so much older is it now.
      await until(async () => {
        await readDatabase(host, 'pay', "UPDATE calls SET started_at = started_at - 600000 WHERE state = 'working'");
        const again = await make(round).catch(() => undefined);
        await again?.body?.cancel();
        return again?.status === 201 ? true : undefined;
      });
    }
    expect(killed).toBeGreaterThanOrEqual(rounds);
    const { watches } = await readWatches(host, account);
    expect(watches.map((watch) => (watch as unknown as { every_s: number }).every_s).toSorted()).toEqual(
      Array.from({ length: rounds }, (_, round) => 900 + round),
    );
    // Holds that were left behind are given back in the end.
    await readDatabase(host, 'pay', 'UPDATE holds SET created_at = created_at - 3600000 WHERE settled_at IS NULL');
    await runCrons(host);
    expect(await balanceUsd(host, account)).toBe((5 - 0.25 * rounds).toFixed(2));
    expect(await ledgerIsSound()).toBe(true);
  },
);

test('top-ups in the middle of refusals and DELETE in the middle of charges: each day is charged once or not at all', async () => {
  const poor = await register(host);
  const rich = await register(host);
  await grant(host, poor, '0.75');
  await grant(host, rich, '5.00');
  const waiting = [];
  const leaving = [];
  for (let count = 0; count < 3; count++) waiting.push(await createWatch(host, poor));
  for (let count = 0; count < 6; count++) leaving.push(await createWatch(host, rich));
  await host.advance(DAY_MS);
  await dealsAreUp(host);
  const deletions = leaving.map(async ({ id }, index) => {
    await new Promise((resolve) => setTimeout(resolve, index * 10));
    return deleteWatch(host, rich, id);
  });
  await Promise.all([
    runCrons(host),
    runCrons(host),
    grant(host, poor, '0.10'),
    grant(host, poor, '0.20'),
    ...deletions,
  ]);
  expect(await Promise.all(deletions)).toEqual(leaving.map(() => 204));
  await runCrons(host);
  await until(async () =>
    (await readWatches(host, poor)).watches.every(({ state }) => state === 'running') ? true : undefined,
  );
  for (const { id } of waiting) expect(await days(id)).toHaveLength(1);
  expect(await balanceUsd(host, poor)).toBe('0.00');
  expect((await readWatches(host, rich)).watches).toEqual([]);
  await host.advance(DAY_MS);
  await dealsAreUp(host);
  await runCrons(host);
  let charged = 0;
  for (const { id } of leaving) {
    const count = (await days(id)).length;
    expect(count).toBeLessThanOrEqual(1);
    charged += count;
  }
  expect(await balanceUsd(host, rich)).toBe((5 - 6 * 0.25 - charged * 0.1).toFixed(2));
  expect(await ledgerIsSound()).toBe(true);
});

test('days follow one another over a leap day, to the last second of one', async () => {
  const { offsetMs } = (await host.operator('GET', '/clock')).json as { offsetMs: number };
  const year = new Date(Date.now() + offsetMs).getUTCFullYear();
  const leap = Math.ceil((year + 1) / 4) * 4;
  const evening = Date.UTC(leap, 1, 28, 23, 59, 30);
  const now = Date.now() + offsetMs;
  await host.advance(evening - now);
  await dealsAreUp(host);
  const account = await register(host);
  await grant(host, account, '1.00');
  const watch = await createWatch(host, account);
  const first = Date.parse(watch.paid_through);
  expect(watch.paid_through.slice(0, 10)).toMatch(new RegExp(`^${leap}-02-29|^${leap}-03-01`));
  for (let day = 1; day <= 2; day++) {
    await host.advance(DAY_MS);
    await dealsAreUp(host);
    await runCrons(host);
    await until(async () => ((await days(watch.id)).length >= day ? true : undefined));
  }
  expect((await days(watch.id)).map((start) => Date.parse(start))).toEqual([first, first + DAY_MS]);
  expect((await days(watch.id)).at(-1)).toMatch(new RegExp(`^${leap}-03-0[12]T`));
  expect(await balanceUsd(host, account)).toBe('0.55');
});
