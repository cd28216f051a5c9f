/**
 * The requests under way. An array whose slots are filled anew, not a Set: a Set's tables outlive what was deleted
 * from them, and at thousands of requests a second that keeps megabytes of finished requests from being collected.
 */

export interface Listed {
  /** Place in the list; the list's own. */
  slot: number;
}

export class ActiveList<T extends Listed> {
  readonly #items: T[] = [];

  get size(): number {
    return this.#items.length;
  }

  add(item: T): void {
    item.slot = this.#items.length;
    this.#items.push(item);
  }

  remove(item: T): void {
    const last = this.#items.pop();
    if (last === undefined || last === item) return;
    this.#items[item.slot] = last;
    last.slot = item.slot;
  }

  /** Items may leave the list while it is gone through. */
  forEach(visit: (item: T) => void): void {
    for (const item of [...this.#items]) visit(item);
  }
}
