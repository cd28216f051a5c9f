/**
 * The services of a deployment, which all its instances share: the one in service, one that is being replaced, and
 * previews. A tenant has one set of sockets, one database process for each database: whoever comes first makes them, and
 * they are closed once nobody uses them.
 */
import { Mutex } from '../shared/mutex.ts';
import type { LoadedInstance } from './next-instance.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';
import type { Services } from './services.ts';

/** One more instance, and the services that it is on. */
export interface Entered {
  services: Services;
  prewarmed: PrewarmedSandbox;
  /** It runs already. */
  loaded?: LoadedInstance | undefined;
}

export class SharedServices {
  #current: Services | undefined;
  readonly #users = new Set<object>();
  /** They stay open for these, too. */
  readonly #keepers = new Set<object>();
  readonly #onUnused: () => void;
  readonly #turns = new Mutex();

  /** @param onUnused told when they are closed and nobody waits for them */
  constructor(onUnused: () => void) {
    this.#onUnused = onUnused;
  }

  get current(): Services | undefined {
    return this.#current;
  }

  /** The one user that looks after what belongs to none of them alone. */
  isLookedAfterBy(user: object): boolean {
    const [first] = this.#users;
    return first === user;
  }

  /**
   * They stay open until the user leaves.
   * @param start makes the sandbox of one more instance, and the services where there are none
   */
  enter(user: object, start: (known: Services | undefined) => Promise<Entered>): Promise<Entered> {
    this.#users.add(user);
    return this.#turns.run(async () => {
      const started = await start(this.#current);
      this.#current = started.services;
      return started;
    });
  }

  /**
   * Where they are open, they stay so until the keeper lets go.
   * @returns what lets go
   */
  keepOpen(): (() => Promise<void>) | undefined {
    if (!this.#current) return undefined;
    const keeper = {};
    this.#keepers.add(keeper);
    return async () => {
      if (this.#keepers.delete(keeper)) await this.#closeUnused();
    };
  }

  /** Idempotent. Resolves when they are closed, where nobody else uses them. */
  async leave(user: object): Promise<void> {
    if (this.#users.delete(user)) await this.#closeUnused();
  }

  get #used(): boolean {
    return this.#users.size > 0 || this.#keepers.size > 0;
  }

  async #closeUnused(): Promise<void> {
    await this.#turns.run(async () => {
      if (this.#used) return;
      const services = this.#current;
      this.#current = undefined;
      await services?.close();
      if (!this.#used) this.#onUnused();
    });
  }
}
