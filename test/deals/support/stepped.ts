/** A program that is let go on step by step, or never again: as a process that another one overtakes, or that is killed. */
import type { Database, Statement } from '../../../builtin-tenants/deals/src/environment.ts';

export type Gate = () => Promise<void>;

export class Stepped {
  #waiting: (() => void) | undefined;
  #ended = false;
  #failed: unknown;

  /** @param work awaits the gate before each of its steps */
  constructor(work: (gate: Gate) => Promise<unknown>) {
    const gate = () =>
      new Promise<void>((resolve) => {
        this.#waiting = resolve;
      });
    work(gate).then(
      () => {
        this.#ended = true;
      },
      (error: unknown) => {
        this.#ended = true;
        this.#failed = error;
      },
    );
  }

  /** Takes so many steps, or as many as there are. @returns how many @throws what the program threw */
  async step(count: number): Promise<number> {
    let taken = 0;
    for (; taken < count && (await this.#atGate()); taken++) {
      const go = this.#waiting;
      this.#waiting = undefined;
      go?.();
    }
    // The last step is done when the program waits for its next one.
    await this.#atGate();
    return taken;
  }

  finish(): Promise<number> {
    return this.step(Number.POSITIVE_INFINITY);
  }

  async #atGate(): Promise<boolean> {
    while (!this.#waiting && !this.#ended) await new Promise((resolve) => setImmediate(resolve));
    if (this.#failed) throw this.#failed;
    return !this.#ended;
  }
}

/** The database, with the gate before every statement and every batch. */
export function gatedDatabase(db: Database, gate: Gate): Database {
  const inner = new WeakMap<Statement, Statement>();
  const gated = (statement: Statement): Statement => {
    const outer: Statement = {
      bind: (...values) => gated(statement.bind(...values)),
      async first<Row>() {
        await gate();
        return statement.first<Row>();
      },
      async all<Row>() {
        await gate();
        return statement.all<Row>();
      },
      async run() {
        await gate();
        return statement.run();
      },
    };
    inner.set(outer, statement);
    return outer;
  };
  return {
    prepare: (sql) => gated(db.prepare(sql)),
    async batch<Row>(statements: Statement[]) {
      await gate();
      return db.batch<Row>(statements.map((statement) => inner.get(statement) ?? statement));
    },
  };
}
