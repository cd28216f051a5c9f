/**
 * One tenant's database on a libSQL server, with the behaviour of the embedded one. The guard stays in front:
 * a statement that the server runs could read the server's own files.
 */
import { carefulText, decodeRow, needsCare } from './careful.ts';
import { MESSAGES, resultTooBig, SqlFailure, sqliteMessage, timedOut, tooManyRows } from './failure.ts';
import {
  type BatchOutcome,
  fromHrana,
  HranaClient,
  type HranaError,
  RemoteTimeout,
  RemoteUnavailable,
  type Step,
  type StepResult,
  toHrana,
} from './hrana.ts';
import type { SqlLimits } from './limits.ts';
import type { Parameter } from './parameters.ts';
import type { Query, StatementResult } from './protocol.ts';
import { mendStrings, offsetOf } from './quotes.ts';
import { readStatements, textOf } from './reading.ts';
import type { RemoteSettings } from './settings.ts';
import type { Statement } from './statements.ts';
import { TOKEN } from './tokenizer.ts';

interface Task {
  /** The text that the statement is in. */
  sql: string;
  text: string;
  statement: Statement;
  parameters: Parameter[];
  /** Ends a query: its result counts. */
  last: boolean;
  columns: readonly string[] | undefined;
  names: ReadonlyMap<string, string> | undefined;
}

const COUNTERS = 'SELECT total_changes(), last_insert_rowid()';
const SIZE = 'SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()';
/** Room for JSON around values, and base64. */
const WIRE_FACTOR = 3;

export class RemoteStore {
  readonly #client: HranaClient;
  readonly #limits: SqlLimits;
  #lastRowId = 0;
  #size = 0;
  /** Writers of one tenant take turns: the server would answer some of them that the database is busy. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(remote: RemoteSettings, limits: SqlLimits) {
    this.#client = new HranaClient(remote, limits.timeoutMs, limits.maxResultBytes * WIRE_FACTOR);
    this.#limits = limits;
  }

  /**
   * Runs the queries of one request, all or nothing.
   * @throws SqlFailure with the message for the tenant
   */
  async run(queries: readonly Query[]): Promise<StatementResult[]> {
    const tasks = toTasks(queries);
    if (tasks.length === 0) throw new SqlFailure(MESSAGES.noStatements);
    const reads = tasks.every(({ statement }) => statement.kind === 'read');
    try {
      if (reads) return await this.#runTasks(tasks, false);
      const run = this.#turn.then(() => this.#runTasks(tasks, true));
      this.#turn = run.catch(() => undefined);
      return await run;
    } catch (error) {
      if (error instanceof RemoteTimeout) throw new SqlFailure(timedOut(this.#limits.timeoutMs));
      throw error;
    }
  }

  async #runTasks(tasks: Task[], writes: boolean): Promise<StatementResult[]> {
    for (const task of tasks) await this.#care(task);
    const plan = planOf(tasks, writes);
    let outcome = await this.#client.batch(plan.steps);
    const failed = firstError(outcome);
    if (failed !== undefined && (await this.#mend(tasks, failed))) {
      outcome = await this.#client.batch(planOf(tasks, writes).steps);
    }
    const error = firstError(outcome);
    if (error !== undefined) throw toFailure(error, tasks);
    const { results } = outcome as Extract<BatchOutcome, { kind: 'done' }>;
    // A step is left out only where one before it failed.
    if (plan.needed.some((step) => !results[step])) {
      throw new RemoteUnavailable('the SQL server left steps out without an error');
    }
    return this.#collect(tasks, plan, results);
  }

  /** A read that can make text which is not UTF-8 asks for text as bytes: the server cannot send it otherwise. */
  async #care(task: Task): Promise<void> {
    if (task.statement.kind !== 'read' || task.statement.explain || !needsCare(task.statement)) return;
    const columns = await this.#client.describe(task.text);
    if (!Array.isArray(columns)) return;
    const careful = carefulText(task.text, columns.length);
    if (careful === undefined) return;
    task.text = careful;
    task.columns = columns;
  }

  /** "text" in double quotes: see quotes.ts. Answers whether to try again. */
  async #mend(tasks: Task[], error: HranaError): Promise<boolean> {
    const { message } = clean(error);
    for (const task of tasks) {
      const mending = mendStrings(task.text, task.statement, message);
      let step = mending.next();
      while (!step.done) {
        const described = await this.#client.describe(step.value);
        step = mending.next(Array.isArray(described) ? undefined : clean(described).message);
      }
      if (step.value === undefined) continue;
      task.text = step.value.sql;
      task.names = step.value.names;
      return true;
    }
    return false;
  }

