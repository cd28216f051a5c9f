/** The table of sources follows the operator's list. */
import { expect, test } from 'vitest';
import { MIGRATIONS } from '../../builtin-tenants/deals/src/database/migrations.ts';
import { syncSources } from '../../builtin-tenants/deals/src/sources/collect.ts';
import { memoryDatabase } from './support/memory-database.ts';
import { SOURCE } from './support/parts.ts';

test('a source that left the list and came back is read again', async () => {
  const db = memoryDatabase();
  for (const { statements } of MIGRATIONS) for (const statement of statements) db.sql(statement);
  const next = () => db.sql<{ next_at: number }>('SELECT next_at FROM sources')[0]?.next_at;
  await syncSources(db, [SOURCE], 1_000);
  expect(next()).toBe(1_000);
  await syncSources(db, [], 2_000);
  expect(next()).toBe(Number.MAX_SAFE_INTEGER);
  await syncSources(db, [SOURCE], 3_000);
  expect(next()).toBe(3_000);
  // One that stayed keeps its turn.
  await syncSources(db, [SOURCE], 4_000);
  expect(next()).toBe(3_000);
  db.close();
});
