/** Rows about size: memory idle and per tenant, thousands of registered tenants, a hundred warm ones, bad neighbours. */
import { cpSync, lstatSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { deploy, mppFetch } from '../../e2e/support/callers.ts';
import { startHost, type TestHost } from '../../e2e/support/host.ts';
import { seedDeployments } from '../../e2e/support/seed.ts';
import { SteadyCaller, type SteadyFigures } from '../../e2e/support/steady-caller.ts';
import { until } from '../../e2e/support/until.ts';
import { collectGarbage } from '../garbage.ts';
import { type LoadResult, load, median, medianOf } from '../load.ts';
import { startTurnpike } from '../peers/turnpike.ts';
import { commandOf, privateBytes, privateOf, processTree } from '../processes.ts';
import { judge, type RowResult, round } from '../table.ts';
import { HELLO } from '../workers.ts';
import { requestMemory } from './request-memory.ts';

const MB = 1e6;
const WARM = 200;
const ROUNDS = 3;

export function scaleRows(): { id: string; run(waits: () => void): Promise<RowResult>; alone?: boolean }[] {
  return [
    {
      id: 'memory',
      run(waits) {
        waits();
        return memory();
      },
    },
    { id: 'request-memory', run: requestMemory },
    { id: 'registered', run: registered },
    { id: 'warm', run: warm },
    { id: 'fairness', run: fairness, alone: true },
  ];
}

const WORKERD = /workerd serve/;

function instanceBytes(root: number, program: RegExp): number {
  return processTree([root])
    .filter((pid) => program.test(commandOf(pid)))
    .reduce((sum, pid) => sum + privateOf(pid), 0);
}

/** By then Node has collected what a start leaves behind, once nothing happens any more. */
const COLLECTED_SECONDS = 20;

/**
 * Memory when nothing changes any more, as a rule: what a start leaves behind goes with the next collection of garbage,
 * and a database's engine ends when nobody asks it. The median of the last samples, since parts come and go.
 */
async function settled(bytes: () => number, seconds: number): Promise<number> {
  const samples: number[] = [];
  for (let sample = 0; sample < seconds; sample++) {
    await delay(1_000);
    samples.push(bytes());
  }
  return median(samples.slice(-3));
}

const WITH_DB = `export default { async fetch(r, env) { return Response.json(await env.DB.prepare('SELECT 1 AS one').first()); } };`;

async function memory(): Promise<RowResult> {
  const host = await startHost({ flags: { 'log-level': 'error' } });
  try {
    const pay = mppFetch(host.network, 0);
    const idle = await settled(() => privateBytes([host.pid]), COLLECTED_SECONDS + 3);
    // One process waits for the next cold start, before and after.
    const waiting = instanceBytes(host.pid, WORKERD);
    await deploy(pay, host.url, { slug: 'plain', code: HELLO });
    await (await fetch(`${host.url}/plain/`)).text();
    // The instance that tried the code out ends meanwhile.
    const plain = (await settled(() => instanceBytes(host.pid, WORKERD), 8)) - waiting;
    await deploy(pay, host.url, { slug: 'with-db', code: WITH_DB, bindings: { d1: true } });
    await (await fetch(`${host.url}/with-db/`)).text();
    const busy = instanceBytes(host.pid, /d1\.mjs/);
    const sql = await settled(() => instanceBytes(host.pid, /d1\.mjs/), 25);
    return {
      id: 'memory',
      title: 'Private memory, settled',
      figures: [
        { subject: 'host, everything idle', cells: { MB: round(idle / MB) } },
        { subject: 'warm idle tenant', cells: { MB: round(plain / MB) } },
        { subject: 'its database, just asked', cells: { MB: round(busy / MB) } },
        { subject: 'its database, idle', cells: { MB: round(sql / MB) } },
      ],
      targets: [
        judge('host', '≤ 350 MB', [idle / MB]),
        judge('warm idle tenant', '≤ 15 MB', [plain / MB]),
        judge('its idle database', '≤ 15 MB', [sql / MB]),
      ],
      skipped: [],
    };
  } finally {
    await host.stop();
  }
}

/** Makes a data folder with one deployment. */
async function folderWithOne(): Promise<string> {
  const data = mkdtempSync(path.join(tmpdir(), 'tp-scale-'));
  const host = await startHost({ data, flags: { 'log-level': 'error' } });
  await deploy(mppFetch(host.network, 0), host.url, { slug: 'bench', code: HELLO });
  await host.stop();
  return data;
}

/** Starts a host over a copy of the folder with so many tenants, and tells how long that took. */
async function startWith(one: string, count: number): Promise<{ count: number; host: TestHost; startMs: number }> {
  const data = mkdtempSync(path.join(tmpdir(), 'tp-scale-'));
  cpSync(one, data, { recursive: true, filter: (from) => !lstatSync(from).isSocket() });
  await seedDeployments(data, 'bench', count);
  const from = performance.now();
  const host = await startHost({ data, flags: { 'log-level': 'error' } });
  return { count, host, startMs: performance.now() - from };
}

async function registered(waits: () => void): Promise<RowResult> {
  const one = await folderWithOne();
  const started: Awaited<ReturnType<typeof startWith>>[] = [];
  let results: LoadResult[] = [];
  let memory: number[] = [];
  try {
    for (const count of [10, 100, 1_000, 10_000]) started.push(await startWith(one, count));
    const asked = started.map(
      ({ host }) =>
        (seconds: number) =>
          load({ url: `${host.url}/bench/`, seconds }, [host.pid]),
    );
    const rounds: LoadResult[][] = asked.map(() => []);
    for (const ask of asked) await ask(1);
    for (let round = 0; round < ROUNDS; round++) {
      for (const [index, ask] of asked.entries()) rounds[index]?.push(await ask(2));
    }
    results = rounds.map(medianOf);
    waits();
    await delay(COLLECTED_SECONDS * 1_000);
    for (const { host } of started) await collectGarbage(host.pid);
    // The tenant's own instance is as large whoever else is registered, and by now it has ended or not.
    memory = started.map(({ host }) => privateBytes([host.pid]) - instanceBytes(host.pid, WORKERD));
  } finally {
    rmSync(one, { recursive: true, force: true });
    for (const { host } of started) {
      await host.stop();
      rmSync(host.data, { recursive: true, force: true });
    }
  }
  const runs = results.map((result, index) => ({
    result,
    count: started[index]?.count ?? 0,
    startMs: started[index]?.startMs ?? 0,
    bytes: memory[index] ?? 0,
  }));
  const [few, many] = [runs.at(0), runs.at(-1)];
  if (!few || !many) throw new Error('nothing measured');
  const growth = (many.bytes - few.bytes) / MB;
  const slower = many.result.cpuMicros / few.result.cpuMicros;
  return {
    id: 'registered',
    title: 'Registered tenants (one of them under load)',
    figures: runs.map(({ count, startMs, bytes, result }) => ({
      subject: `${count} tenants`,
      cells: {
        'start ms': round(startMs),
        'host’s private MB': round(bytes / MB),
        'req/s': round(result.perSecond),
        'CPU µs': round(result.cpuMicros),
      },
    })),
    targets: [
      judge('start with 10,000', '≤ 3000 ms', [many.startMs]),
      judge('memory growth', '≤ 50 MB', [growth]),
      judge('CPU a request with 10,000', '≤ 1.15 × with 10', [slower]),
    ],
    skipped: [],
  };
}

async function warm(): Promise<RowResult> {
  const data = await folderWithOne();
  try {
    await seedDeployments(data, 'bench', WARM);
    const host = await startHost({ data, flags: { 'log-level': 'error' } });
    try {
      const from = performance.now();
      const times: number[] = [];
      for (let next = 0; next < WARM; next++) {
        const at = performance.now();
        const response = await fetch(`${host.url}/seed-${next}/`);
        if ((await response.text()) !== 'hello') throw new Error(`seed-${next} answered ${response.status}`);
        times.push(performance.now() - at);
      }
      const seconds = (performance.now() - from) / 1000;
      const bytes = privateBytes([host.pid]);
      times.sort((a, b) => a - b);
      return {
        id: 'warm',
        title: `${WARM} warm tenants at once`,
        figures: [
          {
            subject: 'Turnpike',
            cells: {
              'private MB': round(bytes / MB),
              'cold starts/s': round(WARM / seconds),
              'cold p50 ms': round(times[WARM >> 1] ?? 0),
              'cold p99 ms': round(times[Math.floor(WARM * 0.99)] ?? 0),
            },
          },
        ],
        targets: [judge('memory', '≤ 8000 MB', [bytes / MB])],
        skipped: [],
      };
    } finally {
      await host.stop();
    }
  } finally {
    rmSync(data, { recursive: true, force: true });
  }
}

const NEIGHBOURS: Record<string, { code: string; bindings?: Record<string, boolean> }> = {
  'busy loop': {
    code: `export default { fetch() { const end = Date.now(); for (let i = 0; ; i++) if (i < 0) return new Response('x'); } };`,
  },
  'memory bomb': {
    code: `const hold = []; export default { fetch() { for (;;) hold.push(new Uint8Array(1e6).fill(1)); } };`,
  },
  'runaway query': {
    code: `export default { async fetch(r, env) { await env.DB.prepare('WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT count(*) FROM c').first(); return new Response('x'); } };`,
    bindings: { d1: true },
  },
};

const CALLS = 1_000;
/** Between two calls to a bad neighbour. */
const PAUSE_MS = 20;

/** The figures of the next calls. */
async function calls(caller: SteadyCaller): Promise<SteadyFigures> {
  caller.take();
  await until(() => caller.count >= CALLS || undefined);
  return caller.take();
}

async function fairness(): Promise<RowResult> {
  const subject = await startTurnpike(HELLO);
  let caller: SteadyCaller | undefined;
  try {
    const pay = mppFetch(subject.host.network, 1);
    const slugs: string[] = [];
    for (const [name, { code, bindings = {} }] of Object.entries(NEIGHBOURS)) {
      const slug = name.replaceAll(' ', '-');
      slugs.push(slug);
      await deploy(pay, subject.host.url, { slug, code, bindings });
    }
    // Steady calls, far from what the cores can do: what is compared is waiting, not throughput.
    caller = new SteadyCaller(`${subject.origin}/`, 'hello');
    const alone = await calls(caller);
    const stop = new AbortController();
    const nuisance = slugs.map(async (slug) => {
      while (!stop.signal.aborted) {
        await fetch(`${subject.host.url}/${slug}/`, { signal: stop.signal }).then(
          (response) => response.text(),
          () => undefined,
        );
        // Bad handlers are measured, not a flood of calls to them.
        await delay(PAUSE_MS);
      }
    });
    await until(async () => {
      const meta = (await (await fetch(`${subject.host.url}/_admin/get/busy-loop`)).json()) as {
        runtime: { state: string };
      };
      return meta.runtime.state === 'warm' ? true : undefined;
    });
    const beside = await calls(caller);
    stop.abort();
    await Promise.all(nuisance);
    const value = beside.p99Ms / alone.p99Ms;
    const figure = (subject: string, { times, p50Ms, p99Ms, failures }: SteadyFigures) => ({
      subject,
      cells: {
        calls: String(times.length),
        'p50 ms': round(p50Ms),
        'p99 ms': round(p99Ms),
        failed: String(failures.length),
      },
    });
    return {
      id: 'fairness',
      title: `A tenant's p99 beside ${slugs.join(', ')}`,
      figures: [figure('alone', alone), figure('beside them', beside)],
      targets: [judge('p99', '≤ 2 × alone', [value]), judge('failed requests', '≤ 0', [beside.failures.length])],
      skipped: [],
    };
  } finally {
    await caller?.stop();
    await subject.stop();
  }
}
