import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { BLOB_SCHEMA, Blobs } from '../../host/storage/blobs/blobs.ts';
import { DiskBlobs } from '../../host/storage/blobs/disk.ts';
import { Checkpoints } from '../../host/storage/checkpoints.ts';
import { Database, type Writer } from '../../host/storage/database.ts';

const log = pino({ level: 'silent' });
let folder: string;
let database: Database;
let blobs: Blobs;
let insert: Writer;

function open(): void {
  database = new Database({
    path: join(folder, 'x.db'),
    schema: `CREATE TABLE rows (blob TEXT); ${BLOB_SCHEMA}`,
    checkpoints: new Checkpoints(log),
  });
  insert = database.writer('INSERT INTO rows VALUES (?)');
  blobs = new Blobs({
    backend: new DiskBlobs(join(folder, 'blobs')),
    database,
    log,
    named: 'SELECT 1 FROM rows WHERE blob = ?',
  });
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'blobs-'));
  open();
});
afterEach(async () => {
  await expect.poll(() => blobs.busy || database.busy).toBe(false);
  database.close(() => blobs.settle());
  blobs.close();
  rmSync(folder, { recursive: true });
});

const files = () => readdirSync(join(folder, 'blobs'));
const write = (text: string) => blobs.write({ length: text.length, chunks: [Buffer.from(text)] });
const name = (blob: string) => database.commit(() => void insert.run([blob]));

test('a blob reads back, whole and in part', async () => {
  const blob = await write('hello blob');
  expect(blobs.read(blob, 0, 10)).toEqual(Buffer.from('hello blob'));
  expect(blobs.read(blob, 6, 4)).toEqual(Buffer.from('blob'));
  expect(() => blobs.read(blob, 6, 5)).toThrow(/shorter than its index says/);
});

test('a stream must be as long as it said', async () => {
  const short = blobs.write({
    length: 5,
    stream: (async function* () {
      yield Buffer.from('abc');
    })(),
  });
  await expect(short).rejects.toThrow('expected 5 bytes, got 3');
  await expect.poll(files).toEqual([]);
});

test('a dropped blob goes once its last reader is done', async () => {
  const blob = await write('read me');
  blobs.hold(blob);
  blobs.drop([blob]);
  await new Promise((resolve) => setImmediate(resolve));
  expect(files()).toEqual([blob]);
  blobs.release(blob);
  await expect.poll(files).toEqual([]);
});

test('nothing is removed while removal is paused', async () => {
  const blob = await write('x');
  blobs.pauseRemoval();
  blobs.drop([blob]);
  await new Promise((resolve) => setImmediate(resolve));
  expect(files()).toEqual([blob]);
  blobs.resumeRemoval();
  await expect.poll(files).toEqual([]);
});

test('what was never named is collected after a crash, and only that', async () => {
  const kept = await write('kept');
  await name(kept);
  const lost = await write('lost');
  expect(files().sort()).toEqual([kept, lost].sort());
  // Closed without settling, as a kill does.
  database.close();
  open();
  const fresh = await write('not named yet, but of this opening');
  await expect.poll(files).not.toContain(lost);
  expect(files().sort()).toEqual([kept, fresh].sort());
});

test('after a clean end nothing is looked for', async () => {
  const stray = await write('named by nobody');
  database.close(() => blobs.settle());
  open();
  await expect.poll(() => blobs.busy).toBe(false);
  expect(files()).toEqual([stray]);
});

test('names are never used twice, not even by the next opening', async () => {
  const first = [await write('a'), await write('b')];
  database.close(() => blobs.settle());
  open();
  const second = [await write('c'), await write('d')];
  expect(new Set([...first, ...second]).size).toBe(4);
});
