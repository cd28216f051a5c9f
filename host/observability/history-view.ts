/** The history as charts need it: a time cut into equal steps, each with its sums, means and percentiles. */
import type { TenantId } from '../shared/contracts.ts';
import {
  addMinute,
  busiestOf,
  emptyMinute,
  type History,
  MINUTE_MS,
  type Minute,
  type ProcessGroup,
  quantile,
  type Traffic,
} from './history.ts';

/** What may be asked for: how long, and in which steps. */
export const RANGES = {
  hour: { ms: 60 * MINUTE_MS, stepMs: MINUTE_MS },
  day: { ms: 24 * 60 * MINUTE_MS, stepMs: 10 * MINUTE_MS },
  month: { ms: 30 * 24 * 60 * MINUTE_MS, stepMs: 4 * 60 * MINUTE_MS },
} as const;
export type Range = keyof typeof RANGES;

export interface Point extends Omit<Minute, 'latency' | 'busiest' | 'memory' | 'cpuMs'> {
  /** Begin of the step, ms since the epoch. */
  at: number;
  /** Minutes of the step of which something is known; 0: all else is 0. */
  known: number;
  p50Ms: number | null;
  p99Ms: number | null;
  /** The mean, bytes. */
  memory: Record<ProcessGroup, number>;
  /** Of one core, in percent. */
  cpu: Record<ProcessGroup, number>;
}

/** Tenants that are told of in a range. */
export const MOST_TENANTS = 20;
/** Of any range. */
export const MOST_STEPS = Math.max(...Object.values(RANGES).map(({ ms, stepMs }) => ms / stepMs));
/** Tenants that are counted on the way. */
const MOST_COUNTED = 2_000;

/** What one node knows, as its sums: from those of several nodes one history is made. */
export interface Steps {
  steps: { at: number; known: number; sum: Minute; memory: Record<ProcessGroup, number> }[];
  busiest: Traffic[];
}

export async function stepsOf(history: History, range: Range, now: number): Promise<Steps> {
  const { stepMs } = RANGES[range];
  const steps = timesOf(range, now).map((at) => ({ at, known: 0, sum: emptyMinute(), memory: emptyMinute().memory }));
  const busiest = new Map<TenantId, Traffic>();
  const first = steps[0]?.at ?? now;
  for await (const { at, minute } of history.read(first, now + MINUTE_MS)) {
    const step = steps[Math.floor((at - first) / stepMs)];
    if (!step) continue;
    addMinute(step.sum, minute);
    step.known += 1;
    for (const group of groupsOf(minute)) step.memory[group] += minute.memory[group];
    addTraffic(busiest, minute.busiest);
  }
  return { steps, busiest: busiestOf(busiest.values(), MOST_TENANTS) };
}

/** Of this node and of others, by the same times. @param nodes at least one */
export function historyOf([own, ...others]: readonly [Steps, ...Steps[]]): { points: Point[]; busiest: Traffic[] } {
  const points = own.steps.map((step) => {
    const { at } = step;
    const all = [step, ...others.map(({ steps }) => steps.find((other) => other.at === at))].filter(
      (one) => one !== undefined && one.known > 0,
    ) as Steps['steps'];
    const total = emptyMinute();
    const memory = emptyMinute().memory;
    let known = 0;
    for (const one of all) {
      const before = { ...total };
      addMinute(total, one.sum);
      // Each node has a disk and instances of its own; deployments are those of all.
      for (const name of ['diskFree', 'diskTotal', 'instances'] as const) total[name] += before[name];
      for (const group of groupsOf(total)) memory[group] += Math.round(one.memory[group] / one.known);
      known = Math.max(known, one.known);
    }
    const { latency, busiest: _, cpuMs, memory: _last, ...sums } = total;
    return {
      ...sums,
      at,
      known,
      p50Ms: quantile(latency, 0.5) ?? null,
      p99Ms: quantile(latency, 0.99) ?? null,
      memory,
      cpu: mapped(cpuMs, (ms) => Math.round((ms / (Math.max(1, known) * MINUTE_MS)) * 1_000) / 10),
    };
  });
  return {
    points,
    busiest: busiestOf(
      [own, ...others].flatMap(({ busiest }) => busiest),
      MOST_TENANTS,
    ),
  };
}

/** Only of the minutes in which it was one of the busiest. */
export async function tenantHistory(history: History, tenant: TenantId, range: Range, now: number) {
  const points = timesOf(range, now).map((at) => ({ at, requests: 0, errors: 0 }));
  const first = points[0]?.at ?? now;
  for await (const { at, minute } of history.read(first, now + MINUTE_MS)) {
    const point = points[Math.floor((at - first) / RANGES[range].stepMs)];
    const found = minute.busiest.find((one) => one.tenant === tenant);
    if (!point || !found) continue;
    point.requests += found.requests;
    point.errors += found.errors;
  }
  return points;
}

function addTraffic(sums: Map<TenantId, Traffic>, traffic: readonly Traffic[]): void {
  for (const one of traffic) {
    const sum = sums.get(one.tenant);
    if (sum) {
      sum.requests += one.requests;
      sum.errors += one.errors;
    } else sums.set(one.tenant, one);
  }
  if (sums.size <= MOST_COUNTED) return;
  // Those far behind are forgotten on the way, so that it stays small.
  const kept = busiestOf(sums.values(), MOST_COUNTED / 2);
  sums.clear();
  for (const one of kept) sums.set(one.tenant, one);
}

/** The last step is the one that has begun. */
function timesOf(range: Range, now: number): number[] {
  const { ms, stepMs } = RANGES[range];
  const last = Math.floor(now / stepMs) * stepMs;
  return Array.from({ length: ms / stepMs }, (_, index) => last - ms + (index + 1) * stepMs);
}

function groupsOf({ memory }: Minute): ProcessGroup[] {
  return Object.keys(memory) as ProcessGroup[];
}

function mapped(record: Record<ProcessGroup, number>, by: (value: number) => number): Record<ProcessGroup, number> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, by(value)])) as typeof record;
}
