/** What a soak has shown, in figures and as a verdict. */
import os from 'node:os';
import type { IdleTimes, Kills } from './kills.ts';
import type { Load } from './load.ts';

/** Every tenant serves again within this of a process's death, ms, or within so many times what this machine takes without load. */
const AWAY_LIMIT_MS = 2_000;
/** The public port answers again within this of the start of a new supervisor, ms, or so many times. */
const ANSWER_LIMIT_MS = 1_000;
/** Under load, the writers and readers of the soak have most of the processors. */
const LOADED = 3;

export interface SoakResult {
  load: Load;
  kills: Kills;
  /** What a death of the supervisor costs on this machine without load. */
  idle: IdleTimes;
  /** Duration. */
  seconds: number;
  /** Load averages of the machine meanwhile. */
  machineLoads: number[];
  /** Keys written, and how many of them hold something wrong at the end. */
  keys: number;
  wrong: number;
  /** Transactions of which a part is there. */
  halves: number;
  /** By kind, what was to be done later, and how many of it never was. */
  done: Record<string, { acknowledged: number; missing: number }>;
}

/** Prints it. @returns the number of faults */
export function report({ load, kills, idle, seconds, machineLoads, keys, wrong, halves, done }: SoakResult): number {
  const { counts } = load;
  const mean = machineLoads.reduce((sum, one) => sum + one, 0) / Math.max(1, machineLoads.length);
  const rate = Math.round(counts.written / seconds);
  const refusals = [...load.refusals].map(([outcome, count]) => `${count} × ${outcome}`).join(', ');
  print('duration', `${Math.round(seconds)} s on ${os.cpus().length} cores, load average ${mean.toFixed(1)}`);
  print('acknowledged writes', `${counts.written} (${rate} a second)`);
  print('keys at the end', `${keys}, ${wrong} lost, torn or too old`);
  print('transactions', `${halves} half done`);
  for (const [kind, { acknowledged, missing }] of Object.entries(done))
    print(`later: ${kind}`, `${acknowledged} acknowledged, ${missing} not done`);
  print('reads under load', `${counts.read} right, ${counts.wrong} wrong`);
  print('calls to neighbours', `${counts.neighbourly} right`);
  print('refused meanwhile', `${counts.refused} writes, ${counts.unread} reads (${refusals})`);
  print('slowest refusal', `${Math.round(load.longestRefusalMs)} ms, ${counts.hung} hung`);
  for (const [kind, deaths] of kills.away) {
    print(`killed ${kind}`, `${deaths.length} times; a tenant serves again after ${spread(deaths.flat())}`);
  }
  print('public port', `answers after the start of a supervisor in ${spread(kills.answeredAfter)}`);

  print(
    'without load',
    `the public port answers in ${Math.round(idle.answersMs)} ms, a tenant serves in ${Math.round(idle.servesMs)} ms`,
  );
  const awayLimit = Math.round(Math.max(AWAY_LIMIT_MS, LOADED * idle.servesMs));
  const answerLimit = Math.round(Math.max(ANSWER_LIMIT_MS, LOADED * idle.answersMs));
  const faults = {
    'lost, torn or too old': wrong,
    'half done': halves,
    'never done': Object.values(done).reduce((sum, { missing }) => sum + missing, 0),
    'wrong answers': counts.wrong,
    'requests that hung': counts.hung,
    [`tenants away for more than ${awayLimit} ms`]: above([...kills.away.values()].flat(2), awayLimit),
    [`public port away for more than ${answerLimit} ms`]: above(kills.answeredAfter, answerLimit),
  };
  const found = Object.entries(faults).filter(([, count]) => count > 0);
  print('faults', found.map(([name, count]) => `${count} ${name}`).join(', ') || 'none');
  return found.length;
}

function print(name: string, text: string): void {
  console.log(`${name.padEnd(21)} ${text}`);
}

function above(times: number[], limit: number): number {
  return times.filter((ms) => ms > limit).length;
}

function spread(times: number[]): string {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number) =>
    `${Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0)} ms`;
  return `${at(0.5)} (median), ${at(0.95)} (p95), ${at(1)} (worst)`;
}
