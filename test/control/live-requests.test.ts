import { expect, it } from 'vitest';
import { LiveRequests, type LiveRequestsParts } from '../../host/control/live-requests.ts';
import type { RequestEntry } from '../../host/runtime/logs/log-entry.ts';

function rig(owners: Record<string, string>) {
  const watched: string[][] = [];
  const told: [string, string][] = [];
  const live = new LiveRequests({
    logs: { tell: (tenant: string, { path }: RequestEntry) => void told.push([tenant, path]) },
    deployments: {
      lookUp: async (slug: string) => (owners[slug] === undefined ? undefined : { tenant: owners[slug] }),
    } as unknown as LiveRequestsParts['deployments'],
    clock: { now: () => 0 } as LiveRequestsParts['clock'],
    watch: async (slugs) => void watched.push(slugs),
  });
  return { live, watched, told };
}
const seen = (slug: string, path: string) => ({ slug, path, method: 'GET', status: 200, ms: 1 });

it('edges are told when the first begins to watch a slug and when the last has ended', () => {
  const { live, watched } = rig({});
  const first = live.watch('a');
  const second = live.watch('a');
  const other = live.watch('b');
  first.end();
  first.end();
  expect(watched).toEqual([['a'], ['a', 'b']]);
  second.end();
  other.end();
  expect(watched).toEqual([['a'], ['a', 'b'], ['b'], []]);
});

it('a request goes to the log of whoever has the slug now, and of nobody where nobody has it', async () => {
  const owners: Record<string, string> = { a: 'tenant-1', b: 'tenant-2' };
  const { live, told } = rig(owners);
  live.watch('a');
  await live.tell([seen('a', '/1'), seen('b', '/2'), seen('gone', '/3'), seen('a', '/4')]);
  owners.a = 'tenant-of-somebody-else';
  await live.tell([seen('a', '/5')]);
  expect(told).toEqual([
    ['tenant-1', '/1'],
    ['tenant-1', '/4'],
    ['tenant-2', '/2'],
    ['tenant-of-somebody-else', '/5'],
  ]);
});
