import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { CronRuns } from '../../host/registry/cron-runs.ts';
import type { Registry } from '../../host/registry/index.ts';
import { createScheduler, type Scheduler } from '../../host/scheduler/index.ts';
import { TenantCrons, type TenantCronsDeps } from '../../host/scheduler/tenant-crons.ts';
import { ManualClock } from '../../host/shared/clock.ts';
import { openTestRegistry } from '../registry/support/open.ts';

const START = Date.parse('2026-11-21T10:00:30Z');
const MINUTE = 60_000;
const DAY_MS = 86_400_000;
const log = pino({ level: 'silent' });

let folder: string;
let registry: Registry;
let clock: ManualClock;
let scheduler: Scheduler;
let history: CronRuns;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tp-crons-'));
  registry = await openTestRegistry(join(folder, 'registry.sqlite'));
  history = new CronRuns(registry.db);
  clock = new ManualClock(START);
  scheduler = createScheduler({ clock, log });
});

afterEach(async () => {
  await scheduler.stop();
  registry.close();
  await rm(folder, { recursive: true });
});

/** A host that starts on the same registry. */
function start(run: TenantCronsDeps['run'], more: Partial<TenantCronsDeps> = {}): TenantCrons {
  return new TenantCrons({ scheduler, history, clock, log, run, ...more });
}

/** Each slug is of an owner of its own unless another is named. */
const own = (tenant: string, slug: string, owner = `owner of ${tenant}`, builtin = false) => ({
  tenant,
  slug,
  owner,
  builtin,
});

const finished = async (tenant: string) =>
  (await history.latest(tenant)).map(
    ({ outcome, scheduledAt }) => `${new Date(scheduledAt).toISOString().slice(11, 16)} ${outcome}`,
  );

test('runs, and keeps what came of it', async () => {
  const run = vi.fn(async (_slug: string, _cron: string, time: number) =>
    time % (2 * MINUTE) === 0 ? { outcome: 'ok' as const } : { outcome: 'exception' as const, error: 'boom' },
  );
  const crons = start(run);
  await crons.set(own('t1', 'hello'), ['* * * * *']);
  clock.advance(MINUTE);
  await expect.poll(() => finished('t1')).toEqual(['10:01 exception']);
  clock.advance(MINUTE);
  await expect.poll(() => finished('t1')).toEqual(['10:02 ok', '10:01 exception']);
  expect(run).toHaveBeenCalledWith('hello', '* * * * *', Date.parse('2026-11-21T10:01:00Z'));
  expect((await history.latest('t1'))[1]?.error).toBe('boom');
});

test('the last occurrence missed while the host was down runs once after its start', async () => {
  const run = vi.fn(async () => ({ outcome: 'ok' as const }));
  await start(run).set(own('t1', 'hello'), ['0 * * * *']);
  await scheduler.stop();
  clock.advance(5 * 60 * MINUTE);
  scheduler = createScheduler({ clock, log });
  const again = start(run);
  await again.recover();
  await again.set(own('t1', 'hello'), ['0 * * * *']);
  await expect.poll(() => finished('t1')).toEqual(['15:00 ok']);
  expect(run).toHaveBeenCalledTimes(1);
});

test('a run that the end of the host cut off is noted, and made again', async () => {
  const stuck = start(() => new Promise(() => {}));
  await stuck.set(own('t1', 'hello'), ['0 * * * *']);
  clock.advance(60 * MINUTE);
  await expect.poll(() => finished('t1')).toEqual(['11:00 running']);
  const next = createScheduler({ clock, log });
  const again = new TenantCrons({ scheduler: next, history, clock, log, run: async () => ({ outcome: 'ok' }) });
  await again.recover();
  await again.set(own('t1', 'hello'), ['0 * * * *']);
  await expect.poll(() => finished('t1')).toEqual(['11:00 ok', '11:00 interrupted']);
  await next.stop();
  scheduler = createScheduler({ clock, log });
});

