/** Bytes of objects that live in S3: fetched into a backup by the names in the copied indexes, and put back. */
import { createReadStream, createWriteStream, existsSync } from 'node:fs';
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import Database from 'libsql';
import { isExtent } from '../bindings/store-process/blobs/extents.ts';
import { type S3Connection, s3Client } from '../bindings/store-process/blobs/s3-transport.ts';
import { objectPlace, storesOf } from '../bindings/stores.ts';
import { filesBelow } from './copying.ts';

export interface ObjectBucket extends S3Connection {
  bucket: string;
  /** In front of `<place>/<name>`. */
  prefix: string;
}

const KIND = 'r2';
/** In a store's folder: the index, and where bytes are when they are on disk. */
const INDEX = 'r2.db';
const OBJECTS = 'objects';
const NAMES = "SELECT blob FROM objects WHERE blob IS NOT NULL UNION SELECT blob FROM parts WHERE blob <> ''";

/** Answers how many objects that an index names were not there any more. */
export async function fetchObjects(settings: ObjectBucket, tenantsFolder: string): Promise<number> {
  const client = s3Client(settings);
  let gone = 0;
  for (const { folder, place } of await objectStores(tenantsFolder)) {
    const index = path.join(folder, INDEX);
    if (!existsSync(index)) continue;
    for (const name of namesIn(index)) {
      const target = path.join(folder, OBJECTS, name);
      if (existsSync(target)) continue;
      await mkdir(path.dirname(target), { recursive: true });
      try {
        const source = await client.getObject(settings.bucket, `${settings.prefix}${place}/${name}`);
        await pipeline(source, createWriteStream(target, { mode: 0o600, flush: true }));
      } catch (error) {
        await rm(target, { force: true });
        if ((error as { code?: string }).code !== 'NoSuchKey') throw error;
        gone++;
      }
    }
  }
  return gone;
}

/** Uploads what `fetchObjects` fetched, and removes it from this disk. */
export async function placeObjects(settings: ObjectBucket, tenantsFolder: string): Promise<void> {
  const client = s3Client(settings);
  if (!(await client.bucketExists(settings.bucket))) await client.makeBucket(settings.bucket, settings.region);
  for (const { folder, place } of await objectStores(tenantsFolder)) {
    const objects = path.join(folder, OBJECTS);
    for (const name of await filesBelow(objects)) {
      const file = path.join(objects, name);
      const { size } = await stat(file);
      await client.putObject(settings.bucket, `${settings.prefix}${place}/${name}`, createReadStream(file), size);
    }
    await rm(objects, { recursive: true, force: true });
  }
}

/** Folders of all tenants' R2 stores, and what stands in front of their objects' names. */
async function objectStores(tenantsFolder: string): Promise<{ folder: string; place: string }[]> {
  const found: { folder: string; place: string }[] = [];
  for (const tenant of await readdir(tenantsFolder).catch(() => [])) {
    for (const name of storesOf(KIND, await readdir(path.join(tenantsFolder, tenant)).catch(() => [])))
      found.push({ folder: path.join(tenantsFolder, tenant, name), place: objectPlace(tenant, name) });
  }
  return found;
}

function namesIn(index: string): string[] {
  const database = new Database(index);
  try {
    const names = (database.prepare(NAMES).raw().all([]) as [string][]).map(([name]) => name);
    // Extents are on the host's own disk, from before its objects lived in S3.
    return names.filter((name) => !isExtent(name));
  } finally {
    database.close();
  }
}
