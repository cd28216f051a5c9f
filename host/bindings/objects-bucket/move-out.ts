/** The objects of one tenant of a cluster, as files of a box: databases, and the alarms that workerd keeps beside them. */
import { mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import Libsql from 'libsql';
import { z } from 'zod';
import { ObjectImage } from './object-log.ts';
import type { BucketRecords, Listed } from './records.ts';
import type { Packed } from './unpacked.ts';

const OBJECTS = 'v1/do/';
const ALARMS = 'v1/alarms/';
/** Of a list. */
const PAGE = 1_000;
/** Of an object: it becomes the name of a file. */
const ID = /^[0-9a-f]{64}$/;
const TIME = /^[a-m][0-9a-f]{1,13}$/;
const MOST_NAME_BYTES = 8_192;
const ownerShape = z.object({ node: z.string(), epoch: z.int().min(1) });

export interface Taken {
  /** By the id of their class. */
  objects: Map<string, { objects: number; bytes: number }>;
  alarms: number;
  /** Objects of classes that were not asked for. */
  left: number;
}

/**
 * Instances must have ended by themselves: then what they had is in the bucket, and given back.
 * @param ids of classes, by their names in the bucket
 * @param folder of all classes, empty
 * @throws Error for an object that is not given back, or not known
 */
export async function takeObjects(
  records: BucketRecords,
  tenant: string,
  ids: ReadonlyMap<string, string>,
  folder: string,
): Promise<Taken> {
  const taken: Taken = { objects: new Map(), alarms: 0, left: 0 };
  let keys: string[] = [];
  const take = async () => {
    const [, , namespace = '', id = ''] = keys[0]?.split('/') ?? [];
    const classId = ID.test(id) ? ids.get(namespace) : undefined;
    if (keys.length === 0) return;
    if (classId === undefined) taken.left++;
    else {
      const file = path.join(folder, classId, `${id}.sqlite`);
      const size = await takeDatabase(records, tenant, keys, file).catch((error: Error) => {
        throw new Error(`the object ${id} cannot be taken: ${error.message}`, { cause: error });
      });
      const { objects, bytes } = taken.objects.get(classId) ?? { objects: 0, bytes: 0 };
      taken.objects.set(classId, { objects: objects + 1, bytes: bytes + size });
    }
  };
  for await (const { key } of all(records, tenant, OBJECTS)) {
    if (keys[0] !== undefined && folderOf(keys[0]) !== folderOf(key)) {
      await take();
      keys = [];
    }
    keys.push(key);
  }
  await take();
  taken.alarms = await takeAlarms(records, tenant, ids, folder);
  return taken;
}

/** @param keys all that the object has @returns bytes of its database */
async function takeDatabase(records: BucketRecords, tenant: string, keys: string[], to: string): Promise<number> {
  const [first = ''] = keys;
  const folder = folderOf(first);
  const { node, epoch } = ownerShape.parse(
    JSON.parse((await bytesOf(records, tenant, `${folder}own.json`)).toString()),
  );
  if (node !== '')
    throw new Error(
      'the instance that had it did not end by itself. Take the move back (turnpike cluster move-out --give-up), start the nodes, call what uses it, and stop them (SIGTERM)',
    );
  const inEpoch = (what: string) => keys.filter((key) => key.startsWith(`${folder}${what}/${inverted(epoch)}/`));
  // The newest is the first.
  const [snapshot] = inEpoch('snapshot');
  if (!snapshot && epoch > 1) throw new Error('it has no snapshot of its owner');
  await mkdir(path.dirname(to), { recursive: true, mode: 0o700 });
  const file = await open(to, 'wx+', 0o600);
  try {
    const image = new ObjectImage(file);
    if (snapshot) await image.begin(await bodyOf(records, tenant, snapshot));
    for (const log of inEpoch('log')) {
      const last = Number.parseInt(log.slice(log.lastIndexOf('/') + 2), 16);
      if (last > image.number) await image.add(await bodyOf(records, tenant, log));
    }
    return await image.finish();
  } finally {
    await file.close();
  }
}

/** As workerd (1.20261117.1) lists those of a class: src/workerd/server/alarm-scheduler.c++; times are in ns. */
async function takeAlarms(
  records: BucketRecords,
  tenant: string,
  ids: ReadonlyMap<string, string>,
  folder: string,
): Promise<number> {
  const newest = new Map<string, { listed: Listed; classId: string; id: string; at: number }>();
  for await (const listed of all(records, tenant, ALARMS)) {
    const [, , , time = '', namespace = '', id = ''] = listed.key.split('/');
    const classId = ids.get(namespace);
    const known = newest.get(`${namespace}/${id}`);
    const isWhole = ID.test(id) && TIME.test(time) && listed.bytes <= MOST_NAME_BYTES;
    if (classId === undefined || !isWhole || (known && known.listed.at > listed.at)) continue;
    newest.set(`${namespace}/${id}`, { listed, classId, id, at: Number.parseInt(time.slice(1), 16) });
  }
  for (const classId of new Set([...newest.values()].map((alarm) => alarm.classId))) {
    await mkdir(path.join(folder, classId), { recursive: true, mode: 0o700 });
    const list = new Libsql(path.join(folder, classId, 'metadata.sqlite'));
    try {
      list.exec(`CREATE TABLE _cf_ALARM (
      actor_id TEXT PRIMARY KEY,
      scheduled_time INTEGER,
      actor_name TEXT
    ) WITHOUT ROWID`);
      const add = list.prepare('INSERT INTO _cf_ALARM VALUES (?, ?, ?)');
      for (const alarm of newest.values()) {
        if (alarm.classId !== classId) continue;
        const name = (await bytesOf(records, tenant, alarm.listed.key)).toString();
        add.run([alarm.id, BigInt(alarm.at) * 1_000_000n, name === '' ? null : name]);
      }
    } finally {
      list.close();
    }
  }
  return newest.size;
}

async function* all(records: BucketRecords, tenant: string, prefix: string): AsyncGenerator<Listed> {
  for (let after = ''; ; ) {
    const page = await records.list(tenant, prefix, after, PAGE);
    yield* page;
    if (page.length < PAGE) return;
    after = page.at(-1)?.key ?? '';
  }
}

async function bytesOf(records: BucketRecords, tenant: string, key: string): Promise<Buffer> {
  const body = await bodyOf(records, tenant, key);
  return Buffer.isBuffer(body) ? body : await buffer(body);
}

async function bodyOf(records: BucketRecords, tenant: string, key: string): Promise<Packed> {
  const found = await records.get(tenant, key);
  if (!found) throw new Error(`${key} is missing`);
  return found.body;
}

/** `v1/do/<namespace>/<id>/` */
function folderOf(key: string): string {
  return `${key.split('/').slice(0, 4).join('/')}/`;
}

/** So that the newest is the first: a letter for the number of digits, and the digits, both counted from the end. */
function inverted(number: number): string {
  const digits = number.toString(16);
  const rest = 16n ** BigInt(digits.length) - 1n - BigInt(number);
  return String.fromCharCode('z'.charCodeAt(0) - digits.length + 1) + rest.toString(16).padStart(digits.length, '0');
}
