/** Weights follow appetites, and appetites what the weights left: together they must not starve anybody. */
import { describe, expect, it } from 'vitest';
import { CpuShare } from '../../host/sandbox/cpu-share.ts';
import { type Appetite, LOWERED, RAISED, WEIGHTS } from '../../host/shared/priority.ts';

const CORES = 2;
const STEP_MS = 100;

interface Tenant {
  /** Share of a core that it would take. */
  wants: number;
  /** s */
  from?: number;
}

/** What a proportional scheduler gives to each within a step, ms: nobody more than wanted, the rest by weight. */
function divide(wanted: number[], weights: number[]): number[] {
  const given = wanted.map(() => 0);
  let open = wanted.map((_, index) => index).filter((index) => (wanted[index] ?? 0) > 0);
  let left = CORES * STEP_MS;
  while (open.length > 0) {
    const total = open.reduce((sum, index) => sum + (weights[index] ?? 0), 0);
    const part = (index: number) => (left * (weights[index] ?? 0)) / total;
    const content = open.filter((index) => (wanted[index] ?? 0) <= part(index));
    if (content.length === 0) {
      for (const index of open) given[index] = part(index);
      break;
    }
    for (const index of content) given[index] = wanted[index] ?? 0;
    left -= content.reduce((sum, index) => sum + (wanted[index] ?? 0), 0);
    open = open.filter((index) => !content.includes(index));
  }
  return given;
}

/** @returns each one's share of a core in the last half of the time, and its appetite at the end */
function run(tenants: Tenant[], seconds: number, weigh: (appetite: Appetite) => number) {
  const states = tenants.map((tenant) => ({ ...tenant, cpu: new CpuShare(), cpuMs: 0, wantedMs: 0, lateMs: 0 }));
  for (let at = 0; at < seconds * 1_000; at += STEP_MS) {
    const wanted = states.map(({ wants, from = 0 }) => (at < from * 1_000 ? 0 : wants * STEP_MS));
    const given = divide(
      wanted,
      states.map(({ cpu }) => weigh(cpu.appetite)),
    );
    states.forEach((state, index) => {
      const got = given[index] ?? 0;
      state.cpuMs += got;
      // A tenant that gets less than it wants never sleeps.
      state.wantedMs += got < (wanted[index] ?? 0) ? STEP_MS : got;
      if (at >= seconds * 500) state.lateMs += got;
      state.cpu.sample(at, state);
    });
  }
  return states.map(({ lateMs, cpu }) => ({ share: lateMs / (seconds * 500), appetite: cpu.appetite }));
}

const shares = (...asked: Parameters<typeof run>) => run(...asked).map(({ share }) => share);

const times = (count: number, tenant: Tenant) => Array.from({ length: count }, () => tenant);

describe.each<[string, (appetite: Appetite) => number]>([
  ['sessions of a host that is root', (appetite) => 1.25 ** -RAISED[appetite]],
  ['sessions of another host', (appetite) => 1.25 ** -LOWERED[appetite]],
  ['cgroups', (appetite) => WEIGHTS[appetite]],
])('by %s', (_, weigh) => {
  it('who wants all the time gets its part, where modest ones come that fill the machine by themselves', () => {
    const [hungry = 0, modest = 0] = shares([{ wants: 1 }, ...times(16, { wants: 0.14, from: 10 })], 60, weigh);
    expect(hungry).toBeGreaterThan(0.1);
    expect(modest).toBeGreaterThan(0.11);
  });

  it('who wants little gets all of it beside those who want everything', () => {
    const [one = 0, , , little] = shares([...times(3, { wants: 1 }), { wants: 0.1 }], 30, weigh);
    expect(little).toBeCloseTo(0.1);
    expect(one).toBeCloseTo(1.9 / 3);
  });

  it('those who loop do not go first, however many they are, and whoever wants little gets it', () => {
    const [little, ...loops] = run([{ wants: 0.05 }, ...times(30, { wants: 1, from: 5 })], 60, weigh);
    expect(little?.share).toBeCloseTo(0.05);
    expect(little?.appetite).toBe('light');
    expect(new Set(loops.map(({ appetite }) => appetite))).toEqual(new Set(['steady']));
  });

  it('those who want alike get alike', () => {
    const all = shares([{ wants: 1, from: 5 }, { wants: 0.45 }, ...times(5, { wants: 0.4 })], 60, weigh);
    expect(Math.min(...all)).toBeGreaterThan(0.2);
    expect(Math.max(...all)).toBeLessThan(0.45);
  });
});
