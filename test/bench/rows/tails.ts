/** What a tail worker costs the handler that it watches. */
import { deploy, mppFetch } from '../../e2e/support/callers.ts';
import { WARM_UP_SECONDS } from '../compare.ts';
import { type LoadResult, load, medianOf } from '../load.ts';
import { startTurnpike } from '../peers/turnpike.ts';
import { type RowResult, round } from '../table.ts';
import { HELLO } from '../workers.ts';

const ROUNDS = 5;
const SECONDS = 2;
const WATCHER = 'export default { tail() {}, fetch: () => new Response("") };';

/** Handlers of one host, the first unwatched. */
const TENANTS = [
  { name: 'no tail worker', slug: 'plain', bindings: {} },
  { name: 'with a tail worker', slug: 'watched', bindings: { tails: { WATCHER: { service: 'watcher' } } } },
];

export function tailRows(): { id: string; run(): Promise<RowResult> }[] {
  return [{ id: 'tail', run: tail }];
}

async function tail(): Promise<RowResult> {
  const subject = await startTurnpike(WATCHER);
  const { host } = subject;
  try {
    const owner = mppFetch(host.network, 0);
    await deploy(owner, host.url, { slug: 'watcher', code: WATCHER });
    const runs = new Map<string, LoadResult[]>();
    const ask = (slug: string, seconds: number) => load({ url: `${host.url}/${slug}/`, seconds }, subject.pids());
    for (const { slug, bindings } of TENANTS) {
      await deploy(owner, host.url, { slug, code: HELLO, bindings });
      await ask(slug, WARM_UP_SECONDS);
    }
    for (let turn = 0; turn < ROUNDS; turn++)
      for (const { slug } of TENANTS) runs.set(slug, [...(runs.get(slug) ?? []), await ask(slug, SECONDS)]);
    const [plain, watched] = TENANTS.map(({ slug }) => medianOf(runs.get(slug) ?? []));
    if (!plain || !watched) throw new Error('nothing was measured');
    return {
      id: 'tail',
      title: 'Hello, with and without a tail worker (CPU of all processes of the host)',
      figures: [plain, watched].map((result, index) => ({
        subject: TENANTS[index]?.name ?? '',
        cells: {
          'req/s': round(result.perSecond),
          'CPU µs': round(result.cpuMicros),
          'CPU ÷ without': round(result.cpuMicros / plain.cpuMicros),
        },
      })),
      targets: [],
      skipped: [],
    };
  } finally {
    await subject.stop();
  }
}
