/**
 * `npm run soak -- [--minutes 10] [--seed 1]`: mixed load on tenants with KV, SQL and objects while every process of
 * the host is killed in turn at random. Shows whether an acknowledged write was lost, an answer was wrong, and how
 * long each slug was away after its process's death.
 */
import { parseArgs } from 'node:util';
import { commandOf, processTree } from '../bench/processes.ts';
import { deploy, mppFetch } from '../e2e/support/callers.ts';
import { startHost, type TestHost, until } from '../e2e/support/host.ts';

const HANDLER = `
export default {
  async fetch(request, env) {
    const url = new URL(request.url);
    const id = url.searchParams.get('id') ?? '';
    const kind = url.pathname.slice(1);
    if (kind === 'ready') return new Response('ready');
    if (request.method === 'POST') {
      const value = await request.text();
      if (kind === 'kv') await env.STORE.put(id, value);
      else if (kind === 'r2') await env.BUCKET.put(id, value);
      else {
        await env.DB.prepare('CREATE TABLE IF NOT EXISTS t (id TEXT PRIMARY KEY, v TEXT)').run();
        await env.DB.prepare('INSERT OR REPLACE INTO t (id, v) VALUES (?, ?)').bind(id, value).run();
      }
      return new Response('kept');
    }
    if (kind === 'kv') return answer(await env.STORE.get(id));
    if (kind === 'r2') return answer(await (await env.BUCKET.get(id))?.text());
    return answer((await env.DB.prepare('SELECT v FROM t WHERE id = ?').bind(id).first())?.v);
  },
};
const answer = (value) => value == null ? new Response('none', { status: 404 }) : new Response(value);
`;

const SLUGS = ['soak-a', 'soak-b', 'soak-c'];
const KINDS = ['kv', 'd1', 'r2'];
const WRITERS = 2;
const KILL_EVERY_MS = 4_000;
const TIMEOUT_MS = 15_000;

const VICTIMS: Record<string, RegExp | undefined> = {
  edge: /host\/edge\/main/,
  storage: /host\/storage\/main/,
  egress: /host\/egress\/main/,
  workerd: /workerd serve/,
  sql: /sql\.mjs/,
  chain: /^\S*anvil /,
  supervisor: undefined,
};

const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '10' }, seed: { type: 'string', default: '1' } },
});
let state = Number(values.seed);
/** The same kills for the same seed. */
function random(below: number): number {
  state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0;
  return (state >>> 8) % below;
}

const call = (url: string, init: RequestInit = {}) => fetch(url, { ...init, signal: AbortSignal.timeout(TIMEOUT_MS) });

let host: TestHost = await startHost({ flags: { 'log-level': 'silent' } });
const pay = mppFetch(host.network, 0);
for (const slug of SLUGS) {
  await deploy(pay, host.url, { slug, code: HANDLER, bindings: { kv: true, d1: true, r2: true } });
}

const kept = new Map<string, string>();
const counts = { written: 0, refused: 0, read: 0, wrong: 0, unread: 0 };
const end = performance.now() + Number(values.minutes) * 60_000;
const running = () => performance.now() < end;

async function write(slug: string, kind: string, lane: number): Promise<void> {
  for (let next = 0; running(); next++) {
    const place = `${slug}/${kind}?id=${lane}-${next}`;
    const value = `${slug} ${kind} ${lane} ${next} ${'x'.repeat(random(2_000))}`;
    const response = await call(`${host.url}/${place}`, { method: 'POST', body: value }).catch(() => undefined);
    const text = await response?.text().catch(() => '');
    if (response?.status === 200 && text === 'kept') {
      kept.set(place, value);
      counts.written += 1;
    } else {
      counts.refused += 1;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

async function check(place: string, value: string): Promise<void> {
  const response = await call(`${host.url}/${place}`).catch(() => undefined);
  const text = await response?.text().catch(() => undefined);
  if (response === undefined || response.status >= 500 || text === undefined) counts.unread += 1;
  else if (response.status !== 200 || text !== value) {
    counts.wrong += 1;
    console.error(`wrong: ${place} answered ${response.status} ${text.slice(0, 80)}`);
  } else counts.read += 1;
}

async function read(): Promise<void> {
  while (running()) {
    const entries = [...kept];
    const entry = entries[random(Math.max(1, entries.length))];
    if (entry) await check(...entry);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const away: Record<string, number[]> = {};
async function kill(): Promise<void> {
  const names = Object.keys(VICTIMS);
  for (let turn = 0; running(); turn++) {
    await new Promise((resolve) => setTimeout(resolve, KILL_EVERY_MS));
    const name = names[turn % names.length] ?? 'edge';
    const pattern = VICTIMS[name];
    let from = performance.now();
    if (pattern === undefined) {
      await host.kill();
      from = performance.now();
      host = await host.restart();
    } else {
      const pids = processTree([host.pid]).filter((pid) => pid !== host.pid && pattern.test(commandOf(pid)));
      const victim = pids[random(Math.max(1, pids.length))];
      if (victim === undefined) continue;
      try {
        process.kill(victim, 'SIGKILL');
      } catch {
        continue;
      }
      from = performance.now();
    }
    for (const slug of SLUGS) {
      await until(
        async () =>
          (await call(`${host.url}/${slug}/ready`).catch(() => undefined))?.status === 200 ? true : undefined,
        60_000,
      );
    }
    away[name] = [...(away[name] ?? []), performance.now() - from];
  }
}

const lanes = SLUGS.flatMap((slug) =>
  KINDS.flatMap((kind) => Array.from({ length: WRITERS }, (_, lane) => write(slug, kind, lane))),
);
await Promise.all([...lanes, read(), kill()]);

// Whatever was acknowledged is there, after a last restart too.
await host.kill();
host = await host.restart();
const before = { ...counts };
let missing = 0;
for (const [place, value] of kept) {
  const answer = await until(async () => {
    const response = await call(`${host.url}/${place}`).catch(() => undefined);
    return response && response.status < 500 ? { status: response.status, text: await response.text() } : undefined;
  }, 60_000);
  if (answer.status !== 200 || answer.text !== value) missing += 1;
}
const { rmSync } = await import('node:fs');
await host.stop();
rmSync(host.data, { recursive: true, force: true });

console.log(`\nacknowledged writes  ${before.written}, lost or torn ${missing}`);
console.log(`refused writes       ${before.refused} (while something was away)`);
console.log(`reads under load     ${before.read} right, ${before.wrong} wrong, ${before.unread} not answered`);
for (const [name, times] of Object.entries(away)) {
  const sorted = times.sort((a, b) => a - b);
  const ms = (value: number | undefined) => `${Math.round(value ?? 0)} ms`;
  console.log(
    `killed ${name.padEnd(11)} ${String(times.length).padStart(4)} times; all slugs serve again after ${ms(sorted[sorted.length >> 1])} (worst ${ms(sorted.at(-1))})`,
  );
}
process.exit(missing > 0 || before.wrong > 0 ? 1 : 0);
