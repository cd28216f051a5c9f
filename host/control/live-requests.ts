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
  /** Tells every edge whom to watch. Resolves when they know, and never rejects. */
  watch(slugs: string[]): Promise<void>;
}

export interface Watch {
  /** Resolves when edges tell requests of the slug. */
  told: Promise<void>;
  /** Calling it again does nothing. */
  end(): void;
}

export class LiveRequests {
  readonly #parts: LiveRequestsParts;
  /** Slug -> how many watch it. */
  readonly #watchers = new Map<string, number>();
  #told = Promise.resolve();

  constructor(parts: LiveRequestsParts) {
    this.#parts = parts;
  }

  watch(slug: string): Watch {
    const before = this.#watchers.get(slug) ?? 0;
    this.#watchers.set(slug, before + 1);
    if (before === 0) this.#tell();
    let open = true;
    const end = () => {
      if (!open) return;
      open = false;
      const left = (this.#watchers.get(slug) ?? 1) - 1;
      if (left > 0) {
        this.#watchers.set(slug, left);
        return;
      }
      this.#watchers.delete(slug);
      this.#tell();
    };
    return { told: this.#told, end };
  }

  #tell(): void {
    this.#told = this.#parts.watch(this.watched());
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
