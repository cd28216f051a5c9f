/** What D1 offers, as far as built-in tenants use it. */

export interface Statement {
  bind(...values: (string | number | null | Uint8Array)[]): Statement;
  first<Row>(): Promise<Row | null>;
  all<Row>(): Promise<{ results: Row[]; meta: { changes: number } }>;
  run(): Promise<{ meta: { changes: number } }>;
}

export interface Database {
  prepare(sql: string): Statement;
  /** One transaction, all or nothing. */
  batch<Row>(statements: Statement[]): Promise<{ results: Row[]; meta: { changes: number } }[]>;
}
