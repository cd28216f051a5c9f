/** Brings a tenant's database to its present tables, once per isolate, before the first request is served. */
import type { Database } from './database.ts';

export interface Migration {
  name: string;
  statements: string[];
}

const migrated = new WeakSet<Database>();

/**
 * Cheap once it succeeded. Requests that come before do not wait for each other: the one that is waited for may be cut
 * off, and would leave the others waiting for ever.
 */
export async function migrate(db: Database, migrations: readonly Migration[]): Promise<void> {
  if (migrated.has(db)) return;
  await db.prepare('CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT').run();
  const { results } = await db.prepare('SELECT name FROM migrations').all<{ name: string }>();
  const applied = new Set(results.map(({ name }) => name));
  for (const { name, statements } of migrations) {
    if (applied.has(name)) continue;
    const note = db.prepare('INSERT INTO migrations (name, at) VALUES (?, ?)').bind(name, Date.now());
    try {
      await db.batch([note, ...statements.map((sql) => db.prepare(sql))]);
    } catch (error) {
      // Two versions of a tenant run side by side for a moment at an update: the other one was quicker.
      const row = await db.prepare('SELECT 1 AS done FROM migrations WHERE name = ?').bind(name).first();
      if (!row) throw error;
    }
  }
  migrated.add(db);
}
