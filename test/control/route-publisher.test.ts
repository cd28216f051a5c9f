/** What the edges are told of a slug while it is being deployed. */
import { expect, it } from 'vitest';
import { RoutePublisher, type RoutePublisherDeps } from '../../host/control/route-publisher.ts';
import { NO_CHANGES } from '../../host/registry/changes.ts';
import type { Route } from '../../host/shared/contracts.ts';

function rig(deploying: string[] = [], prepare = async (_tenant: string) => {}) {
  const rows = new Map<string, { slug: string; tenant: string; state: string; paidRoutes: []; assets?: object }>();
  const known = new Map<string, string>();
  const edge = {
    async call(method: string, route: Route) {
      if (method === 'putRoute') known.set(route.slug, route.state);
      else known.delete(route.slug);
    },
  };
  const table = new RoutePublisher({
    deployments: {
      bySlug: async (slug: string) => rows.get(slug),
      routed: async () => [...rows.values()],
      versions: { previews: async () => new Map() },
    },
    domains: { servable: async () => new Map(), servableBy: async () => [] },
    changes: NO_CHANGES,
    clock: { now: () => 0 },
    config: { requestIdleMs: 1, maxBodyBytes: 1, pathPages: 'sandbox' },
    assets: { prepare, route: () => undefined },
    edges: () => [edge],
    deploying,
  } as unknown as RoutePublisherDeps);
  return {
    table,
    known,
    has: (slug: string, state: string) =>
      rows.set(slug, { slug, tenant: slug, state, paidRoutes: [], assets: {}, ...{ freeAt: 1 } }),
  };
}

const states = async (table: RoutePublisher) => (await table.all()).map(({ slug, state }) => `${slug} ${state}`);

it('a slug is being deployed until it is deployed', async () => {
  const { table, known, has } = rig();
  await table.beginDeploy('hello');
  expect([...known, ...(await states(table))]).toEqual([['hello', 'deploying'], 'hello deploying']);
  has('hello', 'active');
  await table.push('hello');
  expect([...known, ...(await states(table))]).toEqual([['hello', 'active'], 'hello active']);
});

it('a deployment that came to nothing leaves nothing', async () => {
  const { table, known } = rig();
  await table.beginDeploy('hello');
  await table.giveUp('hello');
  expect([...known, ...(await states(table))]).toEqual([]);
});

it('what is said of a slug that was given up stays until another deployment is there', async () => {
  const { table, known, has } = rig();
  has('hello', 'decommissioned');
  await table.beginDeploy('hello');
  expect([...known]).toEqual([['hello', 'decommissioned']]);
  has('hello', 'active');
  await table.push('hello');
  expect([...known]).toEqual([['hello', 'active']]);
});

it('what is deployed at each start is being deployed at the first one alone', async () => {
  const { table, known, has } = rig(['pay', 'speech']);
  has('speech', 'active');
  expect(await states(table)).toEqual(['speech active', 'pay deploying']);
  await table.push('speech');
  expect([...known]).toEqual([['speech', 'active']]);
});

it('a few tables of static files are prepared at once, and one that is slow to come holds up no other', async () => {
  const slow = Promise.withResolvers<void>();
  const prepared: string[] = [];
  let [now, most] = [0, 0];
  const { table, has } = rig([], async (tenant) => {
    most = Math.max(most, ++now);
    await (tenant === 'slow' ? slow.promise : Promise.resolve());
    now--;
    prepared.push(tenant);
  });
  const others = Array.from({ length: 40 }, (_, index) => `files-${index}`);
  for (const slug of ['slow', ...others]) has(slug, 'active');
  await table.all();
  await expect.poll(() => [...prepared].sort()).toEqual([...others].sort());
  expect(most).toBe(8);
  slow.resolve();
  await expect.poll(() => prepared.at(-1)).toBe('slow');
});
