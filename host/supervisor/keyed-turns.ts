/** Work of which one node does one at a time for each key, and which of it is under way here. */
import type { Leases } from '../registry/leases.ts';

export class KeyedTurns {
  readonly #name: string;
  readonly #leases: Leases;
  readonly #underWay = new Set<string>();

  /** @param name of the leases, before the key */
  constructor(name: string, leases: Leases) {
    this.#name = name;
    this.#leases = leases;
  }

  isUnderWay(key: string): boolean {
    return this.#underWay.has(key);
  }

  run<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.#leases.exclusively(`${this.#name}:${key}`, async () => {
      this.#underWay.add(key);
      try {
        return await work();
      } finally {
        this.#underWay.delete(key);
      }
    });
  }
}
