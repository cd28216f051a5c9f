/**
 * Every hostile tenant of the gallery against the real runtime, edge, egress and storage: it is contained, its owner
 * finds the reason in the log, it comes back, and a neighbour under steady load notices nothing.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { COMPUTING, type Hostile, REACHING, STORING, SWELLING, TALKING, WASM } from './hostile-tenants.ts';
import { RuntimeRig, until } from './runtime-rig.ts';

/** Pause between the neighbour's requests, ms: steady, not saturating. */
const PACE_MS = 10;
/** Longest that any attack may take, ms: limits plus a machine that is busy with other things. */
const CONTAINED_MS = 45_000;

let rig: RuntimeRig;
let neighbour: Neighbour;

beforeAll(async () => {
  rig = await RuntimeRig.start({
    runtime: { cpuStallMs: 1_000, startTimeoutMs: 5_000, requestIdleMs: 20_000 },
    storage: { sqlTimeoutMs: 1_500 },
  });
  await rig.deploy('neighbour', `export default { fetch: () => new Response('good morning') }`);
  neighbour = new Neighbour(rig);
  await neighbour.measureAlone();
  neighbour.start();
});
afterAll(async () => {
  await neighbour?.stop();
  await rig?.stop();
});

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
        if (tenant.logged) await rig.logged(slug, tenant.logged, CONTAINED_MS);
        if (tenant.recovers !== false) {
          await until(
            async () => (await rig.fetch(slug, '/fine')).status === 200,
            CONTAINED_MS,
            `${slug} to come back`,
          );
        }
        await rig.runtime.stop(slug, 'stopped', { drainMs: 0 });
        expect(neighbour.failures).toEqual([]);
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

describe('the neighbour', () => {
  it('had every request answered, and was at most twice as slow as alone', async () => {
    await neighbour.stop();
    expect(neighbour.failures).toEqual([]);
    const during = neighbour.percentile(neighbour.during, 0.99);
    await neighbour.measureAlone();
    const alone = neighbour.percentile(neighbour.alone, 0.99);
    console.log(
      `neighbour: ${neighbour.during.length} requests, p50 ${neighbour.percentile(neighbour.during, 0.5).toFixed(1)} ms, p99 ${during.toFixed(1)} ms; alone p99 ${alone.toFixed(1)} ms`,
    );
    expect(neighbour.during.length).toBeGreaterThan(500);
    // Below a scheduler's time slice the ratio says nothing.
    expect(during).toBeLessThanOrEqual(Math.max(2 * alone, 50));
  });
});

/** A well-behaved tenant under steady load. */
class Neighbour {
  readonly failures: string[] = [];
  readonly alone: number[] = [];
  readonly during: number[] = [];
  readonly #rig: RuntimeRig;
  #running: Promise<void> | undefined;
  #stop = false;

  constructor(subject: RuntimeRig) {
    this.#rig = subject;
  }

  async measureAlone(): Promise<void> {
    await this.#rig.text('neighbour');
    for (let request = 0; request < 300; request++) await this.#request(this.alone);
  }

  start(): void {
    this.#running = (async () => {
      while (!this.#stop) await this.#request(this.during);
    })();
  }

  async stop(): Promise<void> {
    this.#stop = true;
    await this.#running;
  }

  percentile(values: number[], share: number): number {
    const sorted = [...values].sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;
  }

  async #request(times: number[]): Promise<void> {
    const start = performance.now();
    try {
      const response = await this.#rig.fetch('neighbour', '/', { signal: AbortSignal.timeout(10_000) });
      const text = await response.text();
      if (text !== 'good morning') this.failures.push(`${response.status} ${text.slice(0, 200)}`);
    } catch (error) {
      this.failures.push(String(error));
    }
    times.push(performance.now() - start);
    await delay(PACE_MS);
  }
}
