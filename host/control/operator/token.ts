/** The operator's token: made at the first start, shown once, kept as a hash. */
import { createHash, randomBytes } from 'node:crypto';
import { eq } from '../../registry/drizzle.ts';
import type { Database } from '../../registry/index.ts';
import { settings } from '../../registry/schema/deployments.ts';

const SETTING = 'operator-token-sha256';

/** @returns the hash, and the token itself when it was just made */
export async function operatorToken(db: Database): Promise<{ hash: string; fresh?: string }> {
  const [row] = await db.select().from(settings).where(eq(settings.name, SETTING));
  if (row) return { hash: row.value };
  const fresh = `op_${randomBytes(24).toString('base64url')}`;
  const hash = createHash('sha256').update(fresh).digest('hex');
  await db.insert(settings).values({ name: SETTING, value: hash });
  return { hash, fresh };
}