test('a run that a host cut off which was told to stop is made again, too', async () => {
  await start(async () => ({ outcome: 'interrupted', error: 'The host is stopping.' })).set(own('t1', 'hello'), [
    '0 * * * *',
  ]);
  clock.advance(60 * MINUTE);
  await expect.poll(() => finished('t1')).toEqual(['11:00 interrupted']);
  await scheduler.stop();
  scheduler = createScheduler({ clock, log });
  const again = start(async () => ({ outcome: 'ok' }));
  await again.recover();
  await again.set(own('t1', 'hello'), ['0 * * * *']);
  await expect.poll(() => finished('t1')).toEqual(['11:00 ok', '11:00 interrupted']);
});

test('a tenant that was away does not make up for that time; one with another slug goes on', async () => {
  const run = vi.fn(async () => ({ outcome: 'ok' as const }));
  const crons = start(run);
  await crons.set(own('t1', 'hello'), ['0 * * * *']);
  await crons.remove('t1');
  clock.advance(5 * 60 * MINUTE);
  await crons.set(own('t1', 'hello'), ['0 * * * *']);
  clock.advance(10 * MINUTE);
  expect(run).not.toHaveBeenCalled();
  clock.advance(50 * MINUTE);
  await expect.poll(() => finished('t1')).toEqual(['16:00 ok']);
});

test('no more run at once than there are places, and all come to their turn', async () => {
  let running = 0;
  let most = 0;
  const ends: (() => void)[] = [];
  const crons = start(
    async () => {
      running++;
      most = Math.max(most, running);
      await new Promise<void>((resolve) => ends.push(resolve));
      running--;
      return { outcome: 'ok' };
    },
    { atOnce: 2 },
  );
  for (let index = 0; index < 6; index++) await crons.set(own(`t${index}`, `s${index}`), ['* * * * *']);
  clock.advance(MINUTE);
  for (let done = 0; done < 6; done++) {
    await expect.poll(() => ends.length).toBeGreaterThan(0);
    ends.shift()?.();
  }
  await expect.poll(async () => (await finished('t5'))[0]).toBe('10:01 ok');
  expect(most).toBe(2);
});

test('a run goes on while the schedule is changed, and is not made a second time beside itself', async () => {
  let end = () => {};
  const run = vi.fn(
    () =>
      new Promise<{ outcome: 'ok' }>((resolve) => {
        end = () => resolve({ outcome: 'ok' });
      }),
  );
  const crons = start(run);
  await crons.set(own('t1', 'hello'), ['0 * * * *']);
  clock.advance(60 * MINUTE);
  await expect.poll(() => run.mock.calls.length).toBe(1);
  clock.advance(3 * MINUTE);
  await crons.set(own('t1', 'hello'), ['0 * * * *', '0 0 1 1 *']);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(await finished('t1')).toEqual(['11:00 running']);
  end();
  await expect.poll(() => finished('t1')).toEqual(['11:00 ok']);
  clock.advance(60 * MINUTE);
  await expect.poll(() => finished('t1')).toEqual(['12:00 running', '11:00 ok']);
  end();
});

const HUNG = ['* * * * *', '*/1 * * * *', '*/2 * * * *', '0-59 * * * *', '*/3 * * * *'];
/** Those of the slug `hung` never end, but the one of every third minute. @param holdMs of a place */
function hang(holdMs: number): TenantCrons {
  const never = new Promise<never>(() => undefined);
  const crons = start(
    (slug, cron) => (slug === 'hung' && cron !== '*/3 * * * *' ? never : Promise.resolve({ outcome: 'ok' })),
    { atOnce: 4, holdMs },
  );
  // The one of the test would wait for them.
  scheduler = createScheduler({ clock, log });
  return crons;
}

test('a tenant whose runs hang keeps nobody else from theirs', async () => {
  const crons = hang(DAY_MS);
  await crons.set(own('t1', 'hung'), HUNG);
  await crons.set(own('t2', 'well'), ['* * * * *']);
  clock.advance(2 * MINUTE);
  await expect.poll(() => finished('t2')).toEqual(['10:02 ok']);
});

