/** Where the operator moved business time to, kept over restarts. */
import type { Database } from '../registry/index.ts';
import { readSetting, savedSetting } from '../registry/settings.ts';

const NAME = 'clock-offset-ms';

export async function readClockOffset(db: Database): Promise<number> {
  return Number((await readSetting(db, NAME)) ?? 0);
}

export async function writeClockOffset(db: Database, offsetMs: number): Promise<void> {
  await savedSetting(db, NAME, String(offsetMs));
}
