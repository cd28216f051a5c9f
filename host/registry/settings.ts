/** What is kept by name, one text each. Every name is used by one file only. */
import type { Transaction } from './deployment-memory.ts';
import { eq } from './drizzle.ts';
import type { Database } from './index.ts';
import { settings } from './schema/deployments.ts';

export async function readSetting(db: Database | Transaction, name: string): Promise<string | undefined> {
  const [row] = await db.select().from(settings).where(eq(settings.name, name));
  return row?.value;
}

/** To be run, or to be written together with other statements. */
export function savedSetting(db: Database | Transaction, name: string, value: string) {
  return db.insert(settings).values({ name, value }).onConflictDoUpdate({ target: settings.name, set: { value } });
}

/** @returns false: there is one already, and it stays */
export async function addSetting(db: Database, name: string, value: string): Promise<boolean> {
  const result = await db.insert(settings).values({ name, value }).onConflictDoNothing();
  return result.rowsAffected === 1;
}

const CLOCK_OFFSET = 'clock-offset-ms';

/** @returns how far the operator moved business time, ms */
export async function readClockOffset(db: Database): Promise<number> {
  return Number((await readSetting(db, CLOCK_OFFSET)) ?? 0);
}

export async function writeClockOffset(db: Database, offsetMs: number): Promise<void> {
  await savedSetting(db, CLOCK_OFFSET, String(offsetMs));
}
