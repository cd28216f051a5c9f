/** What is used of the package `pg`, which comes without types. */
import { createRequire } from 'node:module';

export interface PgError extends Error {
  /** SQLSTATE, or the system's code where the connection was lost. */
  code?: string;
  constraint?: string;
  column?: string;
}

export interface PgResult {
  /** `COMMIT`, `ROLLBACK`, `INSERT`, … */
  command: string;
  rowCount: number | null;
  fields: { name: string; dataTypeID: number }[];
  rows: unknown[][];
}

export interface PgQuery {
  text: string;
  /** Under which the connection keeps it prepared. */
  name?: string;
  values?: unknown[];
  rowMode: 'array';
  types: { getTypeParser(type: number): (text: string) => unknown };
}

export interface PgConnection {
  query(query: PgQuery): Promise<PgResult>;
  query(text: string): Promise<unknown>;
  on(event: 'error', listener: (error: Error) => void): void;
  /** @param broken it is closed, and not used again */
  release(broken: boolean): void;
}

export interface PgPool {
  connect(): Promise<PgConnection>;
  /** On any of its connections; rows by the names of their columns. */
  query(query: { name?: string; text: string; values?: unknown[] }): Promise<{ rows: Record<string, unknown>[] }>;
  end(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): void;
  on(event: 'connect', listener: (connection: PgConnection) => void): void;
}

export interface PgPoolOptions {
  connectionString: string;
  max: number;
  connectionTimeoutMillis: number;
  keepAlive: boolean;
  pipeline: boolean;
  /** After which a statement fails, and its connection with it, ms. */
  query_timeout?: number;
}

/** One connection outside a pool; rows by the names of their columns. */
export interface PgClient {
  connect(): Promise<void>;
  query(query: { text: string; values?: unknown[] } | string): Promise<{ rows: Record<string, unknown>[] }>;
  on(event: 'error' | 'end', listener: () => void): void;
  on(event: 'notification', listener: (message: { channel: string; payload?: string }) => void): void;
  end(): Promise<void>;
}

export interface PgClientOptions {
  connectionString: string;
  connectionTimeoutMillis: number;
  /** After which a statement fails, ms. */
  query_timeout: number;
  keepAlive: boolean;
  /** As pg_stat_activity shows it. */
  application_name: string;
}

interface Pg {
  Pool: new (options: PgPoolOptions) => PgPool;
  Client: new (options: PgClientOptions) => PgClient;
}

export const { Pool, Client } = createRequire(import.meta.url)('pg') as Pg;

/** @param session statements that each new connection runs first */
export function openPool(
  options: Omit<PgPoolOptions, 'keepAlive' | 'pipeline'> & { pipeline?: boolean },
  session: string,
): PgPool {
  const pool = new Pool({ pipeline: true, ...options, keepAlive: true });
  // Of a connection that nobody uses: the pool opens another.
  pool.on('error', () => {});
  pool.on('connect', (connection) => {
    // The statement in flight fails with the same error.
    connection.on('error', () => {});
    connection.query(session).catch(() => {});
  });
  return pool;
}
