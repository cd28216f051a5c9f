/** Durable Objects on their way into a cluster or out of it, and so queues, workflows and the nodes' databases, which are made of them. */
import { lstat, mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { DATABASES_ID } from '../bindings/d1/binding.ts';
import { objectsAtRest } from '../bindings/durable-objects/at-rest.ts';
import { objectsOf } from '../bindings/durable-objects/classes.ts';
import { objectsFolder } from '../bindings/durable-objects/folder.ts';
import { putObjects } from '../bindings/objects-bucket/move-in.ts';
import { takeObjects } from '../bindings/objects-bucket/move-out.ts';
import { namesOfNamespaces } from '../bindings/objects-bucket/namespaces.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import { classIdsOf } from '../runtime/objects-config.ts';
import { workerdBinary } from '../runtime/workerd-binary.ts';
import { detectSandbox } from '../sandbox/index.ts';
import type { Config } from '../shared/config.ts';
import { fileSize } from '../shared/file-size.ts';
import type { SharedBucket } from './cluster.ts';
import type { Folders } from './folders.ts';
import type { Moved, Say } from './moving.ts';
import { databasesIn, putDatabases, takeDatabases } from './moving-databases.ts';
import { openRecords } from './objects-cluster.ts';

/** Copies of a class' objects while they are read; left by a move that was killed, it goes. */
const COPIES = 'moving-objects';

const NO_DATABASES: Moved['databases'] = { databases: 0, rows: 0, bytes: 0 };

export type MovedObjects = Pick<Moved, 'objects' | 'databases'>;

/** Of the classes that deployments have now. After the stores, which make the schema. What an earlier move left goes. */
export async function putAllObjects(
  config: Config,
  folders: Folders,
  deployments: Deployment[],
  bucket: SharedBucket,
  say: Say,
): Promise<MovedObjects> {
  const sum = { objects: 0, alarms: 0, bytes: 0 };
  const classes: { tenant: string; id: string; folder: string }[] = [];
  for (const { tenant, ids } of classesOf(deployments))
    for (const id of ids) {
      const folder = path.join(objectsFolder(folders.tenants, tenant), id);
      // A link is none of ours.
      if ((await lstat(folder).catch(() => undefined))?.isDirectory()) classes.push({ tenant, id, folder });
    }
  const copies = path.join(folders.data, COPIES);
  const { records, close } = await openRecords(config.cluster.database, bucket);
  try {
    for (const { tenant } of deployments) await records.purge(tenant);
    const hasDatabases = await databasesIn(folders, deployments);
    if (classes.length === 0 && !hasDatabases) return { objects: sum, databases: NO_DATABASES };
    const sandbox = await detectSandbox(config.runtime.sandbox);
    const ids = [...new Set([...classes.map(({ id }) => id), ...(hasDatabases ? [DATABASES_ID] : [])])];
    const names = await namesOfNamespaces(workerdBinary(), records, ids, folders.run);
    for (const { tenant, id, folder } of classes) {
      await rm(copies, { recursive: true, force: true });
      await mkdir(copies, { mode: 0o700 });
      const found = await objectsAtRest(sandbox, tenant, folder, copies);
      sum.bytes += await putObjects(records, tenant, names.get(id) as string, found);
      sum.objects += found.objects.length;
      sum.alarms += found.alarms.length;
      say(`objects ${tenant}/${id}: ${sum.objects} so far, ${fileSize(sum.bytes)}`);
    }
    const namespace = names.get(DATABASES_ID);
    const put = () => putDatabases(config, folders, deployments, records, namespace as string, say);
    return { objects: sum, databases: namespace === undefined ? NO_DATABASES : await put() };
  } finally {
    await close();
    await rm(copies, { recursive: true, force: true });
  }
}

/** Of the classes that deployments have now. */
export async function takeAllObjects(
  config: Config,
  folders: Folders,
  deployments: Deployment[],
  bucket: SharedBucket,
  say: Say,
): Promise<MovedObjects> {
  const sum = { objects: 0, alarms: 0, bytes: 0 };
  const tenants = classesOf(deployments);
  if (tenants.length === 0) return { objects: sum, databases: NO_DATABASES };
  const { records, close } = await openRecords(config.cluster.database, bucket);
  try {
    const all = [...new Set(tenants.flatMap(({ ids }) => ids))];
    const names = await namesOfNamespaces(workerdBinary(), records, all, folders.run);
    for (const { slug, tenant, ids } of tenants) {
      const folder = objectsFolder(folders.tenants, tenant);
      await rm(folder, { recursive: true, force: true });
      const byName = new Map(ids.map((id) => [names.get(id) as string, id]));
      const { left, ...taken } = await takeObjects(records, tenant, byName, folder).catch((error: Error) => {
        throw new Error(`${slug}: ${error.message}`, { cause: error });
      });
      for (const [id, { objects, bytes }] of taken.objects) {
        if (id === DATABASES_ID) continue;
        sum.objects += objects;
        sum.bytes += bytes;
      }
      sum.alarms += taken.alarms;
      say(
        `objects ${tenant}: ${sum.objects} so far, ${fileSize(sum.bytes)}${left > 0 ? `; ${left} of classes that are gone stay` : ''}`,
      );
    }
    return { objects: sum, databases: await takeDatabases(config, folders, deployments, say) };
  } finally {
    await close();
  }
}

function classesOf(deployments: Deployment[]): { slug: string; tenant: string; ids: string[] }[] {
  return deployments.flatMap(({ slug, tenant, bindings }) => {
    const objects = objectsOf(bindings, true);
    return objects ? [{ slug, tenant, ids: classIdsOf(objects) }] : [];
  });
}
