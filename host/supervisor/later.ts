/** What is there only after something that uses it has started. */
import { Problem } from '../shared/problem.ts';

export class Later<Value> {
  readonly #value = Promise.withResolvers<Value>();
  #wanted = false;

  constructor() {
    // Callers that wait handle the rejection; without one it must not end the process.
    this.#value.promise.catch(() => undefined);
  }

  /** @throws Problem not_ready when the host stops before */
  get promise(): Promise<Value> {
    this.#wanted = true;
    return this.#value.promise;
  }

  /** Somebody has asked for it. */
  get wanted(): boolean {
    return this.#wanted;
  }

  resolve(value: Value): void {
    this.#value.resolve(value);
  }

  /** The host stops. */
  abandon(): void {
    this.#value.reject(new Problem('not_ready', 'The host is stopping; try again when it runs again.'));
  }
}
