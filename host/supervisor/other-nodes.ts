/**
 * What other nodes of this host change, brought to this one's edges and instances, and whether this one may serve: only
 * while the others take it for living, for they wait for it with what they change.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from 'pino';
import type { RoutePublisher } from '../control/route-publisher.ts';
import type { Changes } from '../registry/changes.ts';
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
  changes: Pick<Changes, 'behind'>;
  runtime: Pick<Runtime, 'activate' | 'endPreviews' | 'stop'>;
  /** Whether a change of the deployment is under way here, which starts what it needs itself. */
  changesHere(tenant: TenantId): boolean;
  log: Logger;
}

interface Bringing {
  text: string | undefined;
  done: Promise<void>;
  /** Resolves when others need not wait for it any longer. */
  late: Promise<void>;
  failed: boolean;
}

/** For this long a deployment keeps the rest of what was heard from being done, ms. */
const SOON_MS = 1_000;
/** Before what failed is tried again, ms. */
const AGAIN_MS = 1_000;

export class OtherNodes {
  readonly #parts: OtherNodesParts;
  readonly #turns = new Mutex();
  /** What edges and instances were told, by slug. */
  #known = new Map<string, string>();
  /** What they are being told, and what failed the last time. */
  readonly #bringing = new Map<string, Bringing>();

  constructor(parts: OtherNodesParts) {
    this.#parts = parts;
  }

  /**
   * Resolves when what is in the registry by now is known to edges and instances; what takes longer is left behind: a
   * deployment that starts slowly would keep all others waiting.
   */
  async sync(): Promise<void> {
    await this.#turns.round(() => this.#begin());
    await Promise.all(
      [...this.#bringing].map(async ([slug, { done, late }]) => {
        const soon = await Promise.race([done.then(() => true), late]);
        if (!soon) this.#parts.changes.behind(slug, this.#finish(done));
      }),
    );
  }

  /** As `sync`, however long it takes. */
  async catchUp(): Promise<void> {
    await this.#turns.round(() => this.#begin());
    await Promise.all([...this.#bringing.values()].map(({ done }) => done));
  }

  /** What edges are told at their start is known. */
  async begin(): Promise<void> {
    await this.#turns.run(async () => {
      this.#known = new Map([...(await this.#read())].map(([slug, { text }]) => [slug, text]));
    });
  }

  /** Begins to tell what has changed. */
  async #begin(): Promise<void> {
    const found = await this.#read();
    for (const slug of new Set([...this.#known.keys(), ...this.#bringing.keys(), ...found.keys()])) {
      const { row, text } = found.get(slug) ?? {};
      const last = this.#bringing.get(slug);
      if (last?.failed !== true && text === (last ? last.text : this.#known.get(slug))) continue;
      const bringing = {
        text,
        done: this.#bring(slug, row),
        late: delay(SOON_MS, undefined, { ref: false }),
        failed: false,
      };
      this.#bringing.set(slug, bringing);
      const failed = () => {
        bringing.failed = true;
      };
      bringing.done.then(() => this.#brought(slug, bringing), failed);
    }
  }

  #brought(slug: string, bringing: Bringing): void {
    // It may have changed again.
    if (this.#bringing.get(slug) !== bringing) return;
    this.#bringing.delete(slug);
    if (bringing.text === undefined) this.#known.delete(slug);
    else this.#known.set(slug, bringing.text);
  }

  /** Until it is done. */
  async #finish(done: Promise<void>): Promise<void> {
    for (;;) {
      const failed = await done.then(
        () => undefined,
        (err: unknown) => ({ err }),
      );
      if (!failed) return;
      this.#parts.log.warn(failed, 'what another node changed is not in service here; tried again');
      await delay(AGAIN_MS, undefined, { ref: false });
      done = this.sync();
    }
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

  /** As the node that changed it does: first the instance, then the route. @param row undefined: it is gone */
  async #bring(slug: string, row: Deployment | undefined): Promise<void> {
    const { runtime, routes, changesHere, log } = this.#parts;
    const serves = row?.state === 'active' && row.suspendedAt === null;
    if (row && serves && !changesHere(row.tenant)) {
      try {
        await runtime.activate(slug);
      } catch (err) {
        // What runs is another version than the other nodes have: the next request starts the present one.
        log.warn({ err, slug }, 'a version of another node did not start here');
        void runtime.stop(slug, 'replaced').catch(() => undefined);
      }
    }
    await routes.tell(slug);
    if (row && !serves && !changesHere(row.tenant)) {
      void runtime
        .stop(slug, 'stopped', row.suspendedAt === null ? {} : { drainMs: 0 })
        .catch((err) => log.error({ err, slug }, 'an instance was not stopped'));
    }
  }
}
