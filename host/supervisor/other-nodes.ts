/**
 * What other nodes of this host change, brought to this one's edges and instances, and whether this one may serve: only
 * while the others take it for living, for they wait for it with what they change.
 */
import type { Logger } from 'pino';
import type { RoutePublisher } from '../control/route-publisher.ts';
import type { Deployments } from '../registry/deployments.ts';
import type { Domains } from '../registry/domains.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { Clock } from '../shared/clock.ts';
import type { TenantId } from '../shared/contracts.ts';
import { Mutex } from '../shared/mutex.ts';

export interface OtherNodesParts {
  deployments: Deployments;
  domains: Domains;
  clock: Clock;
  routes: Pick<RoutePublisher, 'tell'>;
  runtime: Pick<Runtime, 'activate' | 'endPreviews' | 'stop'>;
  /** Whether a change of the deployment is under way here, which starts what it needs itself. */
  changesHere(tenant: TenantId): boolean;
  log: Logger;
}

export class OtherNodes {
  readonly #parts: OtherNodesParts;
  readonly #turns = new Mutex();
  /** What edges and instances were told, by slug. */
  #known = new Map<string, string>();

  constructor(parts: OtherNodesParts) {
    this.#parts = parts;
  }

  /** Resolves when all that is in the registry by now is known to edges and instances. */
  sync(): Promise<void> {
    return this.#turns.round(() => this.#sync());
  }

  /** What edges are told at their start is known. */
  async begin(): Promise<void> {
    await this.#turns.run(async () => {
      this.#known = new Map([...(await this.#read())].map(([slug, { text }]) => [slug, text]));
    });
  }

  async #sync(): Promise<void> {
    const found = await this.#read();
    const gone = [...this.#known.keys()].filter((slug) => !found.has(slug));
    const changed = [...found].filter(([slug, { text }]) => this.#known.get(slug) !== text);
    await Promise.all([
      ...gone.map(async (slug) => {
        await this.#parts.routes.tell(slug);
        this.#known.delete(slug);
      }),
      ...changed.map(async ([slug, { row, text }]) => {
        await this.#bring(row);
        this.#known.set(slug, text);
      }),
    ]);
  }

  async #read(): Promise<Map<string, { row: Deployment; text: string }>> {
    const { deployments, domains, clock } = this.#parts;
    const [rows, servable, previews] = await Promise.all([
      deployments.routable(clock.now()),
      domains.servable(),
      deployments.versions.previews(),
    ]);
    return new Map(
      rows.map((row) => [
        row.slug,
        { row, text: JSON.stringify([row, servable.get(row.tenant), previews.get(row.tenant)]) },
      ]),
    );
  }

  /** As the node that changed it does: first the instance, then the route. */
  async #bring({ slug, tenant, state, suspendedAt }: Deployment): Promise<void> {
    const { runtime, routes, log } = this.#parts;
    if (!this.#parts.changesHere(tenant)) {
      if (state !== 'active' || suspendedAt !== null) {
        await routes.tell(slug);
        void runtime
          .stop(slug, 'stopped', suspendedAt === null ? {} : { drainMs: 0 })
          .catch((err) => log.error({ err, slug }, 'an instance was not stopped'));
        return;
      }
      try {
        await runtime.activate(slug);
      } catch (err) {
        // What runs is another version than the other nodes have: the next request starts the present one.
        log.warn({ err, slug }, 'a version of another node did not start here');
        void runtime.stop(slug, 'replaced').catch(() => undefined);
      }
    }
    await routes.tell(slug);
  }
}
