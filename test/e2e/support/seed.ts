/** Many deployments at once, written into the registry of a stopped host: copies of one that was paid for. */
import path from 'node:path';
import Database from 'libsql';

/** Adds `seed-0`, `seed-1`, ... with the code and settings of `slug`. */
export async function seedDeployments(data: string, slug: string, count: number): Promise<void> {
  const db = new Database(path.join(data, 'registry.db'));
  try {
    db.exec('BEGIN');
    // The driver adds a member of its own to a row.
    const { _metadata, ...source } = db.prepare('SELECT * FROM deployments WHERE slug = ?').get([slug]) as Record<
      string,
      unknown
    >;
    const columns = Object.keys(source);
    const insert = db.prepare(
      `INSERT INTO deployments (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`,
    );
    for (let next = 0; next < count; next++) {
      const row = { ...source, slug: `seed-${next}`, tenant: `t${String(next).padStart(20, '0')}` };
      insert.run(Object.values(row) as never[]);
    }
    db.exec('COMMIT');
  } finally {
    db.close();
  }
}
