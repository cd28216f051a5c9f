/**
 * `--against <folder>`: every row of this checkout beside another one, in turn. Rows that put load on one handler run
 * both hosts at once and alternate round by round; the others run whole, one checkout after the other. A machine that
 * drifts moves both sides of a pair.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type LoadResult, median } from './load.ts';
import type { Starter, Subject } from './subject.ts';
import { type RowResult, round } from './table.ts';

/** Rounds of a row that runs both hosts at once, and runs of a row that runs whole. */
export const PAIRED_ROUNDS = 9;
const PAIRED_RUNS = 3;
/** A figure may be this much worse. */
const TOLERANCE = 1.03;

/** A handler, and the bindings that it is deployed with. */
export interface Worker {
  code: string;
  bindings: Record<string, unknown>;
  /** Of `startTurnpike`. */
  options?: object;
}

export interface Pair {
  row: string;
  figure: string;
  /** Medians. */
  before: number;
  now: number;
  /** Of each pair, now ÷ before; for rates before ÷ now: above 1 is worse. */
  ratios: number[];
}

/** The other checkout: hosts and rows of it run in processes of their own, with its own code and packages. */
export class OtherCheckout {
  readonly pairs: Pair[] = [];
  readonly skipped: string[] = [];
  readonly #folder: string;
  /** The host of the last row stays for the next one with the same handler, as ours does. */
  #host: { code: string; subject: Subject } | undefined;

  /** @param folder a checkout whose packages are installed */
  constructor(folder: string) {
    this.#folder = path.resolve(folder);
  }

  starter({ code, bindings, options = {} }: Worker): Starter {
    return {
      name: 'before',
      missing: () => undefined,
      start: async () => {
        if (this.#host?.code !== code) {
          await this.stop();
          const child = this.#fork();
          const { origin, pid } = (await ask(child, { code, bindings, options })) as { origin: string; pid: number };
          this.#host = { code, subject: { name: 'before', origin, pids: () => [pid], stop: () => end(child) } };
        }
        return { ...this.#host.subject, stop: async () => {} };
      },
    };
  }

  /** Stops its host. */
  async stop(): Promise<void> {
    await this.#host?.subject.stop();
    this.#host = undefined;
  }

  /** @returns undefined where that checkout has no such row */
  async run(row: string): Promise<RowResult | undefined> {
    const child = this.#fork();
    try {
      return (await ask(child, { row })) as RowResult | undefined;
    } finally {
      await end(child);
    }
  }

  /** Of a row that ran both at once. */
  record(row: string, now: LoadResult[], before: LoadResult[]): void {
    for (const [figure, key, rate] of [
      ['CPU µs', 'cpuMicros', false],
      ['req/s', 'perSecond', true],
    ] as const) {
      const pick = (results: LoadResult[]) => results.map((result) => result[key]);
      this.add(row, figure, pick(now), pick(before), rate);
    }
  }

  /** Runs a row of both checkouts whole, several times in turn. */
  async runPairs(row: string, run: () => Promise<RowResult>): Promise<void> {
    const results: { now: RowResult; before: RowResult }[] = [];
    for (let turn = 0; turn < PAIRED_RUNS; turn++) {
      const before = await this.run(row);
      if (!before) {
        this.skipped.push(`${row}: the other checkout has no such row`);
        return;
      }
      results.push({ before, now: await run() });
    }
    for (const { subject, cells } of results[0]?.now.figures ?? []) {
      for (const column of Object.keys(cells).filter(isMeasured)) {
        const of = (result: RowResult) =>
          number(result.figures.find((figure) => figure.subject === subject)?.cells[column]);
        const now = results.map((result) => of(result.now));
        const before = results.map((result) => of(result.before));
        if ([...now, ...before].every((value) => value > 0))
          this.add(row, `${subject}: ${column}`, now, before, column.includes('/s'));
      }
    }
  }

  /** @param rate more is better */
  add(row: string, figure: string, now: number[], before: number[], rate: boolean): void {
    const ratios = now.map((value, index) => {
      const ratio = value / (before[index] ?? Number.NaN);
      return rate ? 1 / ratio : ratio;
    });
    this.pairs.push({ row, figure, before: median(before), now: median(now), ratios });
  }

  #fork(): ChildProcess {
    const entry = fileURLToPath(new URL('other-checkout.ts', import.meta.url));
    return fork(entry, [this.#folder], {
      cwd: this.#folder,
      // With what the launcher loads into this process the child would not wait for questions.
      execArgv: [],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
  }
}

/** Peers are measured in both checkouts too, and say nothing about ours. */
const PEERS = /^(bare workerd|workerd|HAProxy|nginx|Caddy|Miniflare|stock)/;

function isMeasured(column: string): boolean {
  return !/÷|errors|failed|worst|p99/.test(column);
}

function number(cell = ''): number {
  return Number(cell.replaceAll(',', ''));
}

/** Worse by more than the tolerance in the median, and three quarters of the pairs say so. */
export function isWorse({ ratios }: Pair): boolean {
  const sorted = ratios.toSorted((a, b) => a - b);
  return median(ratios) > TOLERANCE && (sorted[Math.floor(sorted.length / 4)] ?? 0) > 1;
}

export function pairTable(pairs: Pair[]): string {
  const lines = pairs
    .filter(({ figure }) => !PEERS.test(figure))
    .map((pair) => {
      const spread = `${Math.min(...pair.ratios).toFixed(2)} to ${Math.max(...pair.ratios).toFixed(2)}`;
      const verdict = isWorse(pair) ? '**worse**' : '';
      return `| ${pair.row} | ${pair.figure} | ${round(pair.before)} | ${round(pair.now)} | ${median(pair.ratios).toFixed(3)} | ${spread} | ${verdict} |`;
    });
  return [
    '| row | figure | before | now | cost ÷ before | of the pairs | |',
    '| --- | --- | ---: | ---: | ---: | --- | --- |',
    ...lines,
  ].join('\n');
}

/** @throws Error with what the child said was wrong, or when it ended */
async function ask(child: ChildProcess, question: unknown): Promise<unknown> {
  child.send(question as object);
  const ended = once(child, 'exit').then(([code]) => ({ error: `the other checkout ended with ${code}` }));
  const answered = once(child, 'message').then(([message]) => message as { result?: unknown; error?: string });
  const { result, error } = { result: undefined, error: undefined, ...(await Promise.race([answered, ended])) };
  if (error !== undefined) {
    await end(child);
    throw new Error(error);
  }
  return result;
}

/** The child stops its host when nobody asks it any more. */
async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return;
  const exited = once(child, 'exit');
  if (child.connected) child.disconnect();
  await exited;
}
