/** A registry for a test: a file, or a database in the project `postgres`, where the same tests run again. */
import { inject } from 'vitest';
import { openRegistry, type Registry } from '../../../host/registry/index.ts';
import { postgresClient } from '../../../host/registry/postgres/client.ts';
import { openPostgresRegistry } from '../../../host/registry/postgres/index.ts';

const template = inject('postgresTemplate');
export const isPostgres = template !== undefined;

const RESET = `DO $$ DECLARE one text; BEGIN
  SET LOCAL session_replication_role = replica;
  FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'migrations' LOOP
    EXECUTE 'DELETE FROM ' || one;
  END LOOP;
  FOR one IN SELECT sequencename FROM pg_sequences LOOP EXECUTE 'ALTER SEQUENCE ' || one || ' RESTART'; END LOOP;
END $$`;

/** The file whose registry the database of this process holds. */
let held: string | undefined;

/** What was closed last gives back its leases until then. */
let closed: Promise<void> | undefined;

/** One at a time: a registry of another name takes the place of the one before. Tests need not wait for its end. */
export async function openTestRegistry(file: string): Promise<Registry> {
  if (template === undefined) return openRegistry(file);
  await closed;
  const url = template.replace('/template?', `/t${process.pid}?`);
  if (held === undefined)
    await run(template.replace('/template?', '/postgres?'), `CREATE DATABASE t${process.pid} TEMPLATE template`);
  else if (held !== file) await run(url, RESET);
  held = file;
  const registry = await openPostgresRegistry(url);
  const close = () => {
    closed = registry.end();
    return closed;
  };
  return { ...registry, close };
}

async function run(url: string, statement: string): Promise<void> {
  const client = postgresClient(url);
  try {
    await client.executeMultiple(statement);
  } finally {
    await client.end();
  }
}
