/** Measures several subjects under the same load, in turn and several times, so that a drifting machine hits all. */
import { type LoadOptions, type LoadResult, load, medianOf } from './load.ts';
import { type OtherCheckout, PAIRED_ROUNDS } from './pairs.ts';
import type { Starter, Subject } from './subject.ts';
import { type Figure, round } from './table.ts';

/** V8 takes two to three seconds of load until it has compiled what is hot, on every side. */
export const WARM_UP_SECONDS = 3;

/** Of each subject, every round. */
export type Runs = Map<string, LoadResult[]>;

export interface Comparison {
  runs: Runs;
  figures: Figure[];
  skipped: string[];
}

export interface CompareOptions {
  load: Omit<LoadOptions, 'url' | 'seconds'> & { path: string; seconds?: number };
  rounds?: number;
  /** Before the first load, for each subject. */
  prepare?(subject: Subject): Promise<void>;
  /** Load before the first round, s. */
  warmUpSeconds?(subject: Subject): number;
  /** Bytes a second instead of requests. */
  throughput?: boolean;
}

/** Set by `--against`: instead of peers the other checkout is measured, row by row. */
export const pairing: { with?: OtherCheckout; row: string } = { row: '' };

export async function compare(starters: Starter[], options: CompareOptions): Promise<Comparison> {
  if (pairing.with) return await comparePair(pairing.with, starters, options);
  return await compareAll(starters, options);
}

async function comparePair(other: OtherCheckout, starters: Starter[], options: CompareOptions): Promise<Comparison> {
  const ours = starters.find(({ name }) => name === 'Turnpike');
  if (!ours?.worker) {
    other.skipped.push(`${pairing.row}: cannot be run there`);
    return { runs: new Map(), figures: [], skipped: [] };
  }
  const both = [other.starter(ours.worker), ours];
  const comparison = await compareAll(both, { ...options, rounds: PAIRED_ROUNDS });
  const { runs } = comparison;
  other.record(pairing.row, runs.get('Turnpike') ?? [], runs.get('before') ?? []);
  return comparison;
}

async function compareAll(starters: Starter[], options: CompareOptions): Promise<Comparison> {
  const skipped: string[] = [];
  const present: Starter[] = [];
  for (const starter of starters) {
    const reason = starter.missing();
    if (reason) skipped.push(`${starter.name}: ${reason}`);
    else present.push(starter);
  }
  // Side by side: nothing is measured before all are there.
  const starts = await Promise.allSettled(present.map((starter) => starter.start()));
  const subjects = starts.flatMap((start) => (start.status === 'fulfilled' ? [start.value] : []));
  try {
    for (const start of starts) if (start.status === 'rejected') throw start.reason;
    return { ...(await measure(subjects, options)), skipped };
  } finally {
    await Promise.all(subjects.map((subject) => subject.stop()));
  }
}

async function measure(subjects: Subject[], options: CompareOptions): Promise<Omit<Comparison, 'skipped'>> {
  const runs: Runs = new Map();
  const { path, seconds = 2, ...rest } = options.load;
  for (const subject of subjects) {
    await options.prepare?.(subject);
    const warmUp = options.warmUpSeconds?.(subject) ?? WARM_UP_SECONDS;
    await load({ ...rest, url: subject.origin + path, seconds: warmUp }, subject.pids());
  }
  for (let turn = 0; turn < (options.rounds ?? 3); turn++) {
    for (const subject of subjects) {
      const result = await load({ ...rest, url: subject.origin + path, seconds }, subject.pids());
      runs.set(subject.name, [...(runs.get(subject.name) ?? []), result]);
    }
  }
  const results = new Map([...runs].map(([name, list]) => [name, medianOf(list)]));
  const ours = results.get('Turnpike');
  const figures = [...results].map(([subject, result]) => ({
    subject,
    cells: {
      ...(options.throughput ? { 'MB/s': round(result.bytesPerSecond / 1e6) } : { 'req/s': round(result.perSecond) }),
      'p50 ms': round(result.p50Ms),
      'p99 ms': round(result.p99Ms),
      'CPU µs': round(result.cpuMicros),
      'ours ÷ it': ours ? round(ours.perSecond / result.perSecond) : '',
      ...(result.errors > 0 ? { errors: String(result.errors) } : {}),
    },
  }));
  return { figures, runs };
}
