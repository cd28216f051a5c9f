/** An existing box becomes the first node of a cluster: its registry and its keys go into PostgreSQL, its code into the bucket. */
import { existsSync, renameSync } from 'node:fs';
import path from 'node:path';
import { keepsData } from '../control/settings.ts';
import { Deployments } from '../registry/deployments.ts';
import { openRegistry } from '../registry/index.ts';
import { keyFilesOfNodes } from '../registry/key-file.ts';
import { Invariants } from '../registry/payments/invariants.ts';
import { openPostgresRegistry } from '../registry/postgres/index.ts';
import { moveIn } from '../registry/postgres/move-in.ts';
import { CodeStore, type SharedCode } from '../runtime/code-store.ts';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';
import { openBucket, refuseHalfACluster } from './cluster.ts';
import { openFolders } from './folders.ts';

/** What the registry of the box is called from then on: no host starts on it by mistake, and pays twice. */
const MOVED = 'registry.db.moved';
const KEYS = ['secrets.key', 'payments.key', 'network-keys.json'];

export interface Moved {
  /** By table. */
  rows: Record<string, number>;
  /** Versions of code. */
  code: number;
  /** Where the box's registry is now. */
  registry: string;
}

/**
 * The host on the data folder must not run. May be killed at any point and run again.
 * @throws Problem
 */
export async function moveBoxIn(config: Config, dataFolder: string): Promise<Moved> {
  const { database, key } = config.cluster;
  if (database === '')
    throw new Problem('invalid_config', 'Set cluster.database and cluster.key to where the box is to move.');
  const folders = openFolders(dataFolder);
  const moved = path.join(folders.data, MOVED);
  refuseHalfACluster(config, { data: folders.data, registry: path.join(folders.data, 'none') });
  const source = existsSync(folders.registry) ? folders.registry : moved;
  if (!existsSync(source)) throw new Problem('not_found', `There is no host's data in ${folders.data}.`);
  const box = await openRegistry(source);
  const cluster = await openPostgresRegistry(database).catch((error) => {
    box.close();
    throw error;
  });
  try {
    const deployments = new Deployments(box.db);
    await refuseData(deployments);
    // All is in the file from here on, which gets another name while it is open.
    await box.client.execute('PRAGMA wal_checkpoint(TRUNCATE)');
    const keyFiles = await keyFilesOfNodes(cluster, key, folders.data);
    for (const name of KEYS) await keyFiles(name).read();
    const bucket = await openBucket(config, cluster);
    const code = await putCode(deployments, new CodeStore(folders.code), bucket.code);
    const rows = await moveIn(box.client, cluster.client, async () => {
      // Before it counts: two hosts with the same debts would pay them twice.
      if (source !== moved) renameSync(source, moved);
    });
    const wrong = await new Invariants(cluster).check();
    if (wrong.length > 0) throw new Error(`the books do not add up in PostgreSQL: ${JSON.stringify(wrong)}`);
    return { rows, code, registry: moved };
  } finally {
    box.close();
    await cluster.end();
  }
}

/** @returns how many versions */
async function putCode(deployments: Deployments, from: CodeStore, to: SharedCode): Promise<number> {
  const digests = await from.list();
  const unused = new Set(await deployments.unusedCode(digests));
  const used = digests.filter((digest) => !unused.has(digest));
  for (const digest of used) await to.put(digest, await from.get(digest));
  return used.length;
}

async function refuseData(deployments: Deployments): Promise<void> {
  const left = (await deployments.all()).filter(
    ({ state, bindings, assets }) => state !== 'decommissioned' && (assets !== null || keepsData(bindings)),
  );
  if (left.length === 0) return;
  throw new Problem(
    'conflict',
    `These deployments keep data on one node, which would not come along: ${left.map(({ slug }) => slug).join(', ')}. Delete them, or leave this host as it is. Nothing was changed.`,
  );
}
