/**
 * `npm run soak -- --hostile [--minutes 60] [--seed 1]`: the gallery of hostile tenants and floods of callers who pay
 * nothing, at random, against one host. Shows how far the memory of each process of the host grows, whether it is given
 * back, and whether a neighbour had every request answered. Ends with 1 if one of these is not so.
 */
import os from 'node:os';
import { COMPUTING, REACHING, STORING, SWELLING, TALKING } from '../e2e/hostile-tenants.ts';
import { deploy, mppFetch } from '../e2e/support/callers.ts';
import { Flooding, forgedPayment, LARGE, large, MB, residentOf } from '../e2e/support/flooding.ts';
import { startHost, type TestHost } from '../e2e/support/host.ts';
import { SteadyCaller } from '../e2e/support/steady-caller.ts';
import { ownProcesses } from './own-processes.ts';

/** A process of the host may grow by this while it is attacked. */
const GROWTH_BYTES = 150 * MB;
/** It gives memory back within this after the last attack, ms. */
const BACK_MS = 60_000;
/** Of what it grew by, it may keep this. */
const KEPT_BYTES = 50 * MB;
const SAMPLE_MS = 500;
const ATTACK_MS = 20_000;
const PROGRESS_MS = 60_000;

export interface HostileSoak {
  minutes: number;
  random(below: number): number;
}

interface Memory {
  name: string;
  before: number;
  most: number;
}

/** @returns the number of faults */
export async function hostileSoak({ minutes, random }: HostileSoak): Promise<number> {
  const host = await startHost({
    builtins: ['pay', 'deals'],
    flags: { 'log-level': 'silent', 'runtime-cpu-stall-ms': '2000', 'runtime-start-timeout-ms': '5000' },
  });
  let caller: SteadyCaller | undefined;
  try {
    const attacks = [...(await deployGallery(host)), ...floods(host)];
    await deploy(mppFetch(host.network, 1), host.url, {
      slug: 'neighbour',
      code: `export default { fetch: () => new Response('good morning') }`,
    });
    // Each once, so that what is only made at the first use is not taken for growth.
    for (const { run } of attacks) await run();
    const memory = new Map<number, Memory>();
    sample(host, memory);
    for (const one of memory.values()) one.most = one.before;
    caller = new SteadyCaller(`${host.url}/neighbour/`, 'good morning');
    const sampling = setInterval(() => sample(host, memory), SAMPLE_MS);
    const begun = performance.now();
    const end = begun + minutes * 60_000;
    let made = 0;
    let told = begun;
    while (performance.now() < end) {
      await attacks[random(attacks.length)]?.run();
      made += 1;
      if (performance.now() - told < PROGRESS_MS) continue;
      told = performance.now();
      console.log(`${Math.round((told - begun) / 1_000)} s: ${made} attacks, load ${os.loadavg()[0]?.toFixed(1)}`);
    }
    const kept = await keptAfter(memory);
    clearInterval(sampling);
    const { failures, times, p50Ms, p99Ms } = caller.take();
    return report({ attacks: attacks.length, made, memory, kept, failures, asked: times.length, p50Ms, p99Ms });
  } finally {
    await caller?.stop();
    await host.stop();
  }
}

interface Attack {
  run(): Promise<void>;
}

async function deployGallery(host: TestHost): Promise<Attack[]> {
  const owner = mppFetch(host.network, 0);
  // What breaks while it loads is refused by the deploy; what needs a module beside the code or its own way of attack
  // is for the tests.
  const tenants = [COMPUTING, SWELLING, TALKING, REACHING, STORING]
    .flat()
    .filter(({ attack, code, name }) => !attack && !code.includes('loop.wasm') && !name.includes('while loading'));
  const attacks: Attack[] = [];
  for (const [index, tenant] of tenants.entries()) {
    const { bindings = {}, secrets = {}, compatibilityFlags = [] } = tenant.deployment ?? {};
    const slug = `hostile-${index}`;
    const deployed = await deploy(owner, host.url, { slug, code: tenant.code, bindings, secrets, compatibilityFlags })
      .then(() => true)
      .catch((error: Error) => {
        console.log(`${tenant.name}: ${error.message.slice(0, 200)}`);
        return false;
      });
    if (deployed) attacks.push({ run: () => call(host, slug) });
  }
  console.log(`${attacks.length} of ${tenants.length} hostile tenants are deployed`);
  return attacks;
}

