/**
 * Room that the registry has on a full disk, whoever has filled it: its file has free pages, and its log is kept at its
 * length, so that what is written next takes no space of the disk. Payments go on, and what moved on the chain is noted.
 */
import { statfs } from 'node:fs/promises';
import type { Client } from '@libsql/client/sqlite3';

/** In free pages: a payment takes some two of them. */
const ROOM_BYTES = 16 * 1_048_576;
/** In one transaction, and so in one turn of the event loop. */
const STEP_BYTES = 262_144;
/** Table that takes the pages and gives them back; a crash may leave it. */
const FILLER = 'room_filler';

/**
 * Makes the room again where less than half of it is left, and the disk has more than twice as much: with less, this
 * would use up what it is to keep.
 * @param folder of the registry's file
 */
export async function keepRoom(client: Client, folder: string): Promise<void> {
  const left = (await pragma(client, 'freelist_count')) * (await pragma(client, 'page_size'));
  if (left >= ROOM_BYTES / 2) return;
  const { bavail, bsize } = await statfs(folder);
  if (bavail * bsize < ROOM_BYTES * 2) return;
  await client.execute(`CREATE TABLE IF NOT EXISTS ${FILLER} (pages BLOB)`);
  try {
    for (let filled = 0; filled < ROOM_BYTES; filled += STEP_BYTES)
      await client.execute(`INSERT INTO ${FILLER} VALUES (zeroblob(${STEP_BYTES}))`);
  } finally {
    const { rows } = await client.execute(`SELECT rowid AS id FROM ${FILLER}`);
    for (const { id } of rows) await client.execute(`DELETE FROM ${FILLER} WHERE rowid = ?`, [Number(id)]);
    await client.execute(`DROP TABLE ${FILLER}`);
    // Until then the last pages are in the log alone, and would not find their place on a full disk.
    await client.execute('PRAGMA wal_checkpoint(PASSIVE)');
  }
}

async function pragma(client: Client, name: string): Promise<number> {
  const { rows } = await client.execute(`PRAGMA ${name}`);
  return Number(rows[0]?.[name]);
}
