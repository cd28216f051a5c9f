/**
 * A caller under steady load, in a thread of its own, so that what the test does beside it is not in its figures:
 * `new SteadyCaller(url, 'good morning')` asks again and again until it is told to stop.
 */
import http from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';

/** Pause between two requests: steady, not saturating. */
const PACE_MS = 10;
const TIMEOUT_MS = 10_000;

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
  readonly #worker: Worker;
  #samples: Sample[] = [];

  constructor(url: string, answer: string) {
    this.#worker = new Worker(new URL(import.meta.url), { workerData: { url, answer } });
    this.#worker.on('message', (sample: Sample) => this.#samples.push(sample));
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
    await this.#worker.terminate();
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

async function work(): Promise<void> {
  const { url, answer } = workerData as { url: string; answer: string };
  const agent = new http.Agent({ keepAlive: true });
  for (;;) {
    const from = performance.now();
    const text = await ask(agent, url).catch(String);
    const ms = performance.now() - from;
    parentPort?.postMessage(text === `200 ${answer}` ? { ms } : { ms, failure: text.slice(0, 200) });
    await delay(PACE_MS);
  }
}

if (!isMainThread && (workerData as { url?: string } | null)?.url !== undefined) void work();
