/** Keeps every edge's route table equal to the registry: the whole table at an edge's start, then each change. */
import { tollRoutes } from '../payments/paid-routes.ts';
import type { Deployments } from '../registry/deployments.ts';
import type { Domains } from '../registry/domains.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { Channel } from '../shared/channel.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { EdgeMethods, Route } from '../shared/contracts.ts';
import { OPENAPI_PATH } from './tenant-requests.ts';

export interface RouteTableDependencies {
  deployments: Deployments;
  domains: Domains;
  clock: Clock;
  config: Config['runtime'] & Pick<Config['edge'], 'pathPages'>;
  /** The edges that run now. */
  edges(): Channel<EdgeMethods>[];
}

export class RouteTable {
  readonly #parts: RouteTableDependencies;

  constructor(parts: RouteTableDependencies) {
    this.#parts = parts;
  }

  async all(): Promise<Route[]> {
    const { deployments, domains, clock } = this.#parts;
    const [rows, servable] = await Promise.all([deployments.routable(clock.now()), domains.servable()]);
    return rows.map((row) => this.#route(row, servable.get(row.tenant) ?? []));
  }

  /** Reads a slug from the registry and tells every edge; resolves when all know. */
  async push(slug: string): Promise<void> {
    const { deployments, domains, clock, edges } = this.#parts;
    const row = await deployments.bySlug(slug);
    const living = row && (row.state !== 'decommissioned' || (row.freeAt ?? 0) > clock.now());
    const names = living ? await domains.servableBy(row.tenant) : [];
    await Promise.all(
      edges().map((edge) =>
        (living ? edge.call('putRoute', this.#route(row, names)) : edge.call('removeRoute', { slug })).catch(() => {
          // That edge is going; the one started in its place gets the whole table.
        }),
      ),
    );
  }

  #route(row: Deployment, domains: string[]): Route {
    const { config } = this.#parts;
    return {
      slug: row.slug,
      state: row.state,
      domains,
      trustedPages: row.builtin || config.pathPages === 'trust',
      paidRoutes: [
        ...tollRoutes(row.paidRoutes as unknown as Parameters<typeof tollRoutes>[0]),
        // Made from the paid routes where the handler has none of its own.
        ...(row.paidRoutes.length > 0 ? [{ method: 'GET', path: OPENAPI_PATH }] : []),
      ],
      idleTimeoutMs: config.requestIdleMs,
      maxBodyBytes: config.maxBodyBytes,
    };
  }
}
