/** Databases of D1, and those of data points, on their way into a cluster or out of it: a file of the box, an object of the nodes. */
import { constants } from 'node:fs';
import { chown, copyFile, lstat, mkdir, open, readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { FOLDER as POINTS_FOLDER } from '../bindings/analytics/files.ts';
import { POINTS_DATABASE } from '../bindings/analytics/points-database.ts';
import {
  type Copy,
  copyFileOf,
  databaseObject,
  type Look,
  type Looks,
  lostBetween,
  openLooks,
} from '../bindings/d1/at-rest.ts';
import { DATABASES_ID, d1 } from '../bindings/d1/binding.ts';
import { FILE, FOLDER } from '../bindings/d1/files.ts';
import { hasPoints } from '../bindings/durable-objects/classes.ts';
import { objectsFolder } from '../bindings/durable-objects/folder.ts';
import { boundBindings } from '../bindings/index.ts';
import { putObjects } from '../bindings/objects-bucket/move-in.ts';
import type { BucketRecords } from '../bindings/objects-bucket/records.ts';
import { DEFAULT_STORE, storeName, storesOf } from '../bindings/stores.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import { workerdBinary } from '../runtime/workerd-binary.ts';
import { detectSandbox } from '../sandbox/index.ts';
import type { Config } from '../shared/config.ts';
import { fileSize } from '../shared/file-size.ts';
import { Problem } from '../shared/problem.ts';
import type { Folders } from './folders.ts';
import type { Moved, Say } from './moving.ts';

/** Copies of a database while it is read; left by a move that was killed, it goes. */
const COPIES = 'moving-databases';
/** Pages of a database that nodes write are of this size, always. */
const PAGE_BYTES = 4_096;
/** Where a SQLite file says its own; 1 stands for 65,536. */
const PAGE_SIZE_AT = 16;

type Sandboxed = Pick<Config, 'runtime'>;
type Places = Pick<Folders, 'data' | 'tenants' | 'run'>;
type Owner = Pick<Deployment, 'slug' | 'tenant' | 'bindings'>;

/** A database of a box. */
interface Place {
  slug: string;
  tenant: string;
  /** As a deployment names it. */
  id: string;
  folder: string;
}

/** @throws Problem conflict that names the databases which nodes would not have as they are. Before anything is moved */
export async function refuseLostDatabases(
  config: Sandboxed,
  folders: Places,
  deployments: Owner[],
  say: Say = () => undefined,
): Promise<void> {
  const places = await placesOf(folders, deployments);
  if (places.length === 0) return;
  const lost: string[] = [];
  await withLooks(config, folders, async (looks) => {
    for (const place of places) {
      const copy = await copyOf(folders, place);
      if (!copy) continue;
      const from = await looks.box(copy, 'box');
      const pageBytes = await pageBytesOf(copyFileOf(copy));
      const found =
        pageBytes === PAGE_BYTES ? lostBetween(from, await looks.node(copy)) : [`its pages have ${pageBytes} bytes`];
      say(`database ${nameOf(place)}: opened by both`);
      if (found.length > 0) lost.push(`${nameOf(place)} (${found.join('; ')})`);
    }
  });
  if (lost.length === 0) return;
  throw new Problem(
    'conflict',
    `These databases have what the SQLite of the nodes does not take: ${lost.join(', ')}. Remove it, or leave this host as it is. Nothing was changed.`,
  );
}

/** @param namespace name of the class in the bucket @param deployments whose objects have been purged there */
export async function putDatabases(
  config: Sandboxed,
  folders: Places,
  deployments: Owner[],
  records: BucketRecords,
  namespace: string,
  say: Say,
): Promise<Moved['databases']> {
  const sum = { databases: 0, rows: 0, bytes: 0 };
  await withLooks(config, folders, async (looks) => {
    for (const place of await placesOf(folders, deployments)) {
      const copy = await copyOf(folders, place);
      if (!copy) continue;
      const from = await looks.box(copy, 'box');
      const found = { objects: [{ id: copy.id, file: copyFileOf(copy) }], alarms: [] };
      const bytes = await putObjects(records, place.tenant, namespace, found);
      // What it is compared with has been read back, and is the same.
      const there = await looks.node(copy);
      count(place, from, there, bytes, sum, say);
    }
  });
  return sum;
}

/** After the objects of all classes were taken, the databases among them. What an earlier move left goes. */
export async function takeDatabases(
  config: Sandboxed,
  folders: Places,
  deployments: Owner[],
  say: Say,
): Promise<Moved['databases']> {
  const sum = { databases: 0, rows: 0, bytes: 0 };
  await withLooks(config, folders, async (looks) => {
    for (const { slug, tenant, bindings } of deployments) {
      const own = path.join(folders.tenants, tenant);
      for (const name of await databaseFolders(own)) await rm(path.join(own, name), { recursive: true, force: true });
      const taken = path.join(objectsFolder(folders.tenants, tenant), DATABASES_ID);
      for (const id of databasesOf(bindings)) {
        const place = { slug, tenant, id, folder: path.join(own, folderOf(id)) };
        const copy = await emptyCopy(folders, place);
        const [file, target] = [copyFileOf(copy), path.join(place.folder, FILE)];
        const object = path.join(taken, path.basename(file));
        const bytes = (await lstat(object).catch(() => undefined))?.size ?? 0;
        if (bytes === 0) continue;
        await rename(object, file);
        const from = await looks.node(copy);
        const there = await looks.box(copy, 'cluster');
        await mkdir(place.folder, { recursive: true, mode: 0o700 });
        await rename(file, target);
        if (process.getuid?.() === 0) await chown(target, 0, 0);
        count(place, from, there, bytes, sum, say);
      }
      await rm(taken, { recursive: true, force: true });
    }
  });
  return sum;
}

function databasesOf(bindings: Deployment['bindings']): Set<string> {
  const ofD1 = boundBindings(bindings).flatMap(({ binding, id }) => (binding.key === d1.key ? [id] : []));
  return new Set([...ofD1, ...(hasPoints(bindings) ? [POINTS_DATABASE] : [])]);
}

async function databaseFolders(tenantFolder: string): Promise<string[]> {
  const names = await readdir(tenantFolder).catch(() => []);
  return [...storesOf(FOLDER, names), ...names.filter((name) => name === POINTS_FOLDER)].sort();
}

function folderOf(id: string): string {
  return id === POINTS_DATABASE ? POINTS_FOLDER : storeName(FOLDER, id);
}

function idOf(folder: string): string {
  if (folder === POINTS_FOLDER) return POINTS_DATABASE;
  return folder === FOLDER ? DEFAULT_STORE : folder.slice(FOLDER.length + 1);
}

/** @throws Problem conflict where the rows, or what can be done with them, are not the same on both sides */
function count(place: Place, from: Look, there: Look, bytes: number, sum: Moved['databases'], say: Say): void {
  const lost = lostBetween(from, there);
  if (lost.length > 0)
    throw new Problem(
      'conflict',
      `The database ${nameOf(place)} is not the same on the other side: ${lost.join('; ')}.`,
    );
  sum.databases++;
  sum.rows += there.rows;
  sum.bytes += bytes;
  say(`database ${nameOf(place)}: ${there.rows} rows compared, ${fileSize(bytes)}`);
}

export async function databasesIn(folders: Places, deployments: Owner[]): Promise<boolean> {
  return (await placesOf(folders, deployments)).length > 0;
}

/** Also those that no binding names any more. A folder without a file is a database that was never written. */
async function placesOf({ tenants }: Places, deployments: Owner[]): Promise<Place[]> {
  const places: Place[] = [];
  for (const { slug, tenant } of deployments) {
    const own = path.join(tenants, tenant);
    for (const name of await databaseFolders(own)) {
      const folder = path.join(own, name);
      const id = idOf(name);
      // A link is none of ours.
      if ((await lstat(folder)).isDirectory()) places.push({ slug, tenant, id, folder });
    }
  }
  return places;
}

/** @returns undefined where there is nothing */
async function copyOf(folders: Places, place: Place): Promise<Copy | undefined> {
  const copy = await emptyCopy(folders, place);
  const bytes: number[] = [];
  for (const end of ['', '-wal']) {
    const file = path.join(place.folder, `${FILE}${end}`);
    const found = await lstat(file).catch(() => undefined);
    if (!found?.isFile()) continue;
    bytes.push(found.size);
    await copyFile(file, `${copyFileOf(copy)}${end}`, constants.COPYFILE_FICLONE);
  }
  return bytes.some((size) => size > 0) ? copy : undefined;
}

async function emptyCopy({ data }: Places, { tenant, id }: Place): Promise<Copy> {
  const copy = { tenant, folder: path.join(data, COPIES), id: databaseObject(id) };
  await rm(copy.folder, { recursive: true, force: true });
  await mkdir(path.dirname(copyFileOf(copy)), { recursive: true, mode: 0o700 });
  return copy;
}

async function pageBytesOf(file: string): Promise<number> {
  const handle = await open(file);
  try {
    const { buffer } = await handle.read(Buffer.alloc(2), 0, 2, PAGE_SIZE_AT);
    return buffer.readUInt16BE(0) === 1 ? 65_536 : buffer.readUInt16BE(0);
  } finally {
    await handle.close();
  }
}

async function withLooks(config: Sandboxed, folders: Places, work: (looks: Looks) => Promise<void>): Promise<void> {
  const looks = await openLooks(await detectSandbox(config.runtime.sandbox), workerdBinary(), folders.run);
  try {
    await work(looks);
  } finally {
    await looks.close();
    await rm(path.join(folders.data, COPIES), { recursive: true, force: true });
  }
}

function nameOf({ slug, id }: Place): string {
  if (id === POINTS_DATABASE) return `${slug}/${POINTS_FOLDER}`;
  return id === DEFAULT_STORE ? slug : `${slug}/${id}`;
}
