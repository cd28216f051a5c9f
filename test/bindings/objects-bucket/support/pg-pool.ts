/** A pool of connections as the bucket of objects takes it. */
import { createRequire } from 'node:module';
import type { Sql } from '../../../../host/bindings/objects-bucket/records.ts';

export interface PgTestPool extends Sql {
  end(): Promise<void>;
}

export function pgPool(connectionString: string): PgTestPool {
  const { Pool } = createRequire(import.meta.url)('pg') as {
    Pool: new (options: object) => PgTestPool & { on(event: 'error', listener: () => void): void };
  };
  const pool = new Pool({ connectionString, max: 8, connectionTimeoutMillis: 5_000, keepAlive: true });
  // Of a connection that nobody uses; the next query opens another.
  pool.on('error', () => undefined);
  return pool;
}
