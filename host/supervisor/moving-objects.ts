/** Durable Objects on their way into a cluster or out of it, and so queues and workflows, which are made of them. */
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import path from 'node:path';
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
import { openRecords } from './objects-cluster.ts';

/** After the stores, which make the schema. What a tenant has in the bucket of an earlier move goes. */
export async function putAllObjects(
  config: Config,
  folders: Folders,
  tenants: string[],
  bucket: SharedBucket,
  say: Say,
): Promise<Moved['objects']> {
  const sum = { objects: 0, alarms: 0, bytes: 0 };
  const classes = new Map<string, string[]>();
  for (const tenant of tenants) {
    const folder = objectsFolder(folders.tenants, tenant);
    if (existsSync(folder)) classes.set(tenant, await readdir(folder));
  }
  const ids = [...new Set([...classes.values()].flat())];
  const { records, close } = await openRecords(config.cluster.database, bucket);
  try {
    for (const tenant of tenants) await records.purge(tenant);
    if (ids.length === 0) return sum;
    const sandbox = await detectSandbox(config.runtime.sandbox);
    const names = await namesOfNamespaces(workerdBinary(), records, ids, folders.run);
    for (const [tenant, ofTenant] of classes) {
      for (const id of ofTenant) {
        const copies = await mkdtemp(path.join(folders.data, 'objects-'));
        try {
          const found = await objectsAtRest(
            sandbox,
            tenant,
            path.join(objectsFolder(folders.tenants, tenant), id),
            copies,
          );
          sum.bytes += await putObjects(records, tenant, names.get(id) as string, found);
          sum.objects += found.objects.length;
          sum.alarms += found.alarms.length;
        } finally {
          await rm(copies, { recursive: true, force: true });
        }
        say(`objects ${tenant}/${id}: ${sum.objects} so far, ${fileSize(sum.bytes)}`);
      }
    }
    return sum;
  } finally {
    await close();
  }
}

/** Of the classes that deployments have now. */
export async function takeAllObjects(
  config: Config,
  folders: Folders,
  deployments: Deployment[],
  bucket: SharedBucket,
  say: Say,
): Promise<Moved['objects']> {
  const sum = { objects: 0, alarms: 0, bytes: 0 };
  const tenants = deployments.flatMap(({ tenant, bindings }) => {
    const objects = objectsOf(bindings);
    return objects ? [{ tenant, ids: classIdsOf(objects) }] : [];
  });
  if (tenants.length === 0) return sum;
  const { records, close } = await openRecords(config.cluster.database, bucket);
  try {
    const all = [...new Set(tenants.flatMap(({ ids }) => ids))];
    const names = await namesOfNamespaces(workerdBinary(), records, all, folders.run);
    for (const { tenant, ids } of tenants) {
      const folder = objectsFolder(folders.tenants, tenant);
      await rm(folder, { recursive: true, force: true });
      const byName = new Map(ids.map((id) => [names.get(id) as string, id]));
      const { left, ...taken } = await takeObjects(records, tenant, byName, folder);
      sum.objects += taken.objects;
      sum.alarms += taken.alarms;
      sum.bytes += taken.bytes;
      say(
        `objects ${tenant}: ${sum.objects} so far, ${fileSize(sum.bytes)}${left > 0 ? `; ${left} of classes that are gone stay` : ''}`,
      );
    }
    return sum;
  } finally {
    await close();
  }
}
