/**
 * Brings a store to another engine: from a libSQL file into the cluster, or back. Rows are compared with what is there
 * already, so that it can be done again, after a kill or much later, and only what differs is written. What was
 * transferred is read again on both sides and compared as a whole.
 */
import { createHash, type Hash } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Store } from './open-stores.ts';
import { Finished, type Query, type StoreDatabase, type Value, type Work } from './work.ts';

/** A table of a kind of store, as both engines have it. */
export interface StoreTable {
  name: string;
  /** Whose order is that of the rows, and which tell them apart. */
  key: string[];
  /** The others, but those of bytes. */
  columns: string[];
  /** `blob`: the name of the bytes, or nothing; `value and blob`: small bytes may be in the row itself. */
  bytes: 'none' | 'blob' | 'value and blob';
  /** A column whose value no other bytes have; without one the bytes themselves are compared. */
  version?: string;
  /** Bytes of a blob. */
  size?: string;
}

/** How far a transfer is. */
export interface Transferred {
  rows: number;
  bytes: number;
}

/** What is the same on both sides, whichever engine. */
export interface Fingerprint extends Transferred {
  digest: string;
}

const PAGE = 200;
/** Blobs on their way at once. */
const AT_ONCE = 16;

interface Row {
  /** Of all columns but those of bytes. */
  plain: Value[];
  /** As text. */
  key: string;
  blob: string | null;
  value: Buffer | null;
  size: number;
}

/** @param onProgress rows that are at the other side, and bytes that were sent, since the last time */
export async function transferStore(
  tables: StoreTable[],
  from: Store,
  to: Store,
  onProgress: (more: Transferred) => void,
): Promise<Fingerprint> {
  for (const table of tables) await transferTable(table, from, to, onProgress);
  await from.totals.refresh();
  await to.database.write(() => {
    to.totals.add(from.totals.bytes - to.totals.bytes, from.totals.items - to.totals.items);
    return new Finished(undefined);
  });
  const [sent, found] = await Promise.all([fingerprint(tables, from), fingerprint(tables, to)]);
  if (sent.digest !== found.digest)
    throw new Error(`what was read back differs from what was sent: ${JSON.stringify({ sent, found })}`);
  return found;
}

/** Of all rows and of all bytes, as they are read. */
export async function fingerprint(tables: StoreTable[], store: Store): Promise<Fingerprint> {
  const hash = createHash('sha256');
  const sum = { rows: 0, bytes: 0 };
  for (const table of tables) {
    const pages = new Pages(table, store.database);
    for await (const rows of pages.all()) {
      const digests = await inTurns(rows, async (row) => (await digestOf(store, row)).digest());
      for (const [index, row] of rows.entries()) {
        sum.rows++;
        sum.bytes += row.size;
        hash.update(digests[index] as Buffer);
      }
    }
    addTo(hash, table.name);
  }
  return { ...sum, digest: hash.digest('hex') };
}

async function transferTable(
  table: StoreTable,
  from: Store,
  to: Store,
  onProgress: (more: Transferred) => void,
): Promise<void> {
  const [source, target] = [new Pages(table, from.database), new Pages(table, to.database)];
  let after: Value[] | undefined;
  for (;;) {
    const rows = await source.page(after);
    const isLast = rows.length < PAGE;
    const until = isLast ? undefined : source.keyOf(rows.at(-1) as Row);
    const kept = new Set<string>();
    const gone: Row[] = [];
    const wanted = new Map(rows.map((row) => [row.key, row]));
    for await (const there of target.between(after, until)) {
      const sameRows = await inTurns(there, (row) => isSame(table, from, wanted.get(row.key), to, row));
      for (const [index, row] of there.entries()) sameRows[index] ? kept.add(row.key) : gone.push(row);
    }
    if (gone.length > 0) await target.remove(to, gone);
    const missing = rows.filter(({ key }) => !kept.has(key));
    const written = await inTurns(missing, (row) => place(table, from, to, row));
    await target.add(to, written);
    onProgress({ rows: rows.length, bytes: missing.reduce((sum, { size }) => sum + size, 0) });
    if (until === undefined) return;
    after = until;
  }
}

async function isSame(table: StoreTable, from: Store, wanted: Row | undefined, to: Store, row: Row): Promise<boolean> {
  if (!wanted || !sameValues(wanted.plain, row.plain)) return false;
  if (table.bytes === 'none' || table.version !== undefined) return true;
  const [one, other] = await Promise.all([digestOf(from, wanted), digestOf(to, row)]);
  return one.digest().equals(other.digest());
}

function sameValues(one: Value[], other: Value[]): boolean {
  return textOf(one) === textOf(other);
}

/** The row as the other side has it, with its bytes there. */
async function place(table: StoreTable, from: Store, to: Store, row: Row): Promise<Row> {
  if (row.value === null && !row.blob) return row;
  const bytes = row.value ?? (await from.blobs.read(row.blob as string, 0, row.size));
  if (table.bytes === 'value and blob' && row.size <= to.inlineBytes) {
    const value = Buffer.isBuffer(bytes) ? bytes : Buffer.concat(await bytes.toArray());
    return { ...row, value, blob: null };
  }
  const known = Buffer.isBuffer(bytes) ? { chunks: [bytes] } : { stream: bytes };
  return { ...row, value: null, blob: await to.blobs.write({ length: row.size, ...known }) };
}

