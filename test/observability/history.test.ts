/** The history of the host: what it keeps, for how long, and what it survives. */
import { mkdtempSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  BUSIEST,
  emptyMinute,
  History,
  KEPT_MINUTES,
  LATENCY_BOUNDS,
  MINUTE_MS,
  type Minute,
  quantile,
} from '../../host/observability/history.ts';
import { HistorySampler, Tally } from '../../host/observability/history-sampler.ts';
import { historyOf, stepsOf, tenantHistory } from '../../host/observability/history-view.ts';
import { expectTime } from '../times.ts';

const START = Date.parse('2026-11-20T10:00:00Z');
const tenant = (number: number) => `t${number.toString(16).padStart(20, '0')}`;
let folder: string;
let names = 0;

beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'tp-history-'));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const freshFile = () => path.join(folder, `${++names}.ring`);
const sample = (change: Partial<Minute>): Minute => ({ ...emptyMinute(), ...change });
async function all(history: History, from: number, to: number) {
  const found: { at: number; minute: Minute }[] = [];
  for await (const one of history.read(from, to)) found.push(one);
  return found;
}

describe('the file', () => {
  it('keeps every member of a minute, also when it is opened again', async () => {
    const file = freshFile();
    const given = sample({
      requests: 12,
      serverErrors: 3,
      earned: 1_234_567,
      diskFree: 2 ** 45 + 1,
      latency: emptyMinute().latency.map((_, index) => index),
      cpuMs: { supervisor: 1, edge: 2, storage: 3, egress: 4, instances: 5.5 },
      memory: { supervisor: 2 ** 33, edge: 2, storage: 3, egress: 4, instances: 5 },
      busiest: [{ tenant: tenant(7), requests: 9, errors: 1 }],
    });
    const history = await History.open(file);
    await history.add(START + 5_000, given);
    // Not closed: as after kill -9.
    const again = await History.open(file);
    expect(await all(again, START, START + MINUTE_MS)).toEqual([{ at: START, minute: given }]);
    await Promise.all([history.close(), again.close()]);
  });

  it('adds up what is counted within one minute, before and after a restart', async () => {
    const file = freshFile();
    for (const [requests, instances] of [
      [2, 9],
      [3, 4],
    ] as const) {
      const history = await History.open(file);
      const busiest = [{ tenant: tenant(1), requests, errors: 0 }];
      await history.add(START + requests, sample({ requests, instances, busiest }));
      await history.close();
    }
    const history = await History.open(file);
    const [found] = await all(history, START, START + 1);
    expect(found?.minute).toMatchObject({ requests: 5, instances: 4, busiest: [{ requests: 5 }] });
    await history.close();
  });

  it('is no larger after 30 days than at their end, and forgets what is older', async () => {
    const file = freshFile();
    const history = await History.open(file);
    for (const days of [0, 29.9, 30, 45, 60])
      await history.add(START + days * 1_440 * MINUTE_MS, sample({ requests: days + 1 }));
    expect(statSync(file).size).toBeLessThanOrEqual(KEPT_MINUTES * 512);
    const end = START + 60 * 1_440 * MINUTE_MS + 1;
    const kept = (await all(history, 0, end)).map(({ minute }) => minute.requests);
    // The one of day 30 has given its place to the one of day 60.
    expect(kept).toEqual([46, 61]);
    expect((await all(history, START, START + MINUTE_MS)).length).toBe(0);
    await history.close();
  });

  it('reads over the end of the ring in order', async () => {
    const history = await History.open(freshFile());
    const last = Math.ceil(START / MINUTE_MS / KEPT_MINUTES) * KEPT_MINUTES;
    for (const minute of [last - 2, last - 1, last, last + 1])
      await history.add(minute * MINUTE_MS, sample({ requests: 1 }));
    const found = await all(history, (last - 2) * MINUTE_MS, (last + 2) * MINUTE_MS);
    expect(found.map(({ at }) => at / MINUTE_MS - last)).toEqual([-2, -1, 0, 1]);
    await history.close();
  });

  it('takes what was cut off, changed or written by another program for nothing', async () => {
    const file = freshFile();
    const history = await History.open(file);
    for (const minute of [0, 1, 2]) await history.add(START + minute * MINUTE_MS, sample({ requests: 1 }));
    const size = statSync(file).size;
    truncateSync(file, size - 100);
    const bytes = await open(file, 'r+');
    await bytes.write(Buffer.from([255]), 0, 1, size - 2 * 512 + 20);
    await bytes.close();
    expect((await all(history, START, START + 3 * MINUTE_MS)).map(({ at }) => at)).toEqual([START]);
    await history.add(START + 2 * MINUTE_MS, sample({ requests: 8 }));
    expect((await all(history, START, START + 3 * MINUTE_MS)).map(({ minute }) => minute.requests)).toEqual([1, 8]);
    await history.close();
    const other = freshFile();
    writeFileSync(other, Buffer.alloc(100_000, 'x'));
    const opened = await History.open(other);
    expect(await all(opened, 0, START)).toEqual([]);
    await opened.close();
  });

  it('does not lose a minute to another at the same time', async () => {
    const history = await History.open(freshFile());
    await Promise.all(Array.from({ length: 20 }, () => history.add(START, sample({ requests: 1 }))));
    expect((await all(history, START, START + 1))[0]?.minute.requests).toBe(20);
    await history.close();
  });

  it(`keeps the ${BUSIEST} busiest tenants of a minute`, async () => {
    const history = await History.open(freshFile());
    const busiest = Array.from({ length: 50 }, (_, index) => ({ tenant: tenant(index), requests: index, errors: 0 }));
    await history.add(START, sample({ busiest: busiest.reverse() }));
    const [found] = await all(history, START, START + 1);
    expect(found?.minute.busiest.map(({ requests }) => requests)).toEqual([49, 48, 47, 46, 45, 44, 43, 42]);
    await history.close();
  });
});

