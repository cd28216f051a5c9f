/** Brings the database to the present tables, once per isolate, before the first request is served. */
import type { Database } from '../environment.ts';
import { MIGRATIONS } from './migrations.ts';

const migrated = new WeakMap<Database, Promise<void>>();

/** Cheap after the first call; a failed migration is tried again by the next one. */
export function migrate(db: Database): Promise<void> {
  let done = migrated.get(db);
  if (!done) {
    done = apply(db).catch((error) => {
      migrated.delete(db);
      throw error;
    });
    migrated.set(db, done);
  }
  return done;
}

async function apply(db: Database): Promise<void> {
  await db.prepare('CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT').run();
  const { results } = await db.prepare('SELECT name FROM migrations').all<{ name: string }>();
  const applied = new Set(results.map(({ name }) => name));
  for (const { name, statements } of MIGRATIONS) {
    if (applied.has(name)) continue;
    const note = db.prepare('INSERT INTO migrations (name, at) VALUES (?, ?)').bind(name, Date.now());
    try {
      await db.batch([note, ...statements.map((sql) => db.prepare(sql))]);
    } catch (error) {
      // Two versions of this tenant run side by side for a moment at an update: the other one was quicker.
      const row = await db.prepare('SELECT 1 AS done FROM migrations WHERE name = ?').bind(name).first();
      if (!row) throw error;
    }
  }
}
