/** The registry on PostgreSQL, for several nodes at once. */
import { drizzle } from '../drizzle.ts';
import { type Database, MIGRATIONS, migrate, type Registry, readMigrations } from '../index.ts';
import { postgresClient } from './client.ts';
import { PRELUDE } from './dialect.ts';

export interface PostgresRegistry extends Registry {
  /** As `close`, once all connections are closed. */
  end(): Promise<void>;
}

/** @param url `postgres://user:password@host/database`; several may open it at once, and one of them migrates it */
export async function openPostgresRegistry(url: string): Promise<PostgresRegistry> {
  const client = postgresClient(url);
  try {
    const migrations = await readMigrations(MIGRATIONS);
    await client.exclusively('turnpike migrations', async () => {
      await client.executeMultiple(PRELUDE);
      await migrate(client, migrations);
    });
  } catch (error) {
    await client.end();
    throw error;
  }
  return {
    db: drizzle(client) as unknown as Database,
    client,
    close: () => client.close(),
    end: () => client.end(),
  };
}
