/**
 * How much a tenant keeps, counted inside the same transactions that change it, and its quota. A write that would pass
 * the quota is refused as a whole, before its first change.
 */
import type { Database, Reader, Writer } from './database.ts';
import type { StoreTotals } from './work.ts';

/** Part of the schema of every store. */
export const TOTALS_SCHEMA =
  'CREATE TABLE totals (bytes INTEGER NOT NULL, items INTEGER NOT NULL); INSERT INTO totals VALUES (0, 0)';

export class Totals implements StoreTotals {
  readonly #read: Reader;
  readonly #write: Writer;
  readonly #itemBytes: number;
  #bytes = 0;
  #items = 0;
  #saved = { bytes: 0, items: 0 };

  /** @param itemBytes about what each item takes beside what it counts: it is part of the quota, too */
  constructor(database: Database, itemBytes: number) {
    this.#itemBytes = itemBytes;
    this.#read = database.reader('SELECT bytes, items FROM totals');
    this.#write = database.writer('UPDATE totals SET bytes = ?, items = ?');
    this.#load();
    database.beforeCommit = () => this.#save();
    database.rollbackListeners.push(() => this.#load());
  }

  get bytes(): number {
    return this.#bytes;
  }

  get items(): number {
    return this.#items;
  }

  get charged(): number {
    return this.#bytes + this.#items * this.#itemBytes;
  }

  exceeds(quota: number, bytes: number): boolean {
    return bytes > 0 && this.charged + bytes > quota;
  }

  add(bytes: number, items: number): void {
    this.#bytes += bytes;
    this.#items += items;
  }

  /** Nobody else writes. */
  refresh(): undefined {
    return undefined;
  }

  #save(): void {
    if (this.#bytes === this.#saved.bytes && this.#items === this.#saved.items) return;
    this.#write.run([this.#bytes, this.#items]);
    this.#saved = { bytes: this.#bytes, items: this.#items };
  }

  #load(): void {
    const [bytes, items] = this.#read.get([]) as [number, number];
    this.#bytes = bytes;
    this.#items = items;
    this.#saved = { bytes, items };
  }
}
