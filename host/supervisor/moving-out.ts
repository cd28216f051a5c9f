/**
 * A cluster becomes one box again, in a new data folder. No node may run, and none starts meanwhile: the cluster is closed
 * first. The box's registry gets its name last, once the cluster is closed for good, so never do both pay.
 */
import { existsSync, readdirSync, renameSync, rmSync } from 'node:fs';
import path from 'node:path';
import { takeAssets } from '../assets/transfer.ts';
import { copyStore, folderStore } from '../certificates/store.ts';
import { Deployments } from '../registry/deployments.ts';
import { openRegistry, type Registry } from '../registry/index.ts';
import { keyFilesIn, keyFilesOfNodes } from '../registry/key-file.ts';
import { close, holdsHost, readClosed, reopen } from '../registry/postgres/closed.ts';
import { openWithoutNodes } from '../registry/postgres/index.ts';
import { moveOut } from '../registry/postgres/move-out.ts';
import { refuseCopy } from '../registry/postgres/restored.ts';
import { SealedTexts } from '../registry/postgres/sealed-texts.ts';
import { CodeStore } from '../runtime/code-store.ts';
import type { Config } from '../shared/config.ts';
import { syncFile, syncFileSystem } from '../shared/durable-files.ts';
import { Problem } from '../shared/problem.ts';
import { openBucket, type SharedBucket } from './cluster.ts';
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
import { takeAllObjects } from './moving-objects.ts';

/** Until the cluster is closed for good. */
const MOVING = 'registry.db.moving';
/** What a folder may have before a move: its lock, and what a move makes first. */
const HARMLESS = /^(lock|move|run|tenants|code|certificates)(-.*)?$/;

export interface MovedOut extends Moved {
  /** Of the box. */
  registry: string;
}

/**
 * All nodes must be stopped. May be killed at any point and run again.
 * @param dataFolder of the box, new
 * @throws Problem
 */
export function moveClusterOut(config: Config, dataFolder: string, say: Say = () => undefined): Promise<MovedOut> {
  return goingOnLater(dataFolder, () => move(config, dataFolder, say));
}

async function move(config: Config, dataFolder: string, say: Say): Promise<MovedOut> {
  const { database, key } = config.cluster;
  const cluster = await openCluster(database);
  try {
    refuseUsedFolder(dataFolder);
    const folders = openFolders(dataFolder);
    const id = await idOfMove(folders.data);
    const closed = await readClosed(cluster.client);
    if (closed?.why === 'moved out' && closed.move === id) return await finish(folders, closed.moved as Moved);
    // Of a box that was moving in, the folder has the id of a move, too.
    if (existsSync(folders.registry) || existsSync(folders.movedRegistry)) throw notEmpty(folders.data);
    if (!closed && !(await holdsHost(cluster.client)))
      throw new Problem(
        'not_found',
        'The PostgreSQL of cluster.database holds no host. Check the address. Nothing was changed.',
      );
    const keyFiles = await keyFilesOfNodes(cluster, key, folders.data);
    await close(cluster.client, { why: 'moving out', move: id });
    // Nodes that ended just before may have changed them.
    const deployments = await new Deployments(cluster.db).all();
    await checkBooks(cluster, 'in PostgreSQL');
    for (const name of KEYS) {
      const text = await keyFiles(name).read();
      if (text !== undefined) await keyFilesIn(folders.data)(name).replace(text);
    }
    const bucket = await openBucket(config, cluster);
    const steps: DataSteps = {
      code: () => takeCode(new Deployments(cluster.db), new CodeStore(folders.code, bucket.code), bucket),
      certificates: async () =>
        copyStore(await SealedTexts.open(cluster.client, keyFiles), folderStore(folders.certificates)),
      assets: (tenant) => takeAssets(folders.tenants, tenant, bucket.assets),
      objects: (present) => takeAllObjects(config, folders, present, bucket, say),
      from: 'cluster',
    };
    const data = await moveData(config, folders.tenants, living(deployments), steps, say);
    const moved = { rows: await takeRegistry(folders, cluster), ...data };
    say('registry: every row is copied');
    await syncFileSystem(folders.data);
    await close(cluster.client, { why: 'moved out', move: id, moved });
    say('the cluster is closed');
    return await finish(folders, moved);
  } finally {
    await cluster.close();
  }
}

/** Nodes may start again. @throws Problem conflict where the cluster is not being moved out */
export async function giveUpMoveOut({ cluster: { database } }: Config): Promise<void> {
  const cluster = await openCluster(database);
  try {
    await reopen(cluster.client);
  } finally {
    await cluster.close();
  }
}

async function openCluster(database: string): ReturnType<typeof openWithoutNodes> {
  if (database === '')
    throw new Problem('invalid_config', 'Set cluster.database and cluster.key to the cluster that is to move.');
  const registry = await openWithoutNodes(database);
  try {
    await refuseCopy(registry.client);
    return registry;
  } catch (error) {
    await registry.close();
    throw error;
  }
}

function refuseUsedFolder(folder: string): void {
  const names = existsSync(folder) ? readdirSync(folder) : [];
  const isOfMove = names.includes('move');
  if (isOfMove || names.every((name) => HARMLESS.test(name))) return;
  throw notEmpty(folder);
}

function notEmpty(folder: string): Problem {
  return new Problem('conflict', `${folder} is not empty. Name a new folder with --data.`);
}

async function takeCode(deployments: Deployments, to: CodeStore, { code }: SharedBucket): Promise<number> {
  const digests = await code.digests();
  const unused = new Set(await deployments.versions.unusedCode(digests));
  const used = digests.filter((digest) => !unused.has(digest));
  for (const digest of used) await to.get(digest);
  return used.length;
}

/** @returns rows by table */
async function takeRegistry({ data }: Folders, cluster: Registry): Promise<Record<string, number>> {
  const file = path.join(data, MOVING);
  for (const end of ['', '-wal', '-shm']) rmSync(`${file}${end}`, { force: true });
  const box = await openRegistry(file);
  try {
    const rows = await moveOut(cluster.client, box.client);
    await checkBooks(box, 'in the box');
    // All is in the file from here on.
    await box.client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
    return rows;
  } finally {
    box.close();
  }
}

/** The box may start. */
async function finish({ data, registry }: Folders, moved: Moved): Promise<MovedOut> {
  const file = path.join(data, MOVING);
  if (existsSync(file)) renameSync(file, registry);
  if (!existsSync(registry))
    throw new Problem(
      'not_found',
      `The cluster has moved out into ${data}, whose registry is gone: restore it from a backup.`,
    );
  await syncFile(data);
  return { ...moved, registry };
}
