/** Is the host well, what does it do, and what needs a person? */
import { html } from '../../../../builtin-tenants/kit/look/layout.ts';
import { fileSize } from '../../../shared/file-size.ts';
import { chart } from '../chart.ts';
import type { ConsolePage, View } from '../page.ts';
import { BASE } from '../sessions.ts';
import { choices, count, figures, milliseconds, state, table, time, usd } from '../words.ts';

interface Attention {
  items: { level: 'bad' | 'warn'; what: string; todo: string; page: string }[];
}
interface Health {
  status: string;
  version: string;
  parts: Record<string, { state: string; detail?: string }>;
}
interface Processes {
  processes: { name: string; state: string; pid?: number; restarts: number; memoryBytes: number; cpuMs: number }[];
  instances: { running: number; memoryBytes: number };
}
export interface HistoryAnswer {
  range: string;
  points: {
    at: string;
    known: number;
    requests: number;
    clientErrors: number;
    serverErrors: number;
    unpaid: number;
    payments: number;
    charged: string;
    earned: string;
    p50Ms: number | null;
    p99Ms: number | null;
    memory: Record<string, number>;
    cpu: Record<string, number>;
    diskFree: number;
    diskTotal: number;
    instances: number;
    deployments: number;
  }[];
  busiest: { slug: string; requests: number; errors: number }[];
  /** Nodes that did not answer. */
  missing: string[];
}

export const RANGE_NAMES: [string, string][] = [
  ['hour', 'Hour'],
  ['day', 'Day'],
  ['month', '30 days'],
];

