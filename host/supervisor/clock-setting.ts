/** Where the operator moved business time to, kept over restarts. */
import { eq } from '../registry/drizzle.ts';
import type { Database } from '../registry/index.ts';
import { settings } from '../registry/schema/deployments.ts';

const NAME = 'clock-offset-ms';

export async function readClockOffset(db: Database): Promise<number> {
  const [row] = await db.select().from(settings).where(eq(settings.name, NAME));
  return Number(row?.value ?? 0);
}

export async function writeClockOffset(db: Database, offsetMs: number): Promise<void> {
  const value = String(offsetMs);
  await db.insert(settings).values({ name: NAME, value }).onConflictDoUpdate({ target: settings.name, set: { value } });
}
