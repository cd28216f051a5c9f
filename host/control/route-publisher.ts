/** Publishes the registry's routes to every edge: the whole table when an edge starts, then each change. */
import type { AssetStore } from '../assets/asset-store.ts';
import { tollRoutes } from '../payments/paid-routes.ts';
import type { Changes } from '../registry/changes.ts';
import type { Deployments, Routed } from '../registry/deployments.ts';
import type { Domains } from '../registry/domains.ts';
import type { Channel } from '../shared/channel.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { EdgeMethods, Route } from '../shared/contracts.ts';
import { KeyedLock } from '../shared/mutex.ts';
import { limitsOf } from '../shared/tenant-limits.ts';
import { DESCRIPTIONS } from './pages/tenant-openapi.ts';
import { suspension } from './suspension.ts';

/** Deployments whose tables are prepared at once: a new node waits for an S3 for each. */
const PREPARED_AT_ONCE = 8;

export interface RoutePublisherDeps {
  deployments: Deployments;
  domains: Domains;
  clock: Clock;
  assets: Pick<AssetStore, 'route' | 'prepare'>;
  config: Config['runtime'] & Pick<Config['edge'], 'pathPages'>;
  /** Of other nodes. */
  changes: Pick<Changes, 'everywhere'>;
  /** Slugs that are deployed at this start, unless they are there already. */
  deploying: readonly string[];
  /** The edges that run now. */
  edges(): Channel<EdgeMethods>[];
}

export class RoutePublisher {
  readonly #deps: RoutePublisherDeps;
  readonly #deploying: Set<string>;
  /** By slug: what was read first is not sent last. */
  readonly #turns = new KeyedLock();

  constructor(deps: RoutePublisherDeps) {
    this.#deps = deps;
    this.#deploying = new Set(deps.deploying);
  }

  /** Resolves when every edge knows that a deployment of the slug has begun. `push` ends it, or `giveUp`. */
  async beginDeploy(slug: string): Promise<void> {
    this.#deploying.add(slug);
    await this.tell(slug);
  }

  /** The deployment failed. */
  async giveUp(slug: string): Promise<void> {
    this.#deploying.delete(slug);
    await this.tell(slug);
  }

  async all(): Promise<Route[]> {
    const { deployments, domains, clock } = this.#deps;
    const [rows, servable, previews] = await Promise.all([
      deployments.routed(clock.now()),
      domains.servable(),
      deployments.versions.previews(),
    ]);
    for (const { slug, state } of rows) if (state !== 'decommissioned') this.#deploying.delete(slug);
    // Until a table is there, instances answer.
    void this.#prepareAll(rows);
    const known = new Set(rows.map(({ slug }) => slug));
    return [
      ...rows.map((row) => this.#route(row, servable.get(row.tenant) ?? [], previews.get(row.tenant) ?? [])),
      ...[...this.#deploying].filter((slug) => !known.has(slug)).map((slug) => this.#waitingRoute(slug)),
    ];
  }

  /** Reads a slug from the registry and tells every edge; resolves when all know, and the other nodes, too. */
  async push(slug: string): Promise<void> {
    await this.tell(slug);
    await this.#deps.changes.everywhere(['deployments', 'domains'], slug);
  }

  /** As `push`, for the edges of this node alone. */
  tell(slug: string): Promise<void> {
    return this.#turns.run(slug, () => this.#push(slug));
  }

  async #push(slug: string): Promise<void> {
    const { deployments, domains, clock, edges } = this.#deps;
    const row = await deployments.bySlug(slug);
    const living = row && (row.state !== 'decommissioned' || (row.freeAt ?? 0) > clock.now());
    if (row && row.state !== 'decommissioned') this.#deploying.delete(slug);
    if (living && row.state === 'active' && !suspension(row)) await this.#prepare(row);
    const route = living
      ? this.#route(
          row,
          await domains.servableBy(row.tenant),
          (await deployments.versions.previews(row.tenant)).get(row.tenant) ?? [],
        )
      : this.#deploying.has(slug)
        ? this.#waitingRoute(slug)
        : undefined;
    await Promise.all(
      edges().map((edge) =>
        (route ? edge.call('putRoute', route) : edge.call('removeRoute', { slug })).catch(() => {
          // That edge is going; the one started in its place gets the whole table.
        }),
      ),
    );
  }

  async #prepareAll(rows: readonly Routed[]): Promise<void> {
    const waiting = rows.filter(({ state }) => state === 'active').values();
    const next = async () => {
      for (const row of waiting) await this.#prepare(row);
    };
    await Promise.all(Array.from({ length: PREPARED_AT_ONCE }, next));
  }

  /** Without a table the files are served all the same. */
  async #prepare({ tenant, assets }: Routed): Promise<void> {
    if (assets) await this.#deps.assets.prepare(tenant, assets).catch(() => undefined);
  }

  #waitingRoute(slug: string): Route {
    const { requestIdleMs, maxBodyBytes } = this.#deps.config;
    return { slug, state: 'deploying', domains: [], paidRoutes: [], idleTimeoutMs: requestIdleMs, maxBodyBytes };
  }

  #route(row: Routed, domains: string[], previews: string[]): Route {
    const { config, assets } = this.#deps;
    const suspended = suspension(row);
    return {
      slug: row.slug,
      tenant: row.tenant,
      state: suspended ? 'suspended' : row.state,
      ...(suspended ? { suspended: suspended.message } : {}),
      domains,
      previews,
      trustedPages: row.builtin || config.pathPages === 'trust',
      paidRoutes: [
        ...tollRoutes(row.paidRoutes as unknown as Parameters<typeof tollRoutes>[0]),
        // Made from the paid routes where the handler has none of its own.
        ...(row.paidRoutes.length > 0 ? DESCRIPTIONS.map((path) => ({ method: 'GET', path })) : []),
      ],
      idleTimeoutMs: config.requestIdleMs,
      maxBodyBytes: limitsOf('runtime', row.limits).maxBodyBytes ?? config.maxBodyBytes,
      ...(row.assets && row.state === 'active' ? { files: assets.route(row.tenant, row.assets) } : {}),
    };
  }
}
