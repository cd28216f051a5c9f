/** Places for connections of several parties: when all are taken, the newest of the party that has most of them goes. */

export class Places<Party, Connection extends { destroy(): void }> {
  readonly #most: number;
  readonly #taken = new Map<Party, Set<Connection>>();
  #count = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** @returns whether this one stays */
  take(party: Party, connection: Connection): boolean {
    const own = this.#taken.get(party) ?? new Set();
    this.#taken.set(party, own.add(connection));
    this.#count++;
    if (this.#count <= this.#most) return true;
    let most = party;
    for (const [other, { size }] of this.#taken) if (size > (this.#taken.get(most)?.size ?? 0)) most = other;
    const given = most === party ? connection : [...(this.#taken.get(most) ?? [])].at(-1);
    if (given) this.leave(most, given);
    given?.destroy();
    return given !== connection;
  }

  leave(party: Party, connection: Connection): void {
    const own = this.#taken.get(party);
    if (!own?.delete(connection)) return;
    this.#count--;
    if (own.size === 0) this.#taken.delete(party);
  }
}
