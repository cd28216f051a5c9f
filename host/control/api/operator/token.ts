/** The operator's token: made at the first start, shown once, kept as a hash. */
import { createHash, randomBytes } from 'node:crypto';
import type { Database } from '../../../registry/index.ts';
import { addSetting, readSetting } from '../../../registry/settings.ts';

const SETTING = 'operator-token-sha256';

/** @returns the hash, and the token itself when it was just made */
export async function operatorToken(db: Database): Promise<{ hash: string; fresh?: string }> {
  const kept = await readSetting(db, SETTING);
  if (kept !== undefined) return { hash: kept };
  const fresh = `op_${randomBytes(24).toString('base64url')}`;
  const hash = createHash('sha256').update(fresh).digest('hex');
  return (await addSetting(db, SETTING, hash)) ? { hash, fresh } : operatorToken(db);
}
