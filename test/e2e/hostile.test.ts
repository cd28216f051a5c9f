/**
 * Every hostile tenant of the gallery against the real runtime, edge, egress and storage: it is contained, its owner
 * finds the reason in the log, it comes back, and a neighbour under steady load notices nothing.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { expectTime, JUDGE_TIMES } from '../times.ts';
import {
  COMPUTING,
  type Hostile,
  LIVING,
  OBJECT_BYTES,
  REACHING,
  STORING,
  SWELLING,
  TALKING,
  WASM,
} from './hostile-tenants.ts';
import { RuntimeRig } from './runtime-rig.ts';
import { percentile, SteadyCaller, type SteadyFigures } from './support/steady-caller.ts';
import { until } from './support/until.ts';

/** Longest that any attack may take, ms: limits plus a machine that is busy with other things. */
const CONTAINED_MS = 120_000;
/** What somebody may wait who wakes up at a bad moment: a tick of a kernel with 250 of them a second. */
const TICK_MS = 4;
/** Requests of the neighbour alone, before and after: more where its times count. */
const ALONE = JUDGE_TIMES ? 300 : 30;

let rig: RuntimeRig;
let neighbour: SteadyCaller;
const beside: SteadyFigures[] = [];
const alone: number[] = [];

beforeAll(async () => {
  rig = await RuntimeRig.start({
    runtime: { cpuStallMs: 1_000, startTimeoutMs: 5_000, requestIdleMs: 20_000 },
    storage: { sqlTimeoutMs: 1_500, durableObjectBytes: OBJECT_BYTES },
  });
  await rig.deploy('neighbour', `export default { fetch: () => new Response('good morning') }`);
  neighbour = new SteadyCaller(`http://127.0.0.1:${rig.port}/neighbour/`, 'good morning');
  await until(() => neighbour.count > 100);
  neighbour.take();
  await measureAlone();
});
afterAll(async () => {
  await neighbour?.stop();
  await rig?.stop();
});

async function measureAlone(): Promise<void> {
  await until(() => neighbour.count > ALONE);
  alone.push(neighbour.take().p99Ms);
}

function gallery(title: string, tenants: Hostile[]): void {
  describe(title, () => {
    for (const tenant of tenants) {
      it(`contains: ${tenant.name}`, { timeout: CONTAINED_MS * 2 }, async () => {
        const slug = tenant.name.replace(/[^a-z0-9]+/g, '-').slice(0, 40);
        const code = tenant.code.includes('loop.wasm')
          ? { main: 'index.js', modules: { 'index.js': tenant.code, ...WASM } }
          : tenant.code;
        await rig.deploy(slug, code, tenant.deployment);
        await attack(tenant, slug);
        if (tenant.logged) await rig.logged(slug, tenant.logged);
        if (tenant.mended) {
          await rig.deploy(slug, `export default { fetch: () => new Response('fine') }`);
          await rig.runtime.activate(slug);
        }
        if (tenant.recovers !== false) {
          await until(async () => (await rig.fetch(slug, '/fine')).status === 200, `${slug} to come back`);
        }
        await rig.runtime.stop(slug, 'stopped', { drainMs: 0 });
        const figures = neighbour.take();
        beside.push(figures);
        expect(figures.failures).toEqual([]);
      });
    }
  });
}

async function attack(tenant: Hostile, slug: string): Promise<void> {
  if (tenant.attack) {
    await tenant.attack(rig, slug);
    return;
  }
  const response = await rig.fetch(slug, '/', { signal: AbortSignal.timeout(CONTAINED_MS) });
  const text = await response.text().catch((error: Error) => `broken off: ${error.message}`);
  expect(tenant.statuses ?? [200], text.slice(0, 500)).toContain(response.status);
  if (tenant.body) expect(text).toMatch(tenant.body);
  if (tenant.notBody) expect(text).not.toMatch(tenant.notBody);
}

gallery('computing', COMPUTING);
gallery('swelling', SWELLING);
gallery('talking', TALKING);
gallery('reaching out', REACHING);
gallery('storing', STORING);
gallery('living on', LIVING);

describe('the neighbour', () => {
  it('had every request answered', async () => {
    await measureAlone();
    const times = beside.flatMap((figures) => figures.times);
    const p99Ms = percentile(times, 0.99);
    console.log(
      `neighbour: ${times.length} requests, p50 ${percentile(times, 0.5).toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms; alone p99 ${alone.map((ms) => ms.toFixed(1)).join(' and ')} ms`,
    );
    // Both cores are full most of the time, also with this process, which attacks.
    expectTime('p99 beside the attacks', p99Ms, Math.max(2 * Math.max(...alone), TICK_MS));
  });
});
