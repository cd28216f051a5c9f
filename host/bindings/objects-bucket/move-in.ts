/** The objects of one tenant of a box, written into the bucket of a cluster, and read back. */
import { readFile } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import type { AlarmAtRest, AtRest } from '../durable-objects/at-rest.ts';
import type { BucketRecords } from './records.ts';
import { alarmKey, databaseIn, MOST_BYTES, objectFolder, SNAPSHOT, snapshotOf, UNOWNED } from './snapshot.ts';

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
    const database = await readFile(file);
    if (database.length > MOST_BYTES)
      throw new Error(`the object ${id} of ${tenant} has more than ${MOST_BYTES} bytes`);
    const folder = objectFolder(namespace, id);
    await put(records, tenant, `${folder}/${SNAPSHOT}`, await snapshotOf(database));
    await put(records, tenant, `${folder}/own.json`, UNOWNED);
    const found = await records.get(tenant, `${folder}/${SNAPSHOT}`);
    const stored = found && (Buffer.isBuffer(found.body) ? found.body : await buffer(found.body));
    if (!stored || !(await databaseIn(stored)).equals(database))
      throw new Error(`the object ${id} of ${tenant} reads otherwise than it was written`);
    bytes += database.length;
  }
  for (const { id, at, name } of alarms) await put(records, tenant, alarmKey(namespace, id, at), Buffer.from(name));
  return bytes;
}

async function put(records: BucketRecords, tenant: string, key: string, body: Buffer): Promise<void> {
  await records.put(tenant, key, { kind: 'any' }, { length: body.length, stream: [body] });
}
