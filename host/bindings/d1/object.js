/**
 * A database of a deployment on several nodes: an object of workerd's cluster mode. It answers what the SQL process of one
 * box does, with the same guard, limits and messages, on the SQLite that workerd gives to an object. It runs inside
 * workerd alone: object-program.ts makes one module of it.
 */
import { DurableObject, WorkerEntrypoint } from 'cloudflare:workers';
import { POINTS_DATABASE } from '../analytics/points-database.ts';
import { Points } from '../analytics/points-object.js';
import { Bookmarks } from './bookmark.ts';
import { MESSAGES, resultTooBig, SqlFailure, sqliteMessage, tooManyRows } from './failure.ts';
import { DEFAULT_LIMITS, MAX_REQUEST_BYTES } from './limits.ts';
import { BOOKMARK_HEADER, failureText, parseQueries, resultsFormat, successText } from './protocol.ts';
import { readStatements } from './reading.ts';
import { finishRow } from './rows.ts';
import { TOKEN } from './tokenizer.ts';

/** No database of D1 is called by it. */
const POINTS_HOST = 'points';
const POINTS_QUERY = '/query';
const PATHS = ['/query', '/execute'];
/** After which what only reads is asked again, as by D1: another node, or another version, takes the database over. */
const PAUSES_MS = [50, 200, 500, 1_000];
const { maxRows, maxResultBytes } = DEFAULT_LIMITS;
const BEFORE_ROLLBACK = new Set(['raise (', 'insert or', 'update or', 'on conflict']);
const PROBED = 'turnpike_probed';
/** The last row id is to stay as it is. */
const PROBE = `
CREATE TABLE ${PROBED}_parents (id INTEGER PRIMARY KEY);
CREATE TABLE ${PROBED} (id INTEGER PRIMARY KEY REFERENCES ${PROBED}_parents DEFERRABLE INITIALLY DEFERRED) WITHOUT ROWID;
INSERT INTO ${PROBED}_parents SELECT last_insert_rowid();
INSERT INTO ${PROBED} SELECT last_insert_rowid();`;
/** Undoes what a transaction did. */
const UNDO = Symbol('undo');

export default class extends WorkerEntrypoint {
  async fetch(request) {
    const { url, method, headers } = request;
    const { pathname } = new URL(url);
    const { database } = this.ctx.props;
    const isPoints = database === POINTS_DATABASE;
    if (isPoints && pathname !== POINTS_QUERY) return this.#take(request);
    if (method !== 'POST') return json(405, failureText('only POST'));
    if (!PATHS.includes(pathname)) return json(404, failureText('Not found'));
    if (Number(headers.get('content-length')) > MAX_REQUEST_BYTES)
      return json(413, failureText(`the request exceeds ${MAX_REQUEST_BYTES} bytes`));
    const body = await request.text();
    const target = isPoints ? `http://${POINTS_HOST}${POINTS_QUERY}` : url;
    for (const pauseMs of PAUSES_MS) {
      try {
        return await this.env.DATABASES.getByName(database).fetch(target, { method, headers, body });
      } catch {
        // Its node is gone, or it was reset: of a write nobody knows.
        if (!isPoints && !isRead(body)) break;
        await scheduler.wait(pauseMs);
      }
    }
    return isPoints ? json(503, JSON.stringify({ error: MESSAGES.lost })) : json(200, failureText(MESSAGES.lost));
  }

  /** A message with data points, whose body is read where it is kept. It is not sent again: it might be kept twice. */
  #take({ method, body }) {
    return this.env.DATABASES.getByName(POINTS_DATABASE).fetch(`http://${POINTS_HOST}/`, { method, body });
  }
}

export class Database extends DurableObject {
  #bookmarks = new Bookmarks(0, Date.now);
  /** What #mayDefer() found; undefined: the schema may be another one. */
  #defers;

  #points;

