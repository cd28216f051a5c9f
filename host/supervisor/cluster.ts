/**
 * A host of several nodes: what one of them must have, and what they share. Half a cluster is refused at the start, for it
 * would lose money or serve what is not there.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { SharedAssets } from '../assets/shared-assets.ts';
import { S3Bucket } from '../bindings/store-process/blobs/s3.ts';
import type { Registry } from '../registry/index.ts';
import { type KeyFiles, keyFileAt, keyFilesOfNodes } from '../registry/key-file.ts';
import { openPostgresRegistry, type PostgresRegistry } from '../registry/postgres/index.ts';
import { Nodes } from '../registry/postgres/nodes.ts';
import { addSetting, readSetting } from '../registry/settings.ts';
import { BucketCode } from '../runtime/bucket-code.ts';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';
import type { Folders } from './folders.ts';

/** Setting that names the bucket. */
const BUCKET = 'cluster:bucket';
/** Of a version in the bucket, also where the setting was greater before; with its source map and what is in front. */
const MOST_CODE_BYTES = 64 * 1_048_576;

export interface Cluster {
  /** Of this node. */
  name: string;
  /** Of this node, from 1 to 254. */
  number: number;
  nodes: Nodes;
  bucket: SharedBucket;
  leases: Pick<PostgresRegistry['leases'], 'leave' | 'livesUntil' | 'nodeLease' | 'end'>;
  /** It serves and works no more. */
  retire: PostgresRegistry['retire'];
}

/** What all nodes have of the bucket, beside KV and R2. */
export interface SharedBucket {
  bucket: S3Bucket;
  code: BucketCode;
  assets: SharedAssets;
}

/** @throws Problem invalid_config that says what to do */
export async function openCluster(
  config: Config,
  folders: Folders,
  version: string,
): Promise<{ registry: PostgresRegistry; keyFiles: KeyFiles; cluster: Cluster }> {
  refuseHalfACluster(config, folders);
  const name = await nodeName(config, folders);
  const registry = await openPostgresRegistry(config.cluster.database);
  try {
    const keyFiles = await keyFilesOfNodes(registry, config.cluster.key, folders.data);
    const bucket = await openBucket(config, registry);
    const nodes = new Nodes(registry.client, registry.node);
    // Whoever has the data folder is the only process of this node.
    const last = keyFileAt(path.join(folders.data, 'node-last'));
    const number = await nodes.join(name, version, await last.read());
    await last.replace(registry.node);
    return {
      registry,
      keyFiles,
      cluster: { name, number, nodes, bucket, leases: registry.leases, retire: registry.retire },
    };
  } catch (error) {
    await registry.end();
    throw error;
  }
}

/**
 * The bucket and the registry know each other by a number: what is written into another bucket would be missing to the
 * other nodes.
 * @throws Problem invalid_config that says what to do
 */
export async function openBucket(
  { cluster: { storage }, runtime: { maxCodeBytes } }: Pick<Config, 'cluster' | 'runtime'>,
  { db }: Pick<Registry, 'db'>,
): Promise<SharedBucket> {
  const bucket = new S3Bucket(storage);
  const marks = bucket.files('cluster');
  let isKnown: boolean;
  try {
    await bucket.prepare();
    if ((await readSetting(db, BUCKET)) === undefined) {
      const mark = randomBytes(16).toString('hex');
      // In the bucket first: whoever reads it in the registry finds it there.
      await marks.write(mark, { length: 0, chunks: [] });
      await addSetting(db, BUCKET, mark);
    }
    isKnown = (await marks.stat(String(await readSetting(db, BUCKET)))) !== undefined;
  } catch (error) {
    throw new Problem(
      'start_failed',
      `The S3 bucket of cluster.storage cannot be used: ${(error as Error).message}. Check endpoint, region, bucket and keys.`,
      { cause: error },
    );
  } finally {
    marks.close();
  }
  if (!isKnown)
    throw new Problem(
      'invalid_config',
      'cluster.storage is another bucket, or another prefix, than the one that the nodes of this cluster have: give each node the same.',
    );
  const code = new BucketCode(bucket.files('code'), { mostBytes: Math.max(MOST_CODE_BYTES, 4 * maxCodeBytes) });
  return { bucket, code, assets: new SharedAssets(bucket.files('assets')) };
}

/** @throws Problem invalid_config that says what to do */
export function refuseHalfACluster(config: Config, folders: Pick<Folders, 'data' | 'registry'>): void {
  const fault = faults(config, folders).find(([isSo]) => isSo);
  if (fault) throw new Problem('invalid_config', `cluster.database is set, ${fault[1]}`);
}

function faults(config: Config, { data, registry }: Pick<Folders, 'data' | 'registry'>): [boolean, string][] {
  return [
    [
      existsSync(registry),
      `but ${data} holds a host of its own: its deployments and its money would not be served. Give the node a data folder of its own (--data).`,
    ],
    [
      config.payments.network === 'local',
      'but payments.network is local, whose chain is in one process. Set payments.network to tempo, tempo-testnet or none.',
    ],
    [
      config.publicUrl === '',
      'but publicUrl is empty. Set it to the origin of the load balancer, the same on all nodes: payments and log-ins are signed for it.',
    ],
    [
      config.storage.sql !== 'local',
      'but storage.sql names a libSQL server, which is not used: databases of D1 are objects of the cluster. Set it to local.',
    ],
    [
      config.backup.schedule !== '',
      'but backup.schedule is set, which copies files of one box. Set it to "", and back up PostgreSQL (pg_dump, or its own archive), then the bucket.',
    ],
  ];
}

/** Made once, where the operator gave none. */
async function nodeName(config: Config, folders: Pick<Folders, 'data'>): Promise<string> {
  if (config.cluster.node !== '') return config.cluster.node;
  const file = keyFileAt(path.join(folders.data, 'node-name'));
  return ((await file.read()) ?? (await file.add(`node-${randomBytes(4).toString('hex')}\n`))).trim();
}