export const overviewPage: ConsolePage = {
  path: '/',
  place: 'Overview',
  title: () => 'Overview',
  async render({ ask, query }) {
    const chosen = RANGE_NAMES.find(([name]) => name === query.get('range'))?.[0];
    const [{ items }, health, { processes }, { range, points, busiest, missing }, clock] = await Promise.all([
      ask<Attention>('/attention'),
      ask<Health>('/healthz'),
      ask<Processes>('/processes'),
      historyOf(ask, chosen),
      ask<{ now: string; offsetMs: number }>('/clock'),
    ]);
    const sum = (of: (point: HistoryAnswer['points'][number]) => number) =>
      points.reduce((total, point) => total + of(point), 0);
    const last = points.findLast(({ known }) => known > 0);
    const requests = sum((point) => point.requests);
    const failed = sum((point) => point.serverErrors);
    const at = points.map((point) => point.at);
    const values = (of: (point: HistoryAnswer['points'][number]) => number | null) =>
      points.map((point) => (point.known > 0 ? of(point) : null));
    const groups = Object.keys(last?.memory ?? {});
    return html`<div class="row spread"><h1>Overview</h1>${choices('Time', BASE, query, 'range', RANGE_NAMES, range)}</div>
${
  items.length === 0
    ? html`<p class="note good">All is well: nothing needs attention.</p>`
    : items.map(
        ({ level, what, todo, page }) =>
          html`<div class="note ${level}"><p><strong>${what}</strong></p><p>${todo} ${page === '/' ? '' : html`<a href="${BASE}${page}">Look</a>`}</p></div>`,
      )
}
${missing.length === 0 ? '' : html`<p class="note warn">These nodes do not answer, and are not in the figures: ${missing.join(', ')}.</p>`}
${clock.offsetMs === 0 ? '' : html`<p class="note warn">Business time was moved: it is ${time(clock.now)} for this host.</p>`}
${figures([
  ['Requests', count(requests)],
  ['Failed (5xx)', requests === 0 ? '0' : `${((failed / requests) * 100).toFixed(failed === 0 ? 0 : 2)} %`],
  ['Asked to pay (402)', count(sum((point) => point.unpaid))],
  ['Slowest 1 % take', last?.p99Ms ? milliseconds(last.p99Ms) : '–'],
  ['Earned', usd(sum((point) => Number(point.earned)).toFixed(2))],
  ['Tenants that serve', count(last?.deployments ?? 0)],
  ['Instances that run', count(last?.instances ?? 0)],
  ['Memory of the host', fileSize(processes.reduce((total, { memoryBytes }) => total + memoryBytes, 0))],
  ['Disk left', fileSize(last?.diskFree ?? 0)],
])}
<div class="cards wide">
${chart({
  ...{ id: 'requests', title: 'Requests', at, format: count, isWhole: true },
  series: [
    { name: 'all', values: values((point) => point.requests) },
    { name: '4xx', look: 'warn', values: values((point) => point.clientErrors) },
    { name: '5xx', look: 'bad', values: values((point) => point.serverErrors) },
  ],
})}
${chart({
  ...{ id: 'latency', title: 'How long requests take', at, format: milliseconds },
  series: [
    { name: 'half are quicker', values: values((point) => point.p50Ms) },
    { name: '99 % are quicker', look: 'warn', values: values((point) => point.p99Ms) },
  ],
})}
${chart({
  ...{ id: 'money', title: 'Money', at, format: (value: number) => usd(value.toFixed(2)) },
  series: [
    { name: 'charged to callers', values: values((point) => Number(point.charged)) },
    { name: 'earned by this host', look: 'good', values: values((point) => Number(point.earned)) },
  ],
})}
${chart({
  ...{ id: 'memory', title: 'Memory', at, format: fileSize },
  series: [
    {
      name: 'the host',
      values: values((point) =>
        groups.reduce((total, name) => total + (name === 'instances' ? 0 : (point.memory[name] ?? 0)), 0),
      ),
    },
    { name: 'instances', look: 'warn', values: values((point) => point.memory.instances ?? 0) },
  ],
})}
${chart({
  ...{ id: 'cpu', title: 'CPU, % of one core', at, format: (value: number) => `${Math.round(value * 10) / 10} %` },
  series: [
    {
      name: 'the host',
      values: values((point) =>
        groups.reduce((total, name) => total + (name === 'instances' ? 0 : (point.cpu[name] ?? 0)), 0),
      ),
    },
    { name: 'instances', look: 'warn', values: values((point) => point.cpu.instances ?? 0) },
  ],
})}
${chart({
  ...{ id: 'instances', title: 'Instances that run', at, format: count, isWhole: true },
  series: [{ name: 'instances', values: values((point) => point.instances) }],
})}
</div>
<div class="cards wide">
<section class="card"><h2>Busiest tenants</h2>
${table(
  'Busiest tenants',
  [{ name: 'Tenant' }, { name: 'Requests', number: true }, { name: 'Failed', number: true }],
  busiest.map((one) => [
    html`<a href="${BASE}/tenants/${encodeURIComponent(one.slug)}">${one.slug}</a>`,
    count(one.requests),
    count(one.errors),
  ]),
  'No requests in this time.',
)}</section>
<section class="card"><h2>Processes</h2>
${table(
  'Processes of the host',
  [
    { name: 'Process' },
    { name: 'State' },
    { name: 'Memory', number: true },
    { name: 'CPU time', number: true },
    { name: 'Restarts', number: true },
  ],
  processes.map((one) => [
    one.name,
    state(one.state),
    fileSize(one.memoryBytes),
    `${(one.cpuMs / 1_000).toFixed(1)} s`,
    count(one.restarts),
  ]),
)}
<h3>Components</h3>
${table(
  'Components',
  [{ name: 'Component' }, { name: 'State' }, { name: 'Detail' }],
  Object.entries(health.parts).map(([name, part]) => [name, state(part.state), part.detail ?? '']),
)}
<p class="soft small">Turnpike ${health.version}, ${health.status}.</p></section>
</div>`;
  },
};

/** Of a day; of an hour on a host that is younger than that. */
async function historyOf(ask: View['ask'], range: string | undefined): Promise<HistoryAnswer> {
  const found = await ask<HistoryAnswer>(`/history?range=${range ?? 'day'}`);
  const known = found.points.filter((point) => point.known > 0).length;
  return range === undefined && known < 6 ? ask<HistoryAnswer>('/history?range=hour') : found;
}
