/**
 * The registry: everything the host must remember, in one libSQL file. `openRegistry` migrates it and gives the
 * drizzle database; the repositories beside this file hold the queries of one aggregate each.
 */
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Client } from '@libsql/client/sqlite3';
import type { LibSQLDatabase } from 'drizzle-orm/libsql';
import { Problem } from '../shared/problem.ts';
import { type Changes, NO_CHANGES } from './changes.ts';
import { openClient } from './client.ts';
import { drizzle } from './drizzle.ts';
import { type Leases, OwnLeases } from './leases.ts';

/** Drizzle over the registry. Transactions must wait for nothing but the database: they hold its only connection. */
export type Database = LibSQLDatabase<Record<string, never>>;

export interface Registry {
  db: Database;
  /** The connection below drizzle, for statements that drizzle has no words for. */
  client: Client;
  /** Which of several nodes this process is; null: it is the only one. */
  readonly node: string | null;
  readonly leases: Leases;
  readonly changes: Changes;
  /** Why it takes nothing any more until the host is started again; undefined: it does. */
  readonly failure: Error | undefined;
  close(): void | Promise<void>;
}

export interface FileRegistry extends Registry {
  /** Writes a consistent copy of the registry to `file` (must not exist) while it is in use. */
  copyTo(file: string): Promise<void>;
}

export const MIGRATIONS = fileURLToPath(new URL('migrations/', import.meta.url));

/** @param file path of the database; created if missing */
export async function openRegistry(file: string): Promise<FileRegistry> {
  const client = await openClient(file);
  await migrate(client, await readMigrations(MIGRATIONS));
  return {
    db: drizzle(client) as unknown as Database,
    client,
    node: null,
    leases: new OwnLeases(),
    changes: NO_CHANGES,
    get failure() {
      return client.failure;
    },
    async copyTo(target) {
      await client.execute({ sql: 'VACUUM INTO ?', args: [target] });
    },
    close: () => client.close(),
  };
}

export interface Migration {
  name: string;
  sql: string;
}

/** The `NNNN_name.sql` files of a folder in the order of their names. */
export async function readMigrations(folder: string): Promise<Migration[]> {
  const names = (await readdir(folder)).filter((name) => /^\d{4}_[\w-]+\.sql$/.test(name)).sort();
  return Promise.all(names.map(async (name) => ({ name, sql: await readFile(path.join(folder, name), 'utf8') })));
}

/**
 * Applies what was not applied yet, each file in one transaction together with the note that it was.
 * @throws Problem invalid_config when something was applied that is not among them
 */
export async function migrate(client: Client, migrations: Migration[]): Promise<void> {
  await client.executeMultiple(
    'CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT',
  );
  const applied = new Set((await client.execute('SELECT name FROM migrations')).rows.map((row) => row.name));
  const foreign = [...applied].find((name) => !migrations.some((migration) => migration.name === name));
  if (foreign !== undefined) {
    throw new Problem(
      'invalid_config',
      `The data folder was written by a newer version of Turnpike: this one does not know the change ${foreign} of its registry. Start that version, or restore a backup that was made before the update.`,
    );
  }
  for (const { name, sql } of migrations) {
    if (applied.has(name)) continue;
    const transaction = await client.transaction('write');
    try {
      await transaction.executeMultiple(sql);
      await transaction.execute({
        sql: 'INSERT INTO migrations (name, applied_at) VALUES (?, ?)',
        args: [name, Date.now()],
      });
      await transaction.commit();
    } catch (error) {
      if (!transaction.closed) await transaction.rollback();
      throw new Error(`migration ${name} failed`, { cause: error });
    }
  }
}
