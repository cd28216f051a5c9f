/** Which stored code may be removed: what no version runs, and no deploy that is being paid for waits for. */
import type { Transaction } from './deployment-memory.ts';
import { and, inArray, isNotNull } from './drizzle.ts';
import { payments } from './payments/schema.ts';
import { versions } from './schema/deployments.ts';

/** Asked for at once: SQLite takes only so many values. */
const BATCH = 500;

/** @returns those of the digests, each once, that are needed nowhere */
export async function unusedCode(db: Pick<Transaction, 'select'>, digests: string[]): Promise<string[]> {
  const unused = new Set(digests);
  for (let from = 0; from < digests.length; from += BATCH) {
    const asked = digests.slice(from, from + BATCH);
    const used = await db.select({ digest: versions.digest }).from(versions).where(inArray(versions.digest, asked));
    for (const { digest } of used) unused.delete(digest);
  }
  if (unused.size === 0) return [];
  const paying = await db
    .select({ prepared: payments.prepared })
    .from(payments)
    .where(and(inArray(payments.state, ['verified', 'settling', 'settled']), isNotNull(payments.prepared)));
  for (const { prepared } of paying) {
    for (const [digest] of prepared?.matchAll(/\b[0-9a-f]{64}\b/g) ?? []) unused.delete(digest);
  }
  return [...unused];
}
