/**
 * Detects whether several tenants use the edge at the same time. While only one does, no tenant needs protection from
 * another, and the edge lowers its own CPU priority: at its usual priority it preempts the process that produces or reads
 * the bytes whenever a packet arrives, and these switches cost more than the work. At the priority of the host's other
 * processes, it handles several packets at once.
 */

/** How long a tenant counts as active after its last traffic, ms. */
const CONTENDED_MS = 1_000;

export class Contention {
  /** Slug of the last traffic. */
  #last: string | undefined;
  #changedAt = 0;
  #alone = true;
  #checking: NodeJS.Timeout | undefined;
  readonly #onAlone: (alone: boolean) => void;

  /** @param onAlone called when the edge starts or stops serving one tenant only; not called before the first traffic */
  constructor(onAlone: (alone: boolean) => void = () => {}) {
    this.#onAlone = onAlone;
  }

  /** True if at most one tenant is active. */
  get alone(): boolean {
    return this.#alone;
  }

  /** Records traffic of a tenant. Costs one comparison if the tenant is the same as before. @param slug empty: control's */
  seen(slug: string): void {
    if (slug !== this.#last) this.#changed(slug);
  }

  #changed(slug: string): void {
    const first = this.#last === undefined;
    this.#last = slug;
    if (first) {
      this.#onAlone(true);
      return;
    }
    this.#changedAt = performance.now();
    if (this.#alone) {
      this.#alone = false;
      this.#onAlone(false);
    }
    this.#checking ??= setTimeout(this.#check, CONTENDED_MS).unref();
  }

  readonly #check = (): void => {
    const left = CONTENDED_MS - (performance.now() - this.#changedAt);
    if (left > 0) {
      this.#checking = setTimeout(this.#check, left).unref();
      return;
    }
    this.#checking = undefined;
    this.#alone = true;
    this.#onAlone(true);
  };
}