/** Of a row with its bytes, wherever these are. */
async function digestOf(store: Store, row: Row): Promise<Hash> {
  const hash = createHash('sha256');
  addTo(hash, textOf(row.plain));
  const bytes = row.value ?? (row.blob ? await store.blobs.read(row.blob, 0, row.size) : Buffer.alloc(0));
  let length = 0;
  for await (const piece of Buffer.isBuffer(bytes) ? Readable.from([bytes]) : bytes) {
    length += (piece as Buffer).length;
    hash.update(piece as Buffer);
  }
  if (length !== row.size && (row.value !== null || row.blob))
    throw new Error(`a value of ${row.size} bytes has ${length}`);
  return hash;
}

function addTo(hash: Hash, text: string): void {
  hash.update(`${Buffer.byteLength(text)} `).update(text);
}

function textOf(values: Value[]): string {
  return JSON.stringify(values.map((value) => (Buffer.isBuffer(value) ? { bytes: value.toString('base64') } : value)));
}

/** Work on all of them, some at a time, in their order. */
async function inTurns<T, R>(all: T[], work: (one: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (let at = 0; at < all.length; at += AT_ONCE)
    results.push(...(await Promise.all(all.slice(at, at + AT_ONCE).map(work))));
  return results;
}

/** The rows of a table in the order of their keys, and changes of them. */
class Pages {
  readonly #table: StoreTable;
  readonly #database: StoreDatabase;
  readonly #first: Query;
  readonly #next: Query;
  readonly #insert: Query;
  readonly #delete: Query;

  constructor(table: StoreTable, database: StoreDatabase) {
    this.#table = table;
    this.#database = database;
    const { key, name } = table;
    const bytes = { none: [], blob: ['blob'], 'value and blob': ['blob', 'value'] }[table.bytes];
    const all = [...key, ...table.columns, ...bytes];
    const marks = (names: string[]) => names.map(() => '?').join(', ');
    const list = key.join(', ');
    const select = `SELECT ${all.join(', ')} FROM ${name} WHERE`;
    this.#first = database.query(`${select} true ORDER BY ${list} LIMIT ${PAGE}`);
    this.#next = database.query(`${select} (${list}) > (${marks(key)}) ORDER BY ${list} LIMIT ${PAGE}`);
    this.#insert = database.query(`INSERT INTO ${name} (${all.join(', ')}) VALUES (${marks(all)})`);
    this.#delete = database.query(`DELETE FROM ${name} WHERE ${key.map((one) => `${one} = ?`).join(' AND ')}`);
  }

  async page(after: Value[] | undefined): Promise<Row[]> {
    const rows = await this.#database.read(() => (after ? this.#next.all(after) : this.#first.all([])));
    return rows.map((values) => this.#row(values));
  }

  async *all(): AsyncGenerator<Row[]> {
    yield* this.between(undefined, undefined);
  }

  /** @param after exclusive @param until inclusive */
  async *between(after: Value[] | undefined, until: Value[] | undefined): AsyncGenerator<Row[]> {
    for (;;) {
      const rows = await this.page(after);
      const within = until ? rows.filter((row) => compare(this.keyOf(row), until) <= 0) : rows;
      if (within.length > 0) yield within;
      if (rows.length < PAGE || within.length < rows.length) return;
      after = this.keyOf(rows.at(-1) as Row);
    }
  }

  keyOf({ plain }: Row): Value[] {
    return plain.slice(0, this.#table.key.length);
  }

  async add(store: Store, rows: Row[]): Promise<void> {
    const insert = this.#insert;
    const { bytes } = this.#table;
    if (rows.length === 0) return;
    await store.database.write(function* (): Work<void> {
      for (const { plain, blob, value } of rows) {
        const more = { none: [], blob: [blob], 'value and blob': [blob, value] }[bytes];
        yield* insert.run([...plain, ...more]);
        if (blob) yield* store.blobs.change(blob, []);
      }
    });
  }

  async remove(store: Store, rows: Row[]): Promise<void> {
    const remove = this.#delete;
    const keys = rows.map((row) => this.keyOf(row));
    const unnamed = rows.flatMap(({ blob }) => (blob ? [blob] : []));
    await store.database.write(function* (): Work<void> {
      for (const key of keys) yield* remove.run(key);
      yield* store.blobs.change(null, unnamed);
    });
    store.blobs.drop(unnamed);
  }

  #row(values: Value[]): Row {
    const { key, columns, bytes, size = '' } = this.#table;
    const names = [...key, ...columns];
    const plain = values.slice(0, names.length);
    const [blob = null, value = null] = values.slice(names.length) as [(string | null)?, (Buffer | null)?];
    const bytesOf = bytes === 'none' ? 0 : Number(plain[names.indexOf(size)]);
    return { plain, key: textOf(plain.slice(0, key.length)), blob, value, size: bytesOf };
  }
}

/** As both engines order keys: numbers by size, text and bytes by their bytes. */
function compare(one: Value[], other: Value[]): number {
  for (const [index, value] of one.entries()) {
    const against = other[index] as Value;
    const order =
      typeof value === 'number'
        ? value - Number(against)
        : Buffer.compare(Buffer.from(value as string), Buffer.from(against as string));
    if (order !== 0) return order;
  }
  return 0;
}
