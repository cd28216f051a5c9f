/**
 * What workerd's own engine of workflows does not have (1.20261117.1): it goes on soon after a kill, and lists the
 * instances of a workflow. Each is added to an index before it is made, and asked what became of it when somebody reads
 * the list. It runs inside workerd alone: objects-config.ts embeds it.
 */
import { DurableObject, WorkerEntrypoint } from 'cloudflare:workers';
import workflows, { Engine as BundledEngine, WorkflowBinding } from './workflows.js';

const ENDED = ['complete', 'errored', 'terminated'];
const STATUSES = [...ENDED, 'queued', 'running', 'paused', 'waiting', 'waitingForPause', 'rollingBack'];
const MOST = 100;
/** Instances that one call looks at, and those that it asks, at most: what is left comes with the next page. */
const MOST_LOOKED_AT = 1_000;
const MOST_ASKED = 200;
const ASKED_AT_ONCE = 20;
/** An instance that has just been added may not be made yet, ms. */
const BEING_MADE_MS = 60_000;

/** A step that runs when the process is killed is run again so much later at most, ms: the engine by itself takes ten minutes. */
const WATCH_MS = 5_000;

export default workflows;
export { WorkflowBinding };

/** One instance of a workflow. */
export class Engine extends BundledEngine {
  constructor(ctx, env) {
    super(ctx, env);
    const { storage } = ctx;
    const setAlarm = storage.setAlarm.bind(storage);
    storage.setAlarm = (at, options) => {
      const { status } = storage.kv.get('meta') ?? {};
      const running = status !== undefined && status !== 'waiting' && !ENDED.includes(status);
      return setAlarm(running ? Math.min(at, Date.now() + WATCH_MS) : at, options);
    };
  }

  get #index() {
    return this.env.INSTANCES.getByName(this.ctx.props.workflowName);
  }

  async create(params, retention) {
    await this.#index.add(this.ctx.id.name);
    return super.create(params, retention);
  }

  async restart(options) {
    // It counts as ended no more.
    await this.#index.add(this.ctx.id.name);
    return super.restart(options);
  }

  async alarm() {
    await super.alarm();
    const { storage, id } = this.ctx;
    const { status } = storage.kv.get('meta') ?? {};
    // Its retention is over.
    if (status === undefined) await this.#index.remove(id.name);
    // A wait has ended, and the engine sets the next alarm when run() goes on: a kill before that would leave none.
    else if (status === 'waiting' && (await storage.getAlarm()) === null) storage.setAlarm(Date.now() + WATCH_MS);
  }

  async sendEvent(event) {
    super.sendEvent(event);
    const { storage } = this.ctx;
    // The same: what is set is the end of the wait, which may be days ahead.
    const soon = Date.now() + WATCH_MS;
    const next = await storage.getAlarm();
    if (next === null || next > soon) storage.setAlarm(soon);
  }

  async destroy() {
    await this.#index.remove(this.ctx.id.name);
    return super.destroy();
  }

  /** Unlike status(), it starts nothing. */
  summary() {
    const { kv } = this.ctx.storage;
    const meta = kv.get('meta');
    if (!meta) return null;
    const { status, created, error } = meta;
    const [[, last] = []] = [...kv.list({ prefix: 'l:', reverse: true, limit: 1 })];
    return {
      status,
      created,
      ended: ENDED.includes(status) ? (last?.timestamp ?? created) : null,
      error: error ? `${error.name}: ${error.message}`.slice(0, 200) : null,
    };
  }
}

/** The instances of a workflow by their age. */
export class Instances extends DurableObject {
  constructor(ctx, env) {
    super(ctx, env);
    ctx.storage.sql.exec(`
      CREATE TABLE IF NOT EXISTS instances (
        number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, added INTEGER NOT NULL,
        status TEXT, created INTEGER, ended INTEGER, error TEXT
      )`);
  }

  add(id) {
    this.ctx.storage.sql.exec(
      'INSERT INTO instances (id, added) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET status = NULL, added = ?2',
      id,
      Date.now(),
    );
  }

  remove(id) {
    this.ctx.storage.sql.exec('DELETE FROM instances WHERE id = ?', id);
  }

  /** The newest first. @param cursor where the page before it ended */
  async page(workflow, { status, limit = MOST, cursor } = {}) {
    const { sql } = this.ctx.storage;
    const engines = this.env[`workflow:${workflow}`];
    const rows = sql
      .exec(
        'SELECT * FROM instances WHERE number < ? ORDER BY number DESC LIMIT ?',
        cursor ?? Number.MAX_SAFE_INTEGER,
        MOST_LOOKED_AT + 1,
      )
      .toArray();
    const found = [];
    let asked = 0;
    let at = 0;
    while (at < rows.length && at < MOST_LOOKED_AT && found.length < limit && asked < MOST_ASKED) {
      const part = rows.slice(at, Math.min(at + ASKED_AT_ONCE, MOST_LOOKED_AT));
      const known = await Promise.all(
        part.map((row) => {
          if (ENDED.includes(row.status)) return row;
          asked++;
          return this.#ask(engines, row);
        }),
      );
      for (const row of known) {
        if (found.length === limit) break;
        at++;
        if (row && (status === undefined || row.status === status)) found.push(row);
      }
    }
    return {
      instances: found.map(({ id, status, created, ended, error }) => ({
        id,
        status,
        created: new Date(created).toISOString(),
        ...(ended ? { ended: new Date(ended).toISOString() } : {}),
        ...(error ? { error } : {}),
      })),
      ...(at < rows.length ? { cursor: String(rows[at - 1].number) } : {}),
    };
  }

  async #ask(engines, row) {
    const { sql } = this.ctx.storage;
    const known = await engines.getByName(row.id).summary();
    if (known === null) {
      if (row.added < Date.now() - BEING_MADE_MS) sql.exec('DELETE FROM instances WHERE number = ?', row.number);
      return undefined;
    }
    const { status, created, ended, error } = known;
    // Unless it was started again meanwhile.
    if (ENDED.includes(status))
      sql.exec(
        'UPDATE instances SET status = ?, created = ?, ended = ?, error = ? WHERE number = ? AND added = ?',
        status,
        created,
        ended,
        error,
        row.number,
        row.added,
      );
    return { ...row, ...known };
  }
}

/** The owner's side of a workflow. */
export class WorkflowControl extends WorkerEntrypoint {
  list({ status, limit, cursor } = {}) {
    const { workflow } = this.ctx.props;
    if (status !== undefined && !STATUSES.includes(status)) throw new Error(`status is one of ${STATUSES.join(', ')}`);
    const whole = (text, most) => (/^[1-9]\d{0,14}$/.test(text) && Number(text) <= most ? Number(text) : undefined);
    if (limit !== undefined && whole(limit, MOST) === undefined) throw new Error(`limit is 1 to ${MOST}`);
    if (cursor !== undefined && whole(cursor, Infinity) === undefined) throw new Error('cursor is of another list');
    return this.env.INSTANCES.getByName(workflow).page(workflow, {
      status,
      limit: limit && Number(limit),
      cursor: cursor && Number(cursor),
    });
  }
}