test('a tenant whose runs hang keeps itself from others only for a while', async () => {
  const crons = hang(20);
  await crons.set(own('t1', 'hung'), HUNG);
  clock.advance(3 * MINUTE);
  await expect.poll(async () => (await finished('t1')).includes('10:03 ok')).toBe(true);
});

const STORM = [
  '* * * * *',
  '*/1 * * * *',
  '0-59 * * * *',
  '0-59/1 * * * *',
  '* 0-23 * * *',
  '* * 1-31 * *',
  '* * * 1-12 *',
  '* * * * 1-7',
];

/** Runs that do not end before they are told to, in the order in which they began. */
function storm(atOnce: number) {
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  let over = false;
  const crons = start(
    async (slug) => {
      begun.push(slug);
      if (!over) await new Promise<void>((resolve) => ends.push(resolve));
      return { outcome: 'ok' };
    },
    { atOnce },
  );
  const finish = (): void => {
    over = true;
    for (const end of ends) end();
  };
  return { crons, begun, ends, finish };
}

test('a storm of crons of many owners makes another wait for one round, not for all of it', async () => {
  const { crons, begun, ends, finish } = storm(8);
  for (let index = 0; index < 12; index++) await crons.set(own(`t${index}`, `s${index}`), STORM);
  await crons.set(own('quiet', 'quiet'), ['* * * * *']);
  clock.advance(MINUTE);
  await expect.poll(() => crons.waiting).toBe(12 * STORM.length + 1 - 6);
  for (let ended = 0; !begun.includes('quiet'); ended++) {
    await expect.poll(() => ends.length).toBeGreaterThan(ended);
    ends[ended]?.();
    await expect.poll(() => begun.length).toBeGreaterThan(6 + ended);
  }
  expect(begun.indexOf('quiet')).toBeLessThanOrEqual(6 + 12);
  finish();
  await expect.poll(() => crons.waiting).toBe(0);
});

test('a storm of one owner with many slugs holds two places; built-in tenants find theirs free', async () => {
  const { crons, begun, finish } = storm(4);
  for (let index = 0; index < 20; index++) await crons.set(own(`t${index}`, `s${index}`, 'one owner'), STORM);
  await crons.set(own('quiet', 'quiet'), ['* * * * *']);
  await crons.set(own('builtin', 'builtin', 'the host', true), ['* * * * *']);
  clock.advance(MINUTE);
  await expect.poll(() => begun.length).toBe(4);
  expect(begun.filter((slug) => slug.startsWith('s'))).toHaveLength(2);
  expect(begun).toEqual(expect.arrayContaining(['quiet', 'builtin']));
  finish();
  await expect.poll(() => crons.waiting).toBe(0);
});

test('a run that could not be noted is made a minute later', async () => {
  const begin = vi.spyOn(history, 'begin').mockRejectedValueOnce(new Error('the disk is full'));
  const run = vi.fn(async () => ({ outcome: 'ok' as const }));
  await start(run).set(own('t1', 'hello'), ['0 * * * *']);
  clock.advance(60 * MINUTE);
  await expect.poll(() => begin.mock.calls.length).toBe(1);
  await new Promise((resolve) => setTimeout(resolve, 50));
  clock.advance(MINUTE);
  await expect.poll(() => finished('t1')).toEqual(['11:00 ok']);
  clock.advance(10 * MINUTE);
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(run).toHaveBeenCalledTimes(1);
});

test('history is bounded', async () => {
  for (let index = 0; index < 105; index++) {
    const id = await history.begin('t1', '* * * * *', index, index);
    await history.finish(
      { id, tenant: 't1', cron: '* * * * *', scheduledAt: index },
      { outcome: 'ok', error: undefined },
      index,
    );
  }
  const kept = await history.latest('t1', 1_000);
  expect(kept).toHaveLength(100);
  expect(kept[0]?.scheduledAt).toBe(104);
});
