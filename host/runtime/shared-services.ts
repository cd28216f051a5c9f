/**
 * The services of a deployment, which all its instances share: the one in service, one that is being replaced, and
 * previews. A tenant has one set of sockets, one database process for each database: whoever comes first makes them, and
 * they are closed once nobody uses them.
 */
import { Mutex } from '../shared/mutex.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';
import type { Services } from './services.ts';

export class SharedServices {
  #current: Services | undefined;
  readonly #users = new Set<object>();
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
  enter(
    user: object,
    start: (known: Services | undefined) => Promise<{ services: Services; prewarmed: PrewarmedSandbox }>,
  ): Promise<{ services: Services; prewarmed: PrewarmedSandbox }> {
    this.#users.add(user);
    return this.#turns.run(async () => {
      const started = await start(this.#current);
      this.#current = started.services;
      return started;
    });
  }

  /** Idempotent. Resolves when they are closed, where nobody else uses them. */
  async leave(user: object): Promise<void> {
    if (!this.#users.delete(user)) return;
    await this.#turns.run(async () => {
      if (this.#users.size > 0) return;
      const services = this.#current;
      this.#current = undefined;
      await services?.close();
      if (this.#users.size === 0) this.#onUnused();
    });
  }
}
