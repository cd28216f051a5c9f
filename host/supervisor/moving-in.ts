/**
 * An existing box becomes the first node of a cluster: its registry and its keys go into PostgreSQL, its code, KV, R2 and
 * static files into PostgreSQL and the bucket. Until the last transaction the box is as it was.
 */
import { existsSync, renameSync } from 'node:fs';
import path from 'node:path';
import { putAssets } from '../assets/transfer.ts';
import { copyStore, folderStore } from '../certificates/store.ts';
import { Deployments } from '../registry/deployments.ts';
import { openRegistry } from '../registry/index.ts';
import { type KeyFiles, keyFilesIn, keyFilesOfNodes } from '../registry/key-file.ts';
import { openWithoutNodes } from '../registry/postgres/index.ts';
import { beginMoveIn, moveIn } from '../registry/postgres/move-in.ts';
import { SealedTexts } from '../registry/postgres/sealed-texts.ts';
import { CodeStore, type SharedCode } from '../runtime/code-store.ts';
import type { Config } from '../shared/config.ts';
import { syncFile } from '../shared/durable-files.ts';
import { Problem } from '../shared/problem.ts';
import { openBucket, refuseHalfACluster } from './cluster.ts';
import { type Folders, openFolders } from './folders.ts';
import {
  checkBooks,
  type DataSteps,
  goingOnLater,
  idOfMove,
  KEYS,
  living,
  type Moved,
  moveData,
  type Say,
} from './moving.ts';
import { refuseLostDatabases } from './moving-databases.ts';
import { putAllObjects } from './moving-objects.ts';

export interface MovedIn extends Moved {
  /** Where the box's registry is now. */
  registry: string;
}

/**
 * The host on the data folder must not run. May be killed at any point and run again.
 * @throws Problem
 */
export function moveBoxIn(config: Config, dataFolder: string, say: Say = () => undefined): Promise<MovedIn> {
  return goingOnLater(dataFolder, () => move(config, dataFolder, say));
}

async function move(config: Config, dataFolder: string, say: Say): Promise<MovedIn> {
  const { database, key } = config.cluster;
  if (database === '')
    throw new Problem('invalid_config', 'Set cluster.database and cluster.key to where the box is to move.');
  const folders = openFolders(dataFolder);
  const { data, registry, movedRegistry: moved } = folders;
  refuseHalfACluster(config, { data, registry: path.join(data, 'none') });
  const source = existsSync(registry) ? registry : moved;
  if (!existsSync(source)) throw new Problem('not_found', `There is no host's data in ${data}.`);
  if (source === registry && existsSync(moved))
    throw new Problem(
      'conflict',
      `${data} has a registry.db beside the registry.db.moved of a host that has moved before. Put the one that is not to move into another folder. Nothing was changed.`,
    );
  const box = await openRegistry(source);
  const cluster = await openWithoutNodes(database).catch((error) => {
    box.close();
    throw error;
  });
  try {
    const deployments = await new Deployments(box.db).all();
    await checkBooks(box, 'on the box');
    if (source !== moved) await refuseLostDatabases(config, folders, living(deployments), say);
    const id = await idOfMove(data);
    const before = (await beginMoveIn(cluster.client, id, source === moved)) as Moved | undefined;
    if (before) return { ...before, registry: moved };
    // All is in the file from here on, which gets another name while it is open.
    await box.client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
    const keyFiles = await keyFilesOfNodes(cluster, key, data);
    await putKeys(keyFiles, folders);
    const bucket = await openBucket(config, cluster);
    const steps: DataSteps = {
      code: () => putCode(new Deployments(box.db), new CodeStore(folders.code), bucket.code),
      certificates: async () =>
        copyStore(folderStore(folders.certificates), await SealedTexts.open(cluster.client, keyFiles)),
      assets: (tenant) => putAssets(folders.tenants, tenant, bucket.assets),
      objects: (present) => putAllObjects(config, folders, present, bucket, say),
      from: 'box',
    };
    const brought = await moveData(config, folders.tenants, living(deployments), steps, say);
    let result: Moved | undefined;
    await moveIn(box.client, cluster.client, id, async (rows) => {
      // Before it counts: two hosts with the same debts would pay them twice.
      if (source !== moved) renameSync(source, moved);
      await syncFile(data);
      result = { rows, ...brought };
      say('registry: every row is copied');
      return result;
    });
    say('registry: in PostgreSQL');
    await checkBooks(cluster, 'in PostgreSQL');
    return { ...(result as unknown as Moved), registry: moved };
  } finally {
    box.close();
    await cluster.close();
  }
}

/** As the box has them: a move that was given up may have left others. */
async function putKeys(keyFiles: KeyFiles, { data }: Folders): Promise<void> {
  for (const name of KEYS) {
    const own = await keyFilesIn(data)(name).read();
    if (own !== undefined && (await keyFiles(name).read()) !== own) await keyFiles(name).replace(own);
  }
}

/** @returns how many versions */
async function putCode(deployments: Deployments, from: CodeStore, to: SharedCode): Promise<number> {
  const digests = await from.list();
  const unused = new Set(await deployments.versions.unusedCode(digests));
  const used = digests.filter((digest) => !unused.has(digest));
  for (const digest of used) await to.put(digest, await from.get(digest));
  return used.length;
}