describe('percentiles', () => {
  const latency = (counts: Record<number, number>) =>
    [...LATENCY_BOUNDS, Number.POSITIVE_INFINITY].map((bound) => counts[bound] ?? 0);

  it.each([
    [{}, 0.5, undefined],
    [{ 10: 100 }, 0.5, 7.5],
    [{ 1: 99, 100: 1 }, 0.99, 1],
    [{ 1: 90, 100: 10 }, 0.99, 95],
    [{ [Number.POSITIVE_INFINITY]: 5 }, 0.5, 60_000],
  ])('%j at %d: %s', (counts, share, expected) => {
    expect(quantile(latency(counts), share)).toEqual(expected === undefined ? undefined : expect.closeTo(expected, 5));
  });
});

describe('what charts are told', () => {
  it('has a point for each step, with means of memory and CPU, and percentiles over all of its minutes', async () => {
    const history = await History.open(freshFile());
    const now = START + 30_000;
    const group = (edge: number) => ({ ...emptyMinute().memory, edge });
    const quick = emptyMinute().latency.with(0, 99);
    for (const [ago, memory] of [
      [3, 100],
      [1, 300],
    ] as const)
      await history.add(now - ago * MINUTE_MS, sample({ requests: 99, memory: group(memory), latency: quick }));
    await history.add(
      now,
      sample({
        requests: 5,
        earned: 7,
        cpuMs: group(6_000),
        busiest: [{ tenant: tenant(3), requests: 4, errors: 2 }],
      }),
    );
    const { points, busiest } = historyOf([await stepsOf(history, 'hour', now)]);
    expect(points.length).toBe(60);
    expect(points.at(-1)).toMatchObject({
      at: START,
      known: 1,
      requests: 5,
      earned: 7,
      p99Ms: null,
      cpu: { edge: 10 },
    });
    expect(points.at(-2)).toMatchObject({ requests: 99, memory: { edge: 300 }, p50Ms: expect.closeTo(0.5, 1) });
    expect(points.at(-3)).toMatchObject({ known: 0, requests: 0 });
    expect(busiest).toEqual([{ tenant: tenant(3), requests: 4, errors: 2 }]);
    const ofDay = historyOf([await stepsOf(history, 'day', now)]);
    expect(ofDay.points.length).toBe(144);
    expect(ofDay.points.reduce((sum, { requests }) => sum + requests, 0)).toBe(203);
    expect(ofDay.points.at(-2)).toMatchObject({ known: 2, memory: { edge: 200 } });
    expect((await tenantHistory(history, tenant(3), 'hour', now)).at(-1)).toEqual({
      at: START,
      requests: 4,
      errors: 2,
    });
    await history.close();
  });

  it('adds up nodes: what they counted, have and use, percentiles over the requests of all', async () => {
    const node = async (requests: number, shares: Partial<Minute>) => {
      const history = await History.open(freshFile());
      const latency = emptyMinute().latency.with(requests > 5 ? 0 : 4, requests);
      const busiest = [{ tenant: tenant(1), requests, errors: 1 }];
      await history.add(START, sample({ requests, latency, busiest, deployments: 3, ...shares }));
      const steps = await stepsOf(history, 'hour', START);
      await history.close();
      return steps;
    };
    const memory = (edge: number) => ({ ...emptyMinute().memory, edge });
    const { points, busiest } = historyOf([
      await node(98, { instances: 1, diskFree: 10, memory: memory(100) }),
      await node(2, { instances: 2, diskFree: 20, memory: memory(50) }),
    ]);
    expect(points.at(-1)).toMatchObject({
      ...{ known: 1, requests: 100, instances: 3, diskFree: 30, deployments: 3, memory: { edge: 150 } },
      p99Ms: expect.closeTo(17.5, 1),
    });
    expect(busiest).toEqual([{ tenant: tenant(1), requests: 100, errors: 2 }]);
  });

  it('reads 30 days of full minutes in time for a page, and a sample costs next to nothing', async () => {
    const file = freshFile();
    const history = await History.open(file);
    await history.add(START, sample({ requests: 60, busiest: [{ tenant: tenant(1), requests: 60, errors: 0 }] }));
    // Every minute, without waiting for 43,200 writes: the records but for their number are the same, so write a few.
    for (let minute = 0; minute < KEPT_MINUTES; minute += 25)
      await history.add(START + minute * MINUTE_MS, sample({ requests: 1 }));
    const from = performance.now();
    const { points } = historyOf([await stepsOf(history, 'month', START + (KEPT_MINUTES - 1) * MINUTE_MS)]);
    expectTime('30 days of full minutes', performance.now() - from, 2_000);
    expect(points.length).toBe(180);
    await history.close();
  });
});

