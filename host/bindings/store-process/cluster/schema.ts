/**
 * The tables of all tenants' stores in PostgreSQL, in a schema apart from the registry's. Statements are written once, for
 * a libSQL file that is one store; here each is given its store, so that none sees another's rows.
 */

/** Of the schema in the database. */
export const SCHEMA = 'turnpike_stores';

/**
 * `stores` has what a store holds, and its row is the lock of whoever writes. A blob is in `doomed` from before its first
 * byte until a row names it, and again once none does: what is due there and not claimed by a name is removed.
 */
export const TABLES = `
  CREATE TABLE IF NOT EXISTS stores (
    store TEXT COLLATE "C" PRIMARY KEY, tenant TEXT COLLATE "C" NOT NULL, kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL, bytes BIGINT NOT NULL DEFAULT 0, items BIGINT NOT NULL DEFAULT 0);
  CREATE INDEX IF NOT EXISTS stores_tenant ON stores (tenant, kind);
  CREATE TABLE IF NOT EXISTS entries (
    store TEXT COLLATE "C" NOT NULL, key BYTEA NOT NULL, expiration BIGINT, metadata BYTEA, charge BIGINT NOT NULL,
    size BIGINT NOT NULL, blob TEXT COLLATE "C", value BYTEA, PRIMARY KEY (store, key));
  CREATE INDEX IF NOT EXISTS entries_expiration ON entries (store, expiration) WHERE expiration IS NOT NULL;
  CREATE TABLE IF NOT EXISTS objects (
    store TEXT COLLATE "C" NOT NULL, key BYTEA NOT NULL, version TEXT NOT NULL, size BIGINT NOT NULL,
    etag TEXT NOT NULL, uploaded BIGINT NOT NULL, checksums TEXT NOT NULL, http TEXT, custom TEXT,
    storage_class TEXT NOT NULL, charge BIGINT NOT NULL, blob TEXT, value BYTEA, PRIMARY KEY (store, key));
  CREATE TABLE IF NOT EXISTS uploads (
    rowid BIGINT GENERATED ALWAYS AS IDENTITY, store TEXT COLLATE "C" NOT NULL, id TEXT COLLATE "C" NOT NULL,
    key BYTEA NOT NULL, http TEXT, custom TEXT, storage_class TEXT NOT NULL, created BIGINT NOT NULL,
    state TEXT NOT NULL, PRIMARY KEY (store, id));
  CREATE INDEX IF NOT EXISTS uploads_rowid ON uploads (store, rowid);
  CREATE TABLE IF NOT EXISTS parts (
    store TEXT COLLATE "C" NOT NULL, upload TEXT COLLATE "C" NOT NULL, number BIGINT NOT NULL, blob TEXT NOT NULL,
    size BIGINT NOT NULL, md5 TEXT NOT NULL, version TEXT COLLATE "C", PRIMARY KEY (store, upload, number));
  CREATE INDEX IF NOT EXISTS parts_version ON parts (store, version) WHERE version IS NOT NULL;
  CREATE TABLE IF NOT EXISTS doomed (
    store TEXT COLLATE "C" NOT NULL, name TEXT COLLATE "C" NOT NULL, due TIMESTAMPTZ NOT NULL,
    claimed BOOLEAN NOT NULL DEFAULT false, PRIMARY KEY (store, name));
  CREATE INDEX IF NOT EXISTS doomed_due ON doomed (due);
`;

/** Tables with rows of a store, beside its own row. */
export const TABLES_OF_STORES = ['entries', 'objects', 'uploads', 'parts', 'doomed'];

/**
 * A statement of one store in PostgreSQL's words: `$1` is the store.
 * @throws Error for one that could reach another store's rows
 */
export function storeText(sql: string): string {
  let count = 1;
  const text = sql
    .replace(/'[^']*'|\?/g, (part) => (part === '?' ? `$${++count}` : part))
    .replaceAll("typeof(value) = 'blob'", 'value IS NOT NULL')
    .replace(/\bWHERE /g, 'WHERE store = $1 AND ')
    .replace(/\bINSERT INTO (\w+) \(/g, 'INSERT INTO $1 (store, ')
    .replace(/\bVALUES \(/g, 'VALUES ($1, ')
    .replace(/\bON CONFLICT \(/g, 'ON CONFLICT (store, ');
  const tables = text.match(/\b(FROM|INTO|UPDATE) (?!SET\b)\w+/g) ?? [];
  const bound = text.match(/\bstore = \$1|\bVALUES \(\$1/g) ?? [];
  if (tables.length === 0 || bound.length < tables.length) throw new Error(`it names no store: ${sql}`);
  return text;
}
