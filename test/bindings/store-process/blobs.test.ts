import { fdatasync, mkdtempSync, readdirSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pino from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { BLOB_SCHEMA, Blobs } from '../../../host/bindings/store-process/blobs/blobs.ts';
import { DiskBlobs } from '../../../host/bindings/store-process/blobs/disk.ts';
import { type Extent, Extents } from '../../../host/bindings/store-process/blobs/extents.ts';
import { Checkpoints } from '../../../host/bindings/store-process/checkpoints.ts';
import { Database, type DatabaseOptions, type Writer } from '../../../host/bindings/store-process/database.ts';

const log = pino({ level: 'silent' });
let folder: string;
let database: Database;
let blobs: Blobs;
let insert: Writer;
let extents: Extents;
let sync: NonNullable<DatabaseOptions['sync']>;

function open(): void {
  database = new Database({
    path: join(folder, 'x.db'),
    schema: `CREATE TABLE rows (blob TEXT); ${BLOB_SCHEMA}`,
    checkpoints: new Checkpoints(log),
    sync: (descriptor, done) => sync(descriptor, done),
  });
  insert = database.writer('INSERT INTO rows VALUES (?)');
  extents = new Extents(join(folder, 'x.extents'), []);
  blobs = new Blobs({
    backend: new DiskBlobs(join(folder, 'blobs')),
    database,
    log,
    named: 'SELECT 1 FROM rows WHERE blob = ?',
    extents,
  });
}

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'blobs-'));
  sync = fdatasync;
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

describe('an extent', () => {
  const put = (text: string): Extent => {
    const extent = extents.allocate(text.length);
    writeSync(extent.descriptor, text, extent.position);
    return extent;
  };

  test('reads back as a blob does', () => {
    const { name } = put('hello extent');
    expect(blobs.isDirect(name, 10_000_000)).toBe(true);
    expect(blobs.read(name, 6, 6)).toEqual(Buffer.from('extent'));
  });

  test('is used again once it is dropped', () => {
    const first = put('one');
    put('two');
    blobs.drop([first.name]);
    expect(put('new').position).toBe(first.position);
  });

  test('is not used again while a copy is made', () => {
    const first = put('one');
    put('two');
    blobs.pauseRemoval();
    blobs.drop([first.name]);
    expect(put('new').position).not.toBe(first.position);
    expect(blobs.read(first.name, 0, 3)).toEqual(Buffer.from('one'));
    blobs.resumeRemoval();
    expect(put('new').position).toBe(first.position);
  });

  test('is not used again where the row that it was for may be on the disk', async () => {
    const first = put('one');
    put('two');
    sync = (_, done) => done(new Error('EIO'));
    await expect(name(first.name)).rejects.toThrow('EIO');
    blobs.drop([first.name]);
    expect(put('new').position).not.toBe(first.position);
  });
});