describe('sampling', () => {
  const metrics = (requests: number, unpaid: number, ...upTo: number[]) => [
    {
      name: 'turnpike_edge_requests_total',
      values: [
        { labels: { to: 'instance', status: '2xx' }, value: requests },
        { labels: { to: 'control', status: '5xx' }, value: 2 * requests },
      ],
    },
    { name: 'turnpike_edge_unpaid_total', values: [{ labels: {}, value: unpaid }] },
    {
      name: 'turnpike_edge_duration_seconds',
      values: [
        ...upTo.map((value) => ({ labels: {}, value, metricName: 'turnpike_edge_duration_seconds_bucket' })),
        { labels: {}, value: 99, metricName: 'turnpike_edge_duration_seconds_sum' },
      ],
    },
  ];

  it('counts what was added since the last time, over the restart of an edge, and without one that is silent', async () => {
    const history = await History.open(freshFile());
    let read = async (): Promise<unknown> => metrics(10, 1, 20, 30);
    const tally = new Tally();
    const sampler = new HistorySampler({
      history,
      tally,
      processes: () => [
        { group: 'supervisor', pid: process.pid },
        { group: 'edge', pid: undefined },
      ],
      edges: () => [
        { process: 'edge', read: () => read() },
        { process: 'gone', read: () => Promise.reject(new Error('it restarts')) },
      ],
      instances: () => ({ running: 2, memoryBytes: 77 }),
      deployments: async () => 5,
      dataFolder: folder,
      log: { warn: () => expect.unreachable() },
    });
    const totals = async () =>
      (await all(history, Date.now() - 10 * MINUTE_MS, Date.now() + MINUTE_MS)).map((one) => one.minute);
    const sum = async (name: 'requests' | 'serverErrors' | 'unpaid' | 'earned' | 'payments') =>
      (await totals()).reduce((total, minute) => total + minute[name], 0);
    tally.onPayment({ microUsd: 200_000n, earnedMicroUsd: 20_000n });
    tally.onTraffic({ tenant: tenant(1), requests: 3, errors: 0 });
    tally.onTraffic({ tenant: tenant(1), requests: 1, errors: 1 });
    await sampler.sample();
    expect([await sum('requests'), await sum('serverErrors'), await sum('unpaid')]).toEqual([30, 20, 1]);
    read = async () => metrics(15, 4, 25, 45);
    await sampler.sample();
    expect([await sum('requests'), await sum('serverErrors'), await sum('unpaid')]).toEqual([45, 30, 4]);
    // It was started again, and counts from 0.
    read = async () => metrics(1, 0, 3, 3);
    await sampler.sample();
    expect(await sum('requests')).toBe(48);
    expect([await sum('payments'), await sum('earned')]).toEqual([1, 20_000]);
    const last = (await totals()).at(-1);
    expect(last).toMatchObject({ instances: 2, deployments: 5, memory: { instances: 77 } });
    expect(last?.memory.supervisor).toBeGreaterThan(10_000_000);
    expect(last?.diskTotal).toBeGreaterThan(last?.diskFree ?? 0);
    expect((await totals()).flatMap(({ busiest }) => busiest)).toEqual([{ tenant: tenant(1), requests: 4, errors: 1 }]);
    expect((await totals()).reduce((total, { latency }) => total + (latency[1] ?? 0), 0)).toBe(20);
    await history.close();
  });

  it('goes on when the disk takes nothing', async () => {
    const history = await History.open(freshFile());
    await history.close();
    const warnings: unknown[] = [];
    const sampler = new HistorySampler({
      history,
      tally: new Tally(),
      processes: () => [],
      edges: () => [],
      instances: () => ({ running: 0, memoryBytes: 0 }),
      deployments: async () => 0,
      dataFolder: folder,
      log: { warn: (given: unknown) => void warnings.push(given) },
    });
    await sampler.sample();
    expect(warnings.length).toBe(1);
  });
});
