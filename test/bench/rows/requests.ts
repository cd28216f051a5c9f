/** Rows about requests: hello through the edge, large bodies, the storage bindings. */
import { compare, type Runs, WARM_UP_SECONDS } from '../compare.ts';
import type { LoadResult } from '../load.ts';
import { emptyStores } from '../peers/empty-stores.ts';
import { miniflare } from '../peers/miniflare.ts';
import { caddy, haproxy, nginx } from '../peers/proxies.ts';
import { turnpike } from '../peers/turnpike.ts';
import { bareWorkerd } from '../peers/workerd.ts';
import { SharedSubjects, type Subject } from '../subject.ts';
import { judge, type RowResult, type Target } from '../table.ts';
import { HELLO, STORAGE, TEN_MB } from '../workers.ts';

/** Compares a figure of ours with a peer's, round by round; left out where the peer is not there. */
export function target(
  runs: Runs,
  peer: string,
  figure: keyof LoadResult,
  relation: '≤' | '≥',
  factor: number,
  label: string,
): Target[] {
  const its = runs.get(peer);
  const ratios = (runs.get('Turnpike') ?? []).map((ours, round) => ours[figure] / (its?.[round]?.[figure] ?? 0));
  if (ratios.length === 0 || !ratios.every(Number.isFinite)) return [];
  return [judge(label, `${relation} ${factor} × ${peer}`, ratios)];
}

export async function hello(): Promise<RowResult> {
  const { runs, figures, skipped } = await compare(
    [turnpike(HELLO), bareWorkerd(HELLO), haproxy(HELLO), nginx(HELLO), caddy(HELLO), miniflare({ code: HELLO })],
    { load: { path: '/' } },
  );
  return {
    id: 'hello',
    title: 'Hello through the edge (32 connections)',
    figures,
    skipped,
    targets: [
      ...target(runs, 'bare workerd', 'cpuMicros', '≤', 1.6, 'CPU a request'),
      ...target(runs, 'Caddy', 'perSecond', '≥', 1.4, 'req/s'),
      ...target(runs, 'Miniflare', 'perSecond', '≥', 2, 'req/s'),
      ...target(runs, 'HAProxy', 'p99Ms', '≤', 2, 'p99'),
    ],
  };
}

export function bodyRows(): { id: string; run(): Promise<RowResult>; subjects: SharedSubjects }[] {
  const subjects = new SharedSubjects();
  const starters = [turnpike(TEN_MB), haproxy(TEN_MB), nginx(TEN_MB), caddy(TEN_MB)].map((one) => subjects.share(one));
  return [
    {
      id: 'download',
      subjects,
      async run() {
        const load = { path: '/', connections: 4 };
        const { runs, figures, skipped } = await compare(starters, { load, throughput: true });
        return {
          id: 'download',
          title: '10 MB down through the edge (4 connections)',
          figures,
          skipped,
          targets: target(runs, 'HAProxy', 'bytesPerSecond', '≥', 0.8, 'bytes/s'),
        };
      },
    },
    {
      id: 'upload',
      subjects,
      async run() {
        const load = { path: '/', connections: 4, method: 'POST', bodyBytes: 10 * 1_048_576 } as const;
        const { runs, figures, skipped } = await compare(starters, { load });
        return {
          id: 'upload',
          title: '10 MB up through the edge (4 connections)',
          figures,
          skipped,
          targets: target(runs, 'HAProxy', 'perSecond', '≥', 0.8, 'bodies/s'),
        };
      },
    },
  ];
}

interface StorageRow {
  id: string;
  title: string;
  path: string;
  miniflare: number;
  module?: number;
  /** Shows how far workerd alone gets. */
  limit?: boolean;
}

const STORAGE_ROWS: StorageRow[] = [
  { id: 'kv-get', title: 'KV get, 1 KiB', path: '/kv/get', miniflare: 3, module: 1.5 },
  {
    id: 'kv-put',
    title: 'KV put, 1 KiB (ours synced before the answer; Miniflare syncs its index, not the values)',
    path: '/kv/put',
    miniflare: 4,
    module: 1.5,
  },
  { id: 'd1-select', title: 'D1 select by key', path: '/d1/select', miniflare: 3, limit: true },
  { id: 'd1-insert', title: 'D1 insert (both synced before the answer)', path: '/d1/insert', miniflare: 2 },
  { id: 'r2-get', title: 'R2 get, 100 KiB', path: '/r2/get', miniflare: 3, limit: true },
  {
    id: 'r2-put',
    title: 'R2 put, 100 KiB (ours synced before the answer; Miniflare syncs its index, not the values)',
    path: '/r2/put',
    miniflare: 4,
    limit: true,
  },
  {
    id: 'cache-match',
    title: 'Cache match, 10 KiB',
    path: '/cache/match',
    miniflare: 2,
  },
];

export function storageRows(): { id: string; run(): Promise<RowResult>; subjects: SharedSubjects }[] {
  const bindings = { kv: true, d1: true, r2: true };
  const subjects = new SharedSubjects();
  const ours = subjects.share(turnpike(STORAGE, bindings));
  const peer = subjects.share(miniflare({ code: STORAGE, bindings: true }));
  const direct = subjects.share(miniflare({ code: STORAGE, bindings: true, direct: true }));
  const empty = subjects.share(emptyStores(STORAGE));
  const seeded = new Set<string>();
  // Those that stay have most of it compiled by the row before.
  const warm = new Set<string>();
  const warmUpSeconds = ({ name }: Subject) => {
    const seconds = warm.has(name) ? WARM_UP_SECONDS - 1 : WARM_UP_SECONDS;
    warm.add(name);
    return seconds;
  };
  const seed = async (subject: Subject) => {
    if (subject.seeded || seeded.has(subject.name)) return;
    const answer = await fetch(`${subject.origin}/seed`);
    if (!answer.ok) throw new Error(`${subject.name} was not seeded: ${answer.status} ${await answer.text()}`);
    seeded.add(subject.name);
  };
  return STORAGE_ROWS.map(({ id, title, path, miniflare: factor, module, limit }) => ({
    id,
    subjects,
    async run() {
      const { runs, figures, skipped } = await compare(
        [ours, peer, ...(module ? [direct] : []), ...(limit ? [empty] : [])],
        { load: { path }, prepare: seed, warmUpSeconds },
      );
      return {
        id,
        title,
        figures,
        skipped,
        targets: [
          ...target(runs, 'Miniflare', 'perSecond', '≥', factor, 'req/s'),
          ...(module ? target(runs, "workerd's own module", 'perSecond', '≥', module, 'req/s') : []),
        ],
      };
    },
  }));
}