  async #ofPoints(path, request) {
    this.#points ??= new Points(this.ctx.storage, this.env.POINTS);
    if (path !== POINTS_QUERY) return json(await this.#points.take(request), '{}');
    try {
      return json(200, JSON.stringify(await this.#points.query(await request.text())));
    } catch (error) {
      return json(400, JSON.stringify({ error: messageOf(error) }));
    }
  }

  async fetch(request) {
    const { hostname, pathname } = new URL(request.url);
    if (hostname === POINTS_HOST) return this.#ofPoints(pathname, request);
    let queries;
    try {
      queries = parseQueries(await request.text());
    } catch (error) {
      return json(400, failureText(messageOf(error)));
    }
    try {
      const text = successText(this.#run(queries), resultsFormat(new URL(request.url).search));
      return json(200, text, request.headers.has(BOOKMARK_HEADER) ? this.#bookmarks.next() : undefined);
    } catch (error) {
      return json(200, failureText(messageOf(error)));
    }
  }

  /** All or nothing. @throws SqlFailure, and Error with SQLite's message */
  #run(queries) {
    const work = queries.flatMap(workOf);
    if (work.length === 0) throw new SqlFailure(MESSAGES.noStatements);
    const room = { bytes: maxResultBytes };
    if (work.every(onlyReads)) return work.map((query) => this.#query(query, room));
    const { storage } = this.ctx;
    const before = storage.sql.databaseSize;
    const defers = work.some(isDeferring);
    try {
      return storage.transactionSync(() => {
        const results = work.map((query) => this.#query(query, room));
        if ((defers || this.#mayDefer()) && this.#isBroken())
          throw new SqlFailure(sqliteMessage('FOREIGN KEY constraint failed', 'SQLITE_CONSTRAINT_FOREIGNKEY'));
        const size = storage.sql.databaseSize;
        if (size > before && size > this.env.MOST_BYTES) throw new SqlFailure(MESSAGES.full);
        return results;
      });
    } finally {
      // It would hold for the requests that workerd commits together with this one. Nothing is broken here.
      if (defers) storage.sql.exec('PRAGMA defer_foreign_keys = OFF');
      if (work.some(redefines)) this.#defers = undefined;
    }
  }

  #query({ text, statements, parameters }, room) {
    const { sql } = this.ctx.storage;
    const size = sql.databaseSize;
    const [changesBefore, rowIdBefore] = this.#counters();
    const cursor = sql.exec(text, ...parameters);
    const rows = [];
    for (const row of cursor.raw()) {
      for (const [index, value] of row.entries()) if (value instanceof ArrayBuffer) row[index] = new Uint8Array(value);
      room.bytes -= finishRow(row);
      if (room.bytes < 0) throw new SqlFailure(resultTooBig(maxResultBytes));
      if (rows.push(row) > maxRows) throw new SqlFailure(tooManyRows(maxRows));
    }
    const { columnNames: columns, rowsRead, rowsWritten } = cursor;
    const [changesAfter, lastRowId] = this.#counters();
    const changes = changesAfter - changesBefore;
    const sizeAfter = sql.databaseSize;
    const changed = redefines({ statements }) || changes > 0 || lastRowId !== rowIdBefore || sizeAfter !== size;
    // workerd's clock stands still meanwhile.
    return { columns, rows, meta: { duration: 0, changes, lastRowId, changed, sizeAfter, rowsRead, rowsWritten } };
  }

  #counters() {
    return this.ctx.storage.sql.exec('SELECT total_changes(), last_insert_rowid()').raw().next().value;
  }

  /** Whether the schema has constraints that SQLite checks with the commit. */
  #mayDefer() {
    const { sql } = this.ctx.storage;
    this.#defers ??=
      sql.exec("SELECT 1 FROM sqlite_schema WHERE instr(lower(sql), 'deferr') LIMIT 1").toArray().length > 0;
    return this.#defers;
  }

  /**
   * Whether a constraint that is checked with the commit is broken. workerd commits later, and several requests at once:
   * that would reset the object, and take the writes of others along. SQLite counts what is broken and tells nobody, but a
   * deletion looks for what it might mend only while the count is not zero, which shows in the rows that it reads.
   */
  #isBroken() {
    const { storage } = this.ctx;
    let read;
    try {
      storage.transactionSync(() => {
        storage.sql.exec(PROBE);
        read = storage.sql.exec(`DELETE FROM ${PROBED}`).rowsRead;
        throw UNDO;
      });
    } catch (error) {
      if (error !== UNDO) throw error;
    }
    return read > 2;
  }
}

/** Text without a statement (blank, comments) is skipped, as in D1, unless there is nothing else. */
function workOf({ sql, parameters }) {
  const { statements, parameters: takes } = readStatements(sql);
  if (statements.length === 0) return [];
  if (takes !== parameters.length) throw new SqlFailure(MESSAGES.bindings);
  // SQLite would read half a character as three that mean nothing.
  const values = parameters.map((value) => (typeof value === 'string' ? value.toWellFormed() : value));
  return [{ text: textOf(sql, statements).toWellFormed(), statements, parameters: values }];
}

/**
 * Up to the end of the last statement. What would roll back everything on a conflict aborts: for a request that is the
 * same, and requests that workerd commits together with it are not its to roll back.
 */
function textOf(sql, statements) {
  const tokens = statements.flatMap((statement) => statement.tokens);
  let text = '';
  let from = 0;
  for (const [index, { kind, text: word, start, end }] of tokens.entries()) {
    if (kind !== TOKEN.word || word !== 'rollback') continue;
    if (!BEFORE_ROLLBACK.has(`${tokens[index - 2]?.text} ${tokens[index - 1]?.text}`)) continue;
    text += `${sql.slice(from, start)}${'abort'.padEnd(word.length)}`;
    from = end;
  }
  return text + sql.slice(from, tokens.at(-1).end);
}

function onlyReads({ statements }) {
  return statements.every(({ kind }) => kind === 'read');
}

function redefines({ statements }) {
  return statements.some(({ kind }) => kind === 'schema');
}

function isRead(body) {
  try {
    return parseQueries(body).flatMap(workOf).every(onlyReads);
  } catch {
    return false;
  }
}

/** It puts off the check of foreign keys. */
function isDeferring({ statements }) {
  return statements.some(
    ({ kind, tokens }) => kind === 'pragma' && tokens.some(({ text }) => text.toLowerCase() === 'defer_foreign_keys'),
  );
}

function messageOf(error) {
  return error instanceof SqlFailure ? error.message : String(error?.message ?? error);
}

function json(status, body, bookmark) {
  const headers = { 'content-type': 'application/json', ...(bookmark && { [BOOKMARK_HEADER]: bookmark }) };
  return new Response(body, { status, headers });
}
