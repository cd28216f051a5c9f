/**
 * Values that were read lately, in memory: the least recently used go when their bytes pass the budget. The storage
 * process is the only writer of its stores, so a store that drops an entry with each write never answers an old one.
 */
export class ByteCache<V> {
  readonly #budget: number;
  readonly #entries = new Map<string, { value: V; bytes: number }>();
  #bytes = 0;

  /** @param budget bytes of all values together */
  constructor(budget: number) {
    this.#budget = budget;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (!entry) return undefined;
    // A map keeps the order of insertion: the first entry is the one that was used longest ago.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  /** @param bytes what the value weighs, without its key */
  set(key: string, value: V, bytes: number): void {
    this.delete(key);
    const weight = bytes + key.length + ENTRY_BYTES;
    if (weight > this.#budget) return;
    this.#entries.set(key, { value, bytes: weight });
    this.#bytes += weight;
    for (const oldest of this.#entries.keys()) {
      if (this.#bytes <= this.#budget) break;
      this.delete(oldest);
    }
  }

  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (!entry) return;
    this.#entries.delete(key);
    this.#bytes -= entry.bytes;
  }
}

/** About what an entry costs beside its value. */
const ENTRY_BYTES = 200;
