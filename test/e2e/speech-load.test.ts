/** Twenty calls with a minute of audio at once: a bounded queue, bounded memory, and neighbours that hardly notice. */
import { readdirSync, readFileSync } from 'node:fs';
import { Agent, fetch } from 'undici';
import { afterAll, beforeAll, expect, it } from 'vitest';
import {
  type RunningEngine,
  type RunningTenant,
  startEngine,
  startTenant,
  startWorker,
} from '../speech/harness/programs.ts';

const PARAGRAPH =
  'The weather was warm this morning, and many people went to the park to enjoy the sun. The children played with a ball while their parents talked about the news of the day. In the afternoon the family had dinner in a small restaurant near the river. Everyone was happy with the food and the service. They decided to come back again next week. ';
const CALLS = 20;
const JOBS = 1;
const WAITING = 1;
const ENGINE_BYTES = 600 * 1024 * 1024;
const PROGRAM_BYTES = 512 * 1024 * 1024;
/** The work is low in priority: on a machine that does other things it takes its time. */
const PATIENCE_MS = 560_000;
/** On a quiet machine a p99 is a fraction of a millisecond, and twice that is still nothing. */
const NOISE_MS = 5;

const patient = new Agent({ headersTimeout: PATIENCE_MS, bodyTimeout: PATIENCE_MS });

let engine: RunningEngine;
let tenant: RunningTenant;
let neighbour: RunningTenant;

beforeAll(async () => {
  engine = await startEngine({ listen: { jobs: JOBS, waiting: WAITING }, limits: { jobSeconds: PATIENCE_MS / 1000 } });
  tenant = await startTenant(engine, { UPSTREAM_TIMEOUT_MS: String(PATIENCE_MS) });
  neighbour = await startWorker('export default { fetch: () => new Response("hello") }', '127.0.0.1:9');
});

afterAll(async () => {
  await neighbour?.stop();
  await tenant?.stop();
  await engine?.stop();
});

/** 99th percentile of the neighbour's answers, ms. */
async function neighbourP99(ms: number): Promise<number> {
  const times: number[] = [];
  const until = performance.now() + ms;
  while (performance.now() < until) {
    const started = performance.now();
    await (await fetch(neighbour.url)).text();
    times.push(performance.now() - started);
  }
  return times.sort((a, b) => a - b)[Math.floor(times.length * 0.99)] ?? Number.POSITIVE_INFINITY;
}

/** Memory of its own, in bytes. */
function memory(pid: number): number {
  try {
    return Number(/^RssAnon:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1024;
  } catch {
    return 0;
  }
}

function childrenOf(pid: number): number[] {
  return readdirSync(`/proc/${pid}/task`).flatMap((thread) => {
    try {
      return readFileSync(`/proc/${pid}/task/${thread}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
    } catch {
      return [];
    }
  });
}

it('queues, refuses the rest with 429, and stays within its memory', { timeout: 580_000 }, async () => {
  const spoken = await fetch(`${tenant.url}/v1/speak`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: PARAGRAPH.repeat(3) }),
  });
  const audio = await spoken.arrayBuffer();
  await neighbourP99(500);
  const before = await neighbourP99(3000);

  let most = { engine: 0, programs: 0, running: 0 };
  const sampling = setInterval(() => {
    const programs = childrenOf(engine.pid);
    most = {
      engine: Math.max(most.engine, memory(engine.pid)),
      programs: Math.max(
        most.programs,
        programs.reduce((sum, pid) => sum + memory(pid), 0),
      ),
      running: Math.max(most.running, programs.length),
    };
  }, 100);
  const calls = Array.from({ length: CALLS }, async () => {
    const response = await fetch(`${tenant.url}/v1/listen`, {
      method: 'POST',
      dispatcher: patient,
      body: audio,
      headers: { 'content-type': 'audio/mpeg' },
    });
    const { status, headers } = response;
    const body = (await response.json()) as { metadata?: { duration: number }; err_code?: string };
    return { status, charge: headers.get('x-charge'), retryAfter: Number(headers.get('retry-after')), body };
  });
  const during = await neighbourP99(8000);
  const outcomes = await Promise.all(calls);
  clearInterval(sampling);
  const after = await neighbourP99(3000);

  const served = outcomes.filter(({ status }) => status === 200);
  const refused = outcomes.filter(({ status }) => status === 429);
  expect(served).toHaveLength(JOBS + WAITING);
  expect(refused).toHaveLength(CALLS - JOBS - WAITING);
  for (const { charge, body } of served) {
    expect(body.metadata?.duration).toBeGreaterThan(55);
    expect(Number(charge)).toBeCloseTo((body.metadata?.duration ?? 0) / 10_000, 5);
  }
  for (const { charge, retryAfter, body } of refused) {
    expect(charge).toBeNull();
    expect(retryAfter).toBeGreaterThanOrEqual(1);
    expect(body.err_code).toBe('TOO_MANY_REQUESTS');
  }
  console.info({ p99Ms: { before, during, after }, most });
  expect(most.running).toBeLessThanOrEqual(JOBS);
  expect(most.engine).toBeLessThan(ENGINE_BYTES);
  expect(most.programs).toBeLessThan(PROGRAM_BYTES);
  expect(during).toBeLessThanOrEqual(Math.max(2 * Math.max(before, after), NOISE_MS));
});
