/** Load by wrk: requests a second, latencies, errors, and the CPU that the measured processes spent on a request. */
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { cpuSeconds } from './processes.ts';

export interface LoadOptions {
  url: string;
  seconds: number;
  connections?: number;
  method?: string;
  headers?: Record<string, string>;
  /** Bytes of a body of `x`. */
  bodyBytes?: number;
  /** Lua that makes the path of each request, `n` being a counter: `"/put/" .. n`. */
  pathLua?: string;
}

export interface LoadResult {
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
  cpuMicros: number;
  bytesPerSecond: number;
  errors: number;
}

export function hasWrk(): boolean {
  try {
    execFileSync('wrk', ['--version'], { stdio: 'ignore' });
    return true;
  } catch (error) {
    return (error as { status?: number }).status === 1;
  }
}

/** @param roots processes whose CPU counts, with their children */
export async function load(options: LoadOptions, roots: number[]): Promise<LoadResult> {
  const folder = mkdtempSync(path.join(tmpdir(), 'bench-wrk-'));
  try {
    const script = path.join(folder, 'load.lua');
    writeFileSync(script, lua(options));
    const before = cpuSeconds(roots);
    const { stdout } = await promisify(execFile)('wrk', [
      '-t1',
      `-c${options.connections ?? 32}`,
      `-d${options.seconds}s`,
      '--latency',
      '-s',
      script,
      options.url,
    ]);
    const cpu = cpuSeconds(roots) - before;
    const json = /RESULT (\{.*\})/.exec(stdout)?.[1];
    if (!json) throw new Error(`wrk said: ${stdout}`);
    const result = JSON.parse(json) as {
      requests: number;
      micros: number;
      p50: number;
      p99: number;
      bytes: number;
      errors: number;
    };
    return {
      perSecond: result.requests / (result.micros / 1e6),
      p50Ms: result.p50 / 1000,
      p99Ms: result.p99 / 1000,
      cpuMicros: (cpu * 1e6) / Math.max(1, result.requests),
      bytesPerSecond: result.bytes / (result.micros / 1e6),
      errors: result.errors,
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function lua({ method, headers = {}, bodyBytes, pathLua }: LoadOptions): string {
  const lines = [];
  if (method) lines.push(`wrk.method = "${method}"`);
  for (const [name, value] of Object.entries(headers)) lines.push(`wrk.headers["${name}"] = ${JSON.stringify(value)}`);
  if (bodyBytes) lines.push(`wrk.body = string.rep("x", ${bodyBytes})`);
  if (pathLua) lines.push(`n = 0\nfunction request() n = n + 1 return wrk.format(nil, ${pathLua}) end`);
  lines.push(`function done(s, l, r)
  print(string.format('RESULT {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"bytes":%d,"errors":%d}', s.requests, s.duration,
    l:percentile(50), l:percentile(99), s.bytes, s.errors.connect + s.errors.read + s.errors.write + s.errors.status + s.errors.timeout))
end`);
  return `${lines.join('\n')}\n`;
}

export function median(values: number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

/** The medians of several runs, figure by figure. */
export function medianOf(results: LoadResult[]): LoadResult {
  const pick = (key: keyof LoadResult) => median(results.map((result) => result[key]));
  return {
    perSecond: pick('perSecond'),
    p50Ms: pick('p50Ms'),
    p99Ms: pick('p99Ms'),
    cpuMicros: pick('cpuMicros'),
    bytesPerSecond: pick('bytesPerSecond'),
    errors: results.reduce((sum, { errors }) => sum + errors, 0),
  };
}
