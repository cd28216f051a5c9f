/** Files that an edge keeps open, the tables it reads, and what requests say of the form that they want. */
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { acceptedCodings, wanted } from '../../host/edge/files/conditions.ts';
import { FileTables } from '../../host/edge/files/file-tables.ts';
import { KeptFiles } from '../../host/edge/files/kept-files.ts';
import { matches, rangeOf } from '../../host/http/message/conditions.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'edge-files-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

const write = (name: string, content: string | Buffer) => {
  writeFileSync(path.join(folder, name), content);
  return path.join(folder, name);
};

it('a file that many ask for is opened once, and forgotten when nobody asks any more', async () => {
  const files = new KeptFiles();
  const place = write('a', 'content');
  const [one, two] = await Promise.all([files.open(place), files.open(place)]);
  expect(one).toBe(two);
  expect(files.kept(place)?.bytes?.toString()).toBe('content');
  one?.release();
  for (let i = 0; i < 100; i++) files.sweep();
  expect(files.kept(place)).toBe(two);
  two?.release();
  await new Promise(setImmediate);
  for (let i = 0; i < 100; i++) files.sweep();
  expect(files.kept(place)).toBeUndefined();
});

it('what slow callers hold leaves no room for more than the budget: the rest is read piece by piece', async () => {
  const files = new KeptFiles();
  const place = write('0', Buffer.alloc(2 * 1_048_576));
  const names = [place, ...Array.from({ length: 39 }, (_, index) => path.join(folder, `${index + 1}`))];
  for (const name of names.slice(1)) writeFileSync(name, Buffer.alloc(2 * 1_048_576));
  const held = [];
  for (const name of names) held.push(await files.open(name));
  const inMemory = held.filter((file) => file?.bytes !== undefined);
  expect(inMemory).toHaveLength(31);
  expect(held.every((file) => file?.bytes || file?.handle)).toBe(true);
  for (const file of held) file?.release();
  await new Promise(setImmediate);
  const again = await files.open(names[39] ?? '');
  expect(again?.bytes).toHaveLength(2 * 1_048_576);
  again?.release();
});

it('links, folders and what is not there are no files', async () => {
  const files = new KeptFiles();
  symlinkSync('/etc/passwd', path.join(folder, 'link'));
  mkdirSync(path.join(folder, 'folder'));
  for (const name of ['link', 'folder', 'none']) expect(await files.open(path.join(folder, name))).toBeUndefined();
});

it('a table names files by their digests alone', async () => {
  mkdirSync(path.join(folder, 'tables'));
  const name = `${'b'.repeat(64)}.${'c'.repeat(16)}`;
  const hash = 'a'.repeat(64);
  const fields = [{ lines: 'content-type: text/html\r\nset-cookie: a=b\r\nx-turnpike-x: y\r\n', coded: true }];
  write(
    `tables/${name}`,
    JSON.stringify({ fields, paths: { '/a': [hash, 0], '/b': ['../../x', 0], '/c': [hash, 7] } }),
  );
  const tables = new FileTables();
  const { files } = await tables.of({ folder, table: name });
  expect([...files.keys()]).toEqual(['/a']);
  expect(files.get('/a')?.fields.head).toMatchObject({ fields: 'content-type: text/html\r\n', cookies: ['a=b'] });
  expect(tables.of({ folder, table: name })).not.toBeInstanceOf(Promise);
  for (const other of [`../${name}`, 'x', `${'d'.repeat(64)}.${'c'.repeat(16)}`])
    expect((await tables.of({ folder, table: other })).files.size).toBe(0);
  write(`tables/${name.replaceAll('b', 'e')}`, JSON.stringify({ fields: [{ lines: 'x: y\nz: 1\r\n' }], paths: {} }));
  expect((await tables.of({ folder, table: name.replaceAll('b', 'e') })).files.size).toBe(0);
});

it('conditions', () => {
  const fields =
    'Range: bytes=0-1\r\nX: range: no\r\nIf-None-Match: "a"\r\nif-none-match: W/"b"\r\nAUTHORIZATION: x\r\n';
  expect(wanted(fields)).toEqual({
    ...{ range: 'bytes=0-1', ifNoneMatch: '"a","b"'.replace('"b"', 'W/"b"'), ifRange: '', authorized: true },
    acceptEncoding: '',
  });
  expect(wanted('range: bytes=0-1\r\nrange: bytes=2-3\r\n').range).toBe('');
  expect(['"b"', '"c"', '"ab"'].map((etag) => matches('"a", W/"b"', etag))).toEqual([true, false, false]);
  expect(rangeOf('bytes=0-0', 0)).toBe('none');
  expect(rangeOf('bytes=9999999999999999-', 5)).toBeUndefined();
  expect(rangeOf('bytes=-9', 5)).toEqual([0, 5]);
  expect(acceptedCodings('gzip, deflate, br;q=0.1, zstd')).toEqual(['br', 'gz']);
  expect(acceptedCodings('br;q=0, x-gzip;q=1')).toEqual(['gz']);
  expect(acceptedCodings('identity, *')).toEqual([]);
  expect(acceptedCodings('br;q=nonsense')).toEqual([]);
});