async function call(host: TestHost, slug: string): Promise<void> {
  const signal = AbortSignal.timeout(ATTACK_MS);
  await Promise.all(
    Array.from({ length: 4 }, () =>
      fetch(`${host.url}/${slug}/`, { signal })
        .then((answer) => answer.body?.pipeTo(new WritableStream(), { signal }))
        .catch(() => undefined),
    ),
  );
}

function floods(host: TestHost): Attack[] {
  const flood = (make: () => Promise<Flooding>): Attack => ({
    run: async () => {
      const flooding = await make();
      const end = performance.now() + ATTACK_MS;
      while (!flooding.isOver && flooding.statuses.length < 20 && performance.now() < end) await pause();
      flooding.stop();
    },
  });
  const chunks = Buffer.from('1\r\na\r\n'.repeat(5_000));
  const unfinished = 'POST /_admin/deploy HTTP/1.1\r\nhost: localhost\r\ncontent-length: 65536';
  const chunked = 'POST /pay/sign-up HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked';
  return [
    flood(async () => new Flooding(host, large('/_admin/deploy'), 300)),
    flood(async () => new Flooding(host, large('/pay/sign-up'), 100)),
    flood(async () => new Flooding(host, large('/deals/v1/query'), 100)),
    flood(
      async () =>
        new Flooding(host, large('/_admin/deploy', `payment-signature: ${await forgedPayment(host)}\r\n`), 200),
    ),
    flood(async () => new Flooding(host, { head: unfinished, piece: LARGE.subarray(0, 64_000), bytes: 64_000 }, 1_000)),
    flood(async () => new Flooding(host, { head: chunked, piece: chunks, bytes: MB }, 200)),
  ];
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 50));

/** Resident memory of each process of the host. */
function sample(host: TestHost, memory: Map<number, Memory>): void {
  for (const [pid, name] of ownProcesses(host.pid)) {
    try {
      const bytes = residentOf(pid);
      const known = memory.get(pid);
      if (known) known.most = Math.max(known.most, bytes);
      else memory.set(pid, { name, before: bytes, most: bytes });
    } catch {
      // It has ended.
    }
  }
}

/** @returns what each process holds of its growth a minute after the last attack, bytes */
async function keptAfter(memory: Map<number, Memory>): Promise<Map<number, number>> {
  const end = performance.now() + BACK_MS;
  const kept = new Map<number, number>();
  const look = () => {
    for (const [pid, { before }] of memory) {
      try {
        kept.set(pid, residentOf(pid) - before);
      } catch {
        kept.delete(pid);
      }
    }
    return [...kept.values()].every((bytes) => bytes < KEPT_BYTES);
  };
  while (!look() && performance.now() < end) await pause();
  return kept;
}

interface Result {
  attacks: number;
  made: number;
  memory: Map<number, Memory>;
  kept: Map<number, number>;
  failures: string[];
  asked: number;
  p50Ms: number;
  p99Ms: number;
}

function report({ attacks, made, memory, kept, failures, asked, p50Ms, p99Ms }: Result): number {
  const mb = (bytes: number) => `${Math.round(bytes / MB)} MB`;
  console.log(`${made} attacks of ${attacks} kinds`);
  console.log(
    `neighbour: ${asked} requests, ${failures.length} failed, p50 ${p50Ms.toFixed(1)}, p99 ${p99Ms.toFixed(1)} ms`,
  );
  let faults = failures.length > 0 ? 1 : 0;
  if (faults > 0) console.log(`fault: the neighbour met ${[...new Set(failures)].slice(0, 5).join('; ')}`);
  for (const [pid, { name, before, most }] of memory) {
    const growth = most - before;
    const left = kept.get(pid);
    console.log(
      `${name} (${pid}): ${mb(before)}, at most + ${mb(growth)}, a minute later ${left === undefined ? 'ended' : `+ ${mb(left)}`}`,
    );
    if (growth > GROWTH_BYTES || (left ?? 0) > KEPT_BYTES) {
      console.log(`fault: ${name} grew by more than ${mb(GROWTH_BYTES)} or kept more than ${mb(KEPT_BYTES)}`);
      faults += 1;
    }
  }
  return faults;
}
