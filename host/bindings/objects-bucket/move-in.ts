/** The objects of one tenant of a box, written into the bucket of a cluster, and read back. */
import { createReadStream } from 'node:fs';
import { rm, stat } from 'node:fs/promises';
import type { AlarmAtRest, AtRest } from '../durable-objects/at-rest.ts';
import type { BucketRecords } from './records.ts';
import { alarmKey, isSnapshotOf, MOST_BYTES, objectFolder, packSnapshot, SNAPSHOT, UNOWNED } from './snapshot.ts';

const ANY = { kind: 'any' } as const;

/**
 * @param namespace name of the class in the bucket
 * @returns bytes of their databases
 * @throws Error where one is too large, or reads otherwise than it was written
 */
export async function putObjects(
  records: BucketRecords,
  tenant: string,
  namespace: string,
  { objects, alarms }: { objects: AtRest[]; alarms: AlarmAtRest[] },
): Promise<number> {
  let bytes = 0;
  for (const { id, file } of objects) {
    const { size } = await stat(file);
    if (size > MOST_BYTES) throw new Error(`the object ${id} of ${tenant} has more than ${MOST_BYTES} bytes`);
    const folder = objectFolder(namespace, id);
    const packed = `${file}.packed`;
    await packSnapshot(file, packed);
    const length = (await stat(packed)).size;
    await records.put(tenant, `${folder}/${SNAPSHOT}`, ANY, { length, stream: createReadStream(packed) });
    await rm(packed);
    await put(records, tenant, `${folder}/own.json`, UNOWNED);
    const found = await records.get(tenant, `${folder}/${SNAPSHOT}`);
    if (!found || !(await isSnapshotOf(file, found.body)))
      throw new Error(`the object ${id} of ${tenant} reads otherwise than it was written`);
    bytes += size;
  }
  for (const { id, at, name } of alarms) await put(records, tenant, alarmKey(namespace, id, at), Buffer.from(name));
  return bytes;
}

async function put(records: BucketRecords, tenant: string, key: string, body: Buffer): Promise<void> {
  await records.put(tenant, key, ANY, { length: body.length, stream: [body] });
}
