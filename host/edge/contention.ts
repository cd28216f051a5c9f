/**
 * Whether requests of several tenants go through the edge, or of one alone. Where it is one, nobody has to be protected
 * from anybody, and the edge weighs less: by its usual weight it takes the core from whoever makes or takes in the bytes
 * each time something comes in, and then sleeps again, two times for three requests, which costs more than what it does.
 * With no more weight than the host's other parts it finds several at once, as a proxy without any weight would.
 */

/** How long a tenant counts after something of it went by, ms. */
const CONTENDED_MS = 1_000;

export class Contention {
  /** Whose request or piece of an answer went by last. */
  #last: string | undefined;
  #changedAt = 0;
  #alone = true;
  #checking: NodeJS.Timeout | undefined;
  readonly #onAlone: (alone: boolean) => void;

  /** @param onAlone a tenant has the edge for itself from now on, or no longer has; nobody has while nothing was seen */
  constructor(onAlone: (alone: boolean) => void = () => {}) {
    this.#onAlone = onAlone;
  }

  /** Of one tenant, or of none. */
  get alone(): boolean {
    return this.#alone;
  }

  /** Something of a tenant's goes by. Costs a comparison while it is the same one again. @param slug empty: control's */
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
