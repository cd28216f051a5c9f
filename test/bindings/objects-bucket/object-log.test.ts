/** What is put together of an object: snapshots that are written here, and what a tenant could have put into its bucket. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, describe, expect, test } from 'vitest';
import { ObjectImage } from '../../../host/bindings/objects-bucket/object-log.ts';
import { alarmKey, isSnapshotOf, packSnapshot } from '../../../host/bindings/objects-bucket/snapshot.ts';

/** The head of a SQLite file says how many pages it has. */
function databaseOf(pages: number): Buffer {
  const database = Buffer.alloc(pages * 4_096, 7);
  database.writeUInt32BE(pages, 28);
  return database;
}

describe('objects of a cluster', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'tp-log-'));
  const file = path.join(folder, 'database');
  afterAll(() => rmSync(folder, { recursive: true }));
  /** @returns what is put together, and how many entries are in it */
  const imageOf = async (work: (image: ObjectImage) => Promise<void>) => {
    const made = path.join(folder, 'image');
    const handle = await open(made, 'w+');
    try {
      const image = new ObjectImage(handle);
      await work(image);
      await image.finish();
      return { number: image.number, database: readFileSync(made) };
    } finally {
      await handle.close();
    }
  };
  const snapshotOf = async (database: Buffer) => {
    writeFileSync(file, database);
    await packSnapshot(file, `${file}.packed`);
    return readFileSync(`${file}.packed`);
  };

  test('a snapshot is the database as it was, and that of another one is known', async () => {
    const database = databaseOf(300);
    const snapshot = await snapshotOf(database);
    expect(await isSnapshotOf(file, snapshot)).toBe(true);
    for (const other of [database.fill(8, database.length - 1), database.subarray(4_096), databaseOf(301)]) {
      writeFileSync(file, other);
      expect(await isSnapshotOf(file, snapshot)).toBe(false);
    }
    database.fill(7, database.length - 1);
    const image = await imageOf((empty) => empty.begin(snapshot));
    expect([image.number, image.database.equals(database)]).toEqual([1, true]);
  });

  test('an alarm is found by its time', () => {
    expect(alarmKey('name', 'id', 0x1a21aec8ca7)).toBe(`v1/alarms/${'0'.repeat(32)}/k1a21aec8ca7/name/id/a1`);
  });

  test.each([
    ['nothing', Buffer.alloc(0)],
    ['what is not packed', Buffer.from('SQLite format 3')],
    ['bytes of no message', gzipSync(Buffer.alloc(64, 255))],
    ['a message that is cut off', gzipSync(Buffer.from('0000000009000000', 'hex'))],
    ['pointers to themselves', gzipSync(Buffer.from('0000000001000000fcffffff04000100', 'hex'))],
  ])('%s is refused, as a snapshot and as a log', async (_what, bytes) => {
    await expect(imageOf((image) => image.begin(bytes))).rejects.toThrow();
    await expect(imageOf((image) => image.add(bytes))).rejects.toThrow();
  });

  test('a file that is not as long as it says is refused', async () => {
    const database = databaseOf(2).subarray(0, 4_096);
    const snapshot = await snapshotOf(database);
    await expect(imageOf((image) => image.begin(snapshot))).rejects.toThrow(/no whole database/);
  });
});
