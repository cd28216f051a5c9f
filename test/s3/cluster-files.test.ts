/** Code and static files of several nodes: what one has put another serves, and nothing goes that somebody may name. */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AssetStore } from '../../host/assets/asset-store.ts';
import { SharedAssets } from '../../host/assets/shared-assets.ts';
import { S3Bucket } from '../../host/bindings/store-process/blobs/s3.ts';
import { BucketCode } from '../../host/runtime/bucket-code.ts';
import { CodeStore } from '../../host/runtime/code-store.ts';
import type { CodeBundle } from '../../host/shared/contracts.ts';
import { s3Settings } from './radosgw.ts';

const TENANT = 't00000000000000000001';
let bucket: S3Bucket;
const folders: string[] = [];

beforeAll(async () => {
  bucket = new S3Bucket(s3Settings('files'));
  await bucket.prepare();
});
afterAll(async () => {
  for (const folder of folders) rmSync(folder, { recursive: true });
});

function newFolder(): string {
  const folder = mkdtempSync(path.join(tmpdir(), 'cluster-files-'));
  folders.push(folder);
  return folder;
}

const bundle = (text: string): CodeBundle => ({
  modules: [
    { name: 'worker.js', type: 'esModule', body: Buffer.from(text) },
    { name: 'data.bin', type: 'data', body: Buffer.from([0, 255, 128]) },
  ],
  sourceMap: '{}',
  entrypoints: ['Other'],
});

test('a version that one node has put another gets, checked, and from its disk the next time', async () => {
  const files = bucket.files('code-read');
  const [a, folder] = [new CodeStore(newFolder(), new BucketCode(files)), newFolder()];
  const digest = await a.put(bundle('one'));
  const got = await new CodeStore(folder, new BucketCode(files)).get(digest);
  expect(got.modules.map(({ name, type, body }) => [name, type, Buffer.from(body).toString('hex')])).toEqual([
    ['worker.js', 'esModule', Buffer.from('one').toString('hex')],
    ['data.bin', 'data', '00ff80'],
  ]);
  expect([got.sourceMap, got.entrypoints]).toEqual(['{}', ['Other']]);
  await files.remove(digest);
  expect((await new CodeStore(folder, new BucketCode(files)).get(digest)).entrypoints).toEqual(['Other']);
  await expect(new CodeStore(newFolder(), new BucketCode(files)).get(digest)).rejects.toThrow('missing');
  await files.write(digest, { length: 3, chunks: [Buffer.from('bad')] });
  await expect(new CodeStore(newFolder(), new BucketCode(files)).get(digest)).rejects.toThrow();
  const other = await a.put(bundle('two'));
  const { size } = (await files.stat(other)) as { size: number };
  const bytes = Buffer.concat((await files.whole(other, size, (file) => file.toArray())) ?? []);
  await files.write(digest, { length: size, chunks: [bytes] });
  await expect(new CodeStore(newFolder(), new BucketCode(files)).get(digest)).rejects.toThrow('damaged');
  files.close();
});

test('code goes once no version names it, and not while a deploy may be about to', async () => {
  const files = bucket.files('code-swept');
  const a = new CodeStore(newFolder(), new BucketCode(files));
  const [kept, gone] = [await a.put(bundle('kept')), await a.put(bundle('gone'))];
  const unused = async (digests: string[]) => digests.filter((digest) => digest === gone);
  const names = async () => (await Array.fromAsync(files.entries())).map(({ name }) => name).sort();
  await new BucketCode(files).sweep(unused);
  expect(await names()).toEqual([kept, gone].sort());
  // S3 tells whole seconds: what was put within this one is not older than it.
  await expect
    .poll(async () => {
      await new BucketCode(files, { holdMs: 0 }).sweep(unused);
      return names();
    })
    .toEqual([kept]);
  files.close();
});

function assets(folder = newFolder()): { store: AssetStore; folder: string } {
  const shared = new SharedAssets(bucket.files('assets'));
  return { store: new AssetStore(folder, async () => 1_000_000, shared), folder };
}

const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const put = (store: AssetStore, text: string) =>
  store.put(TENANT, sha256(text), new Blob([text]).stream(), Buffer.byteLength(text));

test('files that were sent to one node are served by another, and by edges there', async () => {
  const [a, b] = [assets(), assets()];
  expect(await b.store.missing(TENANT, [sha256('page')])).toEqual([sha256('page')]);
  await put(a.store, 'page');
  expect(await b.store.missing(TENANT, [sha256('page')])).toEqual([]);
  const list = await b.store.keep(TENANT, { files: { '/index.html': sha256('page') } });
  await expect(a.store.keep(TENANT, { files: { '/other': sha256('other') } })).rejects.toThrow('were not sent');
  const place = path.join(newFolder(), 'placed');
  const c = assets();
  await c.store.place(TENANT, await c.store.list(TENANT, list), place);
  expect(readFileSync(path.join(place, 'index.html'), 'utf8')).toBe('page');
  const d = assets();
  await d.store.prepare(TENANT, { list });
  const copy = path.join(d.store.route(TENANT, { list }).folder, 'files', sha256('page'));
  await expect.poll(() => existsSync(copy)).toBe(true);
  // The file, the list, and the one that was refused; each takes a block.
  expect(await assets().store.usage(TENANT)).toEqual({ assetBytes: 3 * 4096 });
});

test('a file that is damaged in the bucket is not served', async () => {
  const [a, b] = [assets(), assets()];
  await put(a.store, 'whole');
  const list = await a.store.keep(TENANT, { files: { '/x': sha256('whole') } });
  const files = bucket.files('assets');
  await files.write(`${TENANT}/files/${sha256('whole')}`, { length: 5, chunks: [Buffer.from('wrong')] });
  const placed = b.store.place(TENANT, await b.store.list(TENANT, list), path.join(newFolder(), 'placed'));
  await expect(placed).rejects.toThrow('could not be fetched');
  expect(readdirSync(path.join(b.folder, TENANT, 'assets', 'files'))).toEqual([]);
  files.close();
});

test('a node keeps what is named or new, and drops its copies of what was used longest ago, or is gone', async () => {
  const shared = new SharedAssets(bucket.files('collected'));
  const folder = newFolder();
  const store = new AssetStore(folder, async () => 1_000_000, shared);
  await put(store, 'named');
  await put(store, 'unnamed');
  const list = await store.keep(TENANT, { files: { '/x': sha256('named') } });
  await store.collect(TENANT, [{ list }]);
  expect((await shared.names(TENANT, 'files')).sort()).toEqual([sha256('named'), sha256('unnamed')].sort());
  await expect
    .poll(async () => {
      await shared.collect(TENANT, new Set([list]), { files: 0, lists: 0 });
      return shared.names(TENANT, 'files');
    })
    .toEqual([sha256('named')]);
  const copies = path.join(folder, TENANT, 'assets', 'files');
  await store.trim(async () => false, 7);
  expect(readdirSync(copies).length).toBe(1);
  await store.trim(async () => true);
  expect(existsSync(copies)).toBe(false);
  await store.place(TENANT, await store.list(TENANT, list), path.join(newFolder(), 'placed'));
  await store.purge(TENANT);
  expect(await shared.names(TENANT, 'files')).toEqual([]);
});