  #collect(tasks: Task[], plan: Plan, steps: (StepResult | null)[]): StatementResult[] {
    const results: StatementResult[] = [];
    let bytes = 0;
    let total = numbers(steps[plan.counters])[0] ?? 0;
    const size = plan.size === undefined ? this.#size : (numbers(steps[plan.size])[0] ?? this.#size);
    let sums = { duration: 0, changes: 0, rowsRead: 0, rowsWritten: 0 };
    let rowIdBefore = this.#lastRowId;
    let redefines = false;
    for (const [index, task] of tasks.entries()) {
      const at = plan.positions[index] ?? 0;
      const step = steps[at];
      let changes = 0;
      if (plan.counted) {
        const [after = total, rowId = 0] = numbers(steps[at + 1]);
        changes = after - total;
        total = after;
        // A fresh connection knows of no insert.
        if (rowId !== 0) this.#lastRowId = rowId;
      }
      if (task.statement.kind === 'schema') redefines = true;
      sums = {
        duration: sums.duration + (step?.query_duration_ms ?? 0),
        changes: sums.changes + changes,
        rowsRead: sums.rowsRead + (step?.rows_read ?? 0),
        rowsWritten: sums.rowsWritten + (step?.rows_written ?? 0),
      };
      if (!task.last) continue;
      const rows = this.#rows(task, step);
      bytes += JSON.stringify(rows).length;
      if (bytes > this.#limits.maxResultBytes) throw new SqlFailure(resultTooBig(this.#limits.maxResultBytes));
      const changed =
        redefines || sums.changes > 0 || this.#lastRowId !== rowIdBefore || (plan.counted && size !== this.#size);
      const meta = { ...sums, changed, lastRowId: this.#lastRowId, sizeAfter: size };
      results.push({ columns: this.#columns(task, step), rows, meta });
      sums = { duration: 0, changes: 0, rowsRead: 0, rowsWritten: 0 };
      rowIdBefore = this.#lastRowId;
      redefines = false;
    }
    this.#size = size;
    return results;
  }

  #columns(task: Task, step: StepResult | null | undefined): readonly string[] {
    const columns = task.columns ?? step?.cols.map((column) => column.name ?? '') ?? [];
    return task.names === undefined ? columns : columns.map((name) => task.names?.get(name) ?? name);
  }

  #rows(task: Task, step: StepResult | null | undefined): unknown[][] {
    const careful = task.columns !== undefined;
    const rows = step?.rows ?? [];
    if (rows.length > this.#limits.maxRows) throw new SqlFailure(tooManyRows(this.#limits.maxRows));
    return rows.map((values) => {
      const row = values.map((value) => fromHrana(value, careful));
      if (careful) {
        decodeRow(row);
        return row.map((value) => (value instanceof Uint8Array ? Array.from(value) : value));
      }
      return row;
    });
  }
}

interface Plan {
  steps: Step[];
  /** Step of each task. */
  positions: number[];
  /** Step that counts before the first task; each task is followed by another. */
  counters: number;
  counted: boolean;
  size: number | undefined;
  /** Steps without which the work was not done: statements, and what commits them. */
  needed: number[];
}

/** One batch: everything in a transaction that is rolled back unless every step went well. */
function planOf(tasks: Task[], writes: boolean): Plan {
  const steps: Step[] = [];
  const positions: number[] = [];
  const add = (sql: string, chained: boolean, statement?: Statement, parameters: Parameter[] = []): number => {
    const stmt = { sql, ...argumentsOf(statement, parameters) };
    const previous = steps.length - 1;
    steps.push(chained && previous >= 0 ? { stmt, condition: { type: 'ok', step: previous } } : { stmt });
    return steps.length - 1;
  };
  if (!writes) {
    // Reads of one request see one moment.
    if (tasks.length > 1) add('BEGIN', false);
    for (const task of tasks) positions.push(add(task.text, true, task.statement, task.parameters));
    return { steps, positions, counters: -1, counted: false, size: undefined, needed: positions };
  }
  add('BEGIN', false);
  const counters = add(COUNTERS, true);
  for (const task of tasks) {
    positions.push(add(task.text, true, task.statement, task.parameters));
    add(COUNTERS, true);
  }
  const size = add(SIZE, true);
  const commit = add('COMMIT', true);
  steps.push({ stmt: { sql: 'ROLLBACK' }, condition: { type: 'not', cond: { type: 'ok', step: commit } } });
  return { steps, positions, counters, counted: true, size, needed: [...positions, commit] };
}

/** Positional values by their number, and named ones by name: the server does not number names as SQLite does. */
function argumentsOf(statement: Statement | undefined, parameters: Parameter[]): Partial<Step['stmt']> {
  if (statement === undefined || parameters.length === 0) return {};
  const names = new Map<number, string>();
  let highest = 0;
  for (const { kind, text } of statement.tokens) {
    if (kind !== TOKEN.variable) continue;
    if (text === '?') highest++;
    else if (text.startsWith('?')) highest = Math.max(highest, Number(text.slice(1)));
    else if (![...names.values()].includes(text)) names.set(highest++, text);
  }
  const values = parameters.map(toHrana);
  if (names.size === 0) return { args: values };
  return { named_args: values.map((value, index) => ({ name: names.get(index) ?? `?${index + 1}`, value })) };
}

function toTasks(queries: readonly Query[]): Task[] {
  return queries.flatMap(({ sql, parameters }) => {
    const read = readStatements(sql);
    if (read.statements.length === 0) return [];
    if (read.parameters !== parameters.length) throw new SqlFailure(MESSAGES.bindings);
    return read.statements.map((statement, index) => {
      const last = index === read.statements.length - 1;
      return {
        sql,
        text: textOf(sql, statement),
        statement,
        parameters: last ? parameters : [],
        last,
        columns: undefined,
        names: undefined,
      };
    });
  });
}

function firstError(outcome: BatchOutcome): HranaError | undefined {
  if (outcome.kind === 'failed') return outcome.error;
  return outcome.errors.find((error) => error !== null) ?? undefined;
}

function numbers(step: StepResult | null | undefined): number[] {
  return step?.rows[0]?.map((value) => Number(fromHrana(value, false))) ?? [];
}

/** Extended codes the server leaves out and the message tells. */
const EXTENDED: [RegExp, string][] = [
  [/^NOT NULL constraint failed/, 'SQLITE_CONSTRAINT_NOTNULL'],
  [/^CHECK constraint failed/, 'SQLITE_CONSTRAINT_CHECK'],
  [/^FOREIGN KEY constraint failed/, 'SQLITE_CONSTRAINT_FOREIGNKEY'],
  [/^UNIQUE constraint failed/, 'SQLITE_CONSTRAINT'],
  [/^cannot store [A-Z]+ value in /, 'SQLITE_CONSTRAINT_DATATYPE'],
];

/** The server's wording back to SQLite's. */
function clean(error: HranaError): { message: string; offset: number | undefined } {
  const message = error.message
    .replace(/^SQLite error: /, '')
    .replace(/^SQL input error: /, '')
    .replace(/^SQL string could not be parsed: /, '')
    .replace(/^syntax error around L\d+:\d+: `(.*)`$/s, 'near "$1": syntax error')
    .replace(/^near [A-Z_]+, "(?:Some\("(.*)"\)|None)": syntax error at .*$/s, 'near "$1": syntax error')
    .replace(/^unexpected end of input.*$/s, 'incomplete input');
  const offset = / \(at offset (\d+)\)$/.exec(message);
  if (offset === null) return { message, offset: undefined };
  return { message: message.slice(0, offset.index), offset: Number(offset[1]) };
}

function toFailure(error: HranaError, tasks: Task[]): SqlFailure {
  const { message, offset } = clean(error);
  if (/database or disk is full|size limit|max_db_size|exceeded.*size/i.test(message))
    return new SqlFailure(MESSAGES.full);
  const code = EXTENDED.find(([pattern]) => pattern.test(message))?.[1];
  const offsets = tasks.flatMap(({ sql, statement }) => offsetOf(sql, statement, message) ?? []);
  const known = offset ?? (offsets.length === 1 ? offsets[0] : undefined);
  return new SqlFailure(sqliteMessage(message, code ?? codeOf(error), known));
}

function codeOf(error: HranaError): string {
  return error.code.startsWith('SQLITE_') && error.code !== 'SQLITE_UNKNOWN' ? error.code : 'SQLITE_ERROR';
}
