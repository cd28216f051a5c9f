/** Twenty calls with a minute of audio at once: a bounded queue, bounded memory, and neighbours that hardly notice. */
import { readdirSync, readFileSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import {
  type RunningEngine,
  type RunningTenant,
  startEngine,
  startTenant,
  startWorker,
} from '../speech/harness/programs.ts';
import { requestSocket } from '../speech/harness/socket.ts';
import { expectTime, JUDGE_TIMES } from '../times.ts';

const PARAGRAPH =
  'The weather was warm this morning, and many people went to the park to enjoy the sun. The children played with a ball while their parents talked about the news of the day. In the afternoon the family had dinner in a small restaurant near the river. Everyone was happy with the food and the service. They decided to come back again next week. ';
const CALLS = 20;
const JOBS = 1;
const WAITING = 4;
const ENGINE_BYTES = 600 * 1024 * 1024;
const PROGRAM_BYTES = 512 * 1024 * 1024;
/** How long the neighbour is asked, alone and beside the load: longer where its times count. */
const [QUIET_MS, BUSY_MS] = JUDGE_TIMES ? [3_000, 8_000] : [500, 3_000];
/** On a quiet machine a p99 is a fraction of a millisecond, and twice that is still nothing. */
const NOISE_MS = 5;

let engine: RunningEngine;
let tenant: RunningTenant;
let neighbour: RunningTenant;
let sampling: NodeJS.Timeout | undefined;
let leave: AbortController;

// A second try begins with an empty queue.
beforeEach(async () => {
  leave = new AbortController();
  engine = await startEngine({ listen: { jobs: JOBS, waiting: WAITING } });
  tenant = await startTenant(engine);
  neighbour = await startWorker('export default { fetch: () => new Response("hello") }', '127.0.0.1:9');
});

afterEach(async () => {
  clearInterval(sampling);
  leave.abort();
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

function nameOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, 'utf8').trim();
  } catch {
    return '';
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

it('queues, refuses the rest with 429, and stays within its memory', async () => {
  const spoken = await fetch(`${tenant.url}/v1/speak`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ text: PARAGRAPH.repeat(4) }),
  });
  const audio = await spoken.arrayBuffer();
  await neighbourP99(500);
  const before = await neighbourP99(QUIET_MS);

  let most = { engine: 0, programs: 0, running: 0 };
  sampling = setInterval(() => {
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
  const refused: { retryAfter: number; charge: string | null; code: string | undefined }[] = [];
  const others: unknown[] = [];
  const calls = Array.from({ length: CALLS }, async () => {
    const init = { method: 'POST', body: audio, headers: { 'content-type': 'audio/mpeg' }, signal: leave.signal };
    try {
      const response = await fetch(`${tenant.url}/v1/listen`, init);
      const { status, headers } = response;
      const { err_code: code } = (await response.json()) as { err_code?: string };
      const outcome = { retryAfter: Number(headers.get('retry-after')), charge: headers.get('x-charge'), code };
      if (status === 429) refused.push(outcome);
      else others.push({ status, ...outcome });
    } catch (error) {
      if (!leave.signal.aborted) others.push(error);
    }
  });
  const queue = async () => {
    const { json } = await requestSocket(engine.socket, 'GET', '/health');
    return (json as { listen: { queue: { running: number; waiting: number } } }).listen.queue;
  };
  await expect.poll(() => [refused.length, others]).toEqual([CALLS - JOBS - WAITING, []]);
  await expect.poll(queue).toMatchObject({ running: JOBS, waiting: WAITING });
  // decoded by now: the recognizer itself is at work
  await expect.poll(() => childrenOf(engine.pid).map(nameOf)).toEqual(['pocketsphinx_co']);
  const during = await neighbourP99(BUSY_MS);
  expect(await queue()).toMatchObject({ running: JOBS, waiting: WAITING });

  leave.abort();
  await Promise.all(calls);
  clearInterval(sampling);
  await engine.stop();
  const after = await neighbourP99(QUIET_MS);

  expect(others).toEqual([]);
  for (const { charge, retryAfter, code } of refused) {
    expect(charge).toBeNull();
    expect(retryAfter).toBeGreaterThanOrEqual(1);
    expect(code).toBe('TOO_MANY_REQUESTS');
  }
  console.info({ p99Ms: { before, during, after }, most });
  expect(most.running).toBeLessThanOrEqual(JOBS);
  expect(most.engine).toBeLessThan(ENGINE_BYTES);
  expect(most.programs).toBeLessThan(PROGRAM_BYTES);
  expectTime('p99 of the neighbour', during, Math.max(2 * Math.max(before, after), NOISE_MS));
});
