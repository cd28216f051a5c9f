/** Counts attempts in fixed windows, in the database: an instance may end at any time, and a limit must outlive it. */
import type { Database } from './environment.ts';
import { Problem } from './problem.ts';

/**
 * @param bucket what is limited, such as `sign-in:a@b.example`
 * @throws Problem rate_limited
 */
export async function limit(db: Database, bucket: string, most: number, windowMs: number): Promise<void> {
  const now = Date.now();
  const row = await db
    .prepare(
      `INSERT INTO rate_limits (bucket, window_ends, count) VALUES (?1, ?2 + ?3, 1)
       ON CONFLICT (bucket) DO UPDATE SET
         count = CASE WHEN window_ends <= ?2 THEN 1 ELSE count + 1 END,
         window_ends = CASE WHEN window_ends <= ?2 THEN ?2 + ?3 ELSE window_ends END
       RETURNING count, window_ends AS windowEnds`,
    )
    .bind(bucket, now, windowMs)
    .first<{ count: number; windowEnds: number }>();
  if (!row || row.count <= most) return;
  const seconds = Math.max(1, Math.ceil((row.windowEnds - now) / 1000));
  throw new Problem(
    'rate_limited',
    `Too many attempts; try again in ${seconds} s.`,
    {},
    { 'retry-after': `${seconds}` },
  );
}
