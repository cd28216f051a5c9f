/**
 * The data points of a deployment on several nodes, within an object of workerd's (../d1/object.js): handlers on all nodes
 * send them here, where they are collected and written together. It answers the owner's queries, through any node, with
 * the tables, the SQL and the limits of one box.
 */
import { resultTooBig, SqlFailure, tooManyRows } from '../d1/failure.ts';
import { readStatements } from '../d1/reading.ts';
import { finishRow } from '../d1/rows.ts';
import {
  ANSWER,
  DAY_SECONDS,
  DELAY_MS,
  MOST_DATASETS,
  MOST_POINTS,
  MOST_WAITING_BYTES,
  SWEEP_MS,
  TELL_MS,
} from './limits.ts';
import { parsePoints, pointBytes } from './points.ts';
import { Recorder, TOO_FAST } from './recorder.ts';
import { insert, MAKE_TABLE, makeView, removeOlder, removeOldest } from './schema.ts';
import { readQuery, shownResult } from './sql-api.ts';

/** Messages that come in at a time; each has about 200 KB at most. */
const MOST_READING = 10;
/** Where there is no room the oldest points go: one of so many, then more of them, and all before the last attempt. */
const PARTS = [32, 8, 4, 2, 1];
/** Undoes what was written, where it takes more than it may. */
const FULL = new Error('Data points are larger than the quota.');

export class Points {
  #storage;
  #limits;
  #views = new Set();
  #sweptAt = Number.NEGATIVE_INFINITY;
  #reading = 0;
  #lost = 0;
  #toldAt = Number.NEGATIVE_INFINITY;
  #recorder = new Recorder({
    delayMs: DELAY_MS,
    mostPoints: MOST_POINTS,
    mostBytes: MOST_WAITING_BYTES,
    write: async (points) => this.#write(points),
    lost: (count, why) => this.#lose(count, why),
  });

  /** @param limits bytes of the database, and days that points are kept */
  constructor(storage, limits) {
    this.#storage = storage;
    this.#limits = limits;
  }

  /** A message of the binding. @returns the status of its answer */
  async take(request) {
    // It is not read, so that it takes no memory here.
    if (this.#recorder.full || this.#reading >= MOST_READING) {
      this.#lose(1, TOO_FAST);
      return 429;
    }
    this.#reading++;
    try {
      const points = parsePoints(await request.text(), now());
      if (!points) return 400;
      for (const point of points) this.#recorder.add(point, pointBytes(point));
      return 200;
    } finally {
      this.#reading--;
    }
  }

  /** Of the owner. @throws QueryFault, SyntaxError, SqlFailure, and Error with SQLite's message */
  async query(text) {
    const query = readQuery(text);
    await this.#recorder.flush();
    this.#make([]);
    this.#sweep();
    readStatements(query);
    const { sql } = this.#storage;
    const rows = [];
    let bytes = 0;
    const cursor = sql.exec(query);
    for (const row of cursor.raw()) {
      bytes += finishRow(row);
      if (bytes > ANSWER.maxResultBytes) throw new SqlFailure(resultTooBig(ANSWER.maxResultBytes));
      if (rows.push(row) > ANSWER.maxRows) throw new SqlFailure(tooManyRows(ANSWER.maxRows));
    }
    return shownResult({ columns: cursor.columnNames, rows });
  }

  /** @throws Error where they are lost */
  #write(points) {
    const { sql } = this.#storage;
    this.#make(points.map(({ dataset }) => dataset));
    this.#sweep();
    for (const parts of PARTS) {
      try {
        this.#storage.transactionSync(() => {
          const before = sql.databaseSize;
          for (const point of points) this.#run(insert(point));
          const size = sql.databaseSize;
          if (size > before && size > this.#limits.mostBytes) throw FULL;
        });
        return;
      } catch (error) {
        if (error !== FULL) throw error;
        this.#run(removeOldest(parts));
      }
    }
    throw FULL;
  }

  /** The table, and views of the datasets. */
  #make(datasets) {
    const missing = [...new Set(datasets)].filter((dataset) => !this.#views.has(dataset.toLowerCase()));
    if (this.#views.size + missing.length > MOST_DATASETS)
      throw new Error(`There are more than ${MOST_DATASETS} datasets.`);
    for (const text of [...(this.#views.size === 0 ? MAKE_TABLE : []), ...missing.map(makeView)])
      this.#storage.sql.exec(text);
    for (const dataset of missing) this.#views.add(dataset.toLowerCase());
  }

  #sweep() {
    if (Date.now() - this.#sweptAt < SWEEP_MS) return;
    this.#sweptAt = Date.now();
    this.#run(removeOlder(now() - this.#limits.days * DAY_SECONDS));
  }

  #run({ sql, params }) {
    this.#storage.sql.exec(sql, ...params);
  }

  #lose(count, why) {
    this.#lost += count;
    if (Date.now() - this.#toldAt < TELL_MS) return;
    this.#toldAt = Date.now();
    console.warn(`${this.#lost} data points or more were not kept. ${why}`);
    this.#lost = 0;
  }
}

function now() {
  return Math.floor(Date.now() / 1_000);
}
