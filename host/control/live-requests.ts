/**
 * The requests of a slug as they come, for owners who watch. They are told and not kept: what callers send writes nothing
 * to a disk.
 */
import type { Deployments } from '../registry/deployments.ts';
import type { LogStore } from '../runtime/logs/log-store.ts';
import type { Clock } from '../shared/clock.ts';
import type { SeenRequest } from '../shared/contracts.ts';

export interface LiveRequestsParts {
  logs: Pick<LogStore, 'tell'>;
  deployments: Pick<Deployments, 'lookUp'>;
  clock: Clock;
  /** Tells every edge whom to watch. */
  watch(slugs: string[]): void;
}

export class LiveRequests {
  readonly #parts: LiveRequestsParts;
  /** Slug -> how many watch it. */
  readonly #watchers = new Map<string, number>();

  constructor(parts: LiveRequestsParts) {
    this.#parts = parts;
  }

  /** @returns ends it; calling it again does nothing */
  watch(slug: string): () => void {
    const before = this.#watchers.get(slug) ?? 0;
    this.#watchers.set(slug, before + 1);
    if (before === 0) this.#parts.watch(this.watched());
    let open = true;
    return () => {
      if (!open) return;
      open = false;
      const left = (this.#watchers.get(slug) ?? 1) - 1;
      if (left > 0) {
        this.#watchers.set(slug, left);
        return;
      }
      this.#watchers.delete(slug);
      this.#parts.watch(this.watched());
    };
  }

  watched(): string[] {
    return [...this.#watchers.keys()];
  }

  /** What an edge saw. Whose slug it is counts now: it may have changed hands since somebody began to watch. */
  async tell(requests: SeenRequest[]): Promise<void> {
    const { logs, deployments, clock } = this.#parts;
    for (const slug of new Set(requests.map((request) => request.slug))) {
      const deployment = await deployments.lookUp(slug);
      if (!deployment) continue;
      for (const { slug: of, ...request } of requests)
        if (of === slug) logs.tell(deployment.tenant, { kind: 'request', time: clock.now(), ...request });
    }
  }
}
