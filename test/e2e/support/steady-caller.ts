/**
 * A caller under steady load: `new SteadyCaller(url, 'good morning')` asks again and again until it is told to stop.
 * It stands for callers elsewhere, so it is a process and a session of its own that goes first where that is allowed: its
 * own waiting for a core is not the host's slowness.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { setTimeSlice } from '../../../host/shared/time-slice.ts';

/** Pause between two requests: steady, not saturating. */
const PACE_MS = 10;
const TIMEOUT_MS = 10_000;
const ENTRY = fileURLToPath(import.meta.url);
const NICE = -20;
const SLICE_US = 100;

export interface SteadyFigures {
  /** ms, of every request. */
  times: number[];
  p50Ms: number;
  p99Ms: number;
  failures: string[];
}

interface Sample {
  ms: number;
  failure?: string;
}

export class SteadyCaller {
  readonly #process: ChildProcess;
  #samples: Sample[] = [];

  constructor(url: string, answer: string) {
    this.#process = fork(ENTRY, [url, answer], { detached: true, execArgv: [] });
    this.#process.on('message', (sample: Sample) => this.#samples.push(sample));
  }

  get count(): number {
    return this.#samples.length;
  }

  /** Of the requests since the last call. */
  take(): SteadyFigures {
    const samples = this.#samples;
    this.#samples = [];
    const times = samples.map(({ ms }) => ms);
    return {
      times,
      p50Ms: percentile(times, 0.5),
      p99Ms: percentile(times, 0.99),
      failures: samples.flatMap(({ failure }) => failure ?? []),
    };
  }

  async stop(): Promise<void> {
    const ended = once(this.#process, 'exit');
    this.#process.kill('SIGKILL');
    await ended;
  }
}

export function percentile(times: number[], share: number): number {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
}

function ask(agent: http.Agent, url: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const request = http.get(url, { agent, timeout: TIMEOUT_MS }, (response) => {
      let text = `${response.statusCode} `;
      response.setEncoding('utf8').on('data', (piece: string) => {
        text += piece;
      });
      response.on('end', () => resolve(text));
      response.on('error', reject);
    });
    request.on('timeout', () => request.destroy(new Error(`no answer within ${TIMEOUT_MS} ms`)));
    request.on('error', reject);
  });
}

function goFirst(): void {
  try {
    os.setPriority(NICE);
    writeFileSync('/proc/self/autogroup', String(NICE));
    setTimeSlice(process.pid, SLICE_US);
  } catch {
    // Not root, or a kernel without autogroups.
  }
}

async function work(url: string, answer: string): Promise<void> {
  const agent = new http.Agent({ keepAlive: true });
  for (;;) {
    const from = performance.now();
    const text = await ask(agent, url).catch(String);
    const ms = performance.now() - from;
    process.send?.(text === `200 ${answer}` ? { ms } : { ms, failure: text.slice(0, 200) });
    await delay(PACE_MS);
  }
}

if (process.argv[1] === ENTRY) {
  const [url = '', answer = ''] = process.argv.slice(2);
  process.on('disconnect', () => process.exit());
  goFirst();
  void work(url, answer);
}
