import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Counter, Histogram, Registry } from 'prom-client';
import { describe, expect, test } from 'vitest';
import { health } from '../../host/observability/health.ts';
import { createHostMetrics, type HostGauges } from '../../host/observability/host-metrics.ts';
import { metricsText } from '../../host/observability/metrics-text.ts';

const gauges: HostGauges = {
  deployments: () => ({ active: 3, expired: 1 }),
  instances: () => ({ byState: { warm: 2 }, memoryBytes: 5_000 }),
  restarts: () => ({ storage: 1 }),
  payments: async () => ({ byState: { working: 1 }, owedMicroUsd: 1_500_000 }),
  stoppedPayouts: () => ['over-sent'],
  queues: () => ({ cron: 4 }),
};

function metricsOf(read: HostGauges = gauges) {
  const metrics = createHostMetrics();
  metrics.watch(read);
  return metrics;
}

/** What a child sends: plain data. */
async function child(requests: number) {
  const registry = new Registry();
  new Counter({ name: 'x_requests_total', help: 'x', labelNames: ['status'], registers: [registry] }).inc(
    { status: '2xx' },
    requests,
  );
  new Histogram({ name: 'x_seconds', help: 'x', buckets: [1, 2], registers: [registry] }).observe(1.5);
  return structuredClone(await registry.getMetricsAsJSON());
}

describe('metrics', () => {
  test('come from all processes, each family once, each series with its process', async () => {
    const { registry, onRuntimeEvent } = metricsOf();
    onRuntimeEvent({ type: 'started', coldStartMs: 25 });
    onRuntimeEvent({ type: 'used', cpuMs: 1_500 });
    onRuntimeEvent({ type: 'stopped', reason: 'cpu_exceeded' });
    const text = await metricsText(registry, [
      { process: 'edge-0', read: () => child(3) },
      { process: 'edge-1', read: () => child(4) },
    ]);
    expect(text).toContain('x_requests_total{process="edge-0",status="2xx"} 3');
    expect(text).toContain('x_requests_total{process="edge-1",status="2xx"} 4');
    expect(text).toContain('x_seconds_bucket{process="edge-0",le="2"} 1');
    expect(text.match(/# TYPE x_requests_total/g)).toHaveLength(1);
    expect(text).toContain('turnpike_instance_ends_total{process="control",reason="cpu_exceeded"} 1');
    expect(text).toContain('turnpike_instance_cpu_seconds_total{process="control"} 1.5');
    expect(text).toContain('turnpike_cold_start_seconds_bucket{process="control",le="0.03"} 1');
    expect(text).toContain('turnpike_deployments{process="control",state="expired"} 1');
    expect(text).toContain('turnpike_payments_owed_usd{process="control"} 1.5');
    expect(text).toContain('turnpike_process_up{process="edge-1"} 1');
  });

  test('a child that is gone or hangs does not hide the others', async () => {
    const { registry } = metricsOf();
    const text = await metricsText(registry, [
      { process: 'edge-0', read: () => child(3) },
      { process: 'storage', read: () => Promise.reject(new Error('restarting')) },
      { process: 'egress', read: () => new Promise(() => {}) },
    ]);
    expect(text).toContain('x_requests_total{process="edge-0",status="2xx"} 3');
    expect(text).toContain('turnpike_process_up{process="storage"} 0');
    expect(text).toContain('turnpike_process_up{process="egress"} 0');
  });

  test('a state that is over is not reported any more', async () => {
    let states: Record<string, number> = { expired: 2 };
    const { registry } = metricsOf({ ...gauges, deployments: () => states });
    expect(await metricsText(registry, [])).toContain('state="expired"');
    states = { active: 1 };
    expect(await metricsText(registry, [])).not.toContain('state="expired"');
  });
});

describe('health', () => {
  const at = { version: '0.1.0', uptimeMs: 61_500 };
  const part = (name: string, state: 'ready' | 'restarting' | 'off', essential = true) => ({ name, state, essential });

  test('all parts ready', () => {
    expect(health([part('edge', 'ready'), part('speech', 'off', false)], at)).toEqual({
      ready: true,
      body: {
        status: 'ok',
        version: '0.1.0',
        uptimeSeconds: 61,
        parts: { edge: { state: 'ready' }, speech: { state: 'off' } },
      },
    });
  });

  test('a part that is not essential only degrades it, an essential one makes it unavailable', () => {
    expect(health([part('edge', 'ready'), part('egress', 'restarting', false)], at)).toMatchObject({
      ready: true,
      body: { status: 'degraded' },
    });
    expect(health([part('edge', 'restarting')], at)).toMatchObject({ ready: false, body: { status: 'unavailable' } });
  });
});

describe('the Grafana dashboard', () => {
  const root = fileURLToPath(new URL('../../', import.meta.url));
  const dashboard = JSON.parse(readFileSync(`${root}config/grafana-dashboard.json`, 'utf8'));
  const expressions: string[] = dashboard.panels.flatMap((panel: { targets?: { expr: string }[] }) =>
    (panel.targets ?? []).map(({ expr }) => expr),
  );
  const sources = readdirSync(`${root}host`, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(`${root}host/${name}`, 'utf8'))
    .join('\n');

  test('asks only for metrics that the host has', () => {
    const asked = new Set(expressions.flatMap((text) => text.match(/turnpike_\w+/g) ?? []));
    const missing = [...asked]
      .map((name) => name.replace(/_(bucket|count|sum)$/, ''))
      .filter(
        (name) => !sources.includes(`'${name}'`) && !/^turnpike_(process_cpu|process_resident|nodejs)/.test(name),
      );
    expect(asked.size).toBeGreaterThan(10);
    expect(missing).toEqual([]);
  });

  test('places every panel apart from the others', () => {
    const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }: { gridPos: Record<string, number> }) =>
      Array.from(
        { length: (w ?? 0) * (h ?? 0) },
        (_, index) => `${(x ?? 0) + (index % (w ?? 1))},${(y ?? 0) + Math.floor(index / (w ?? 1))}`,
      ),
    );
    expect(new Set(cells).size).toBe(cells.length);
  });
});
