/** What moving in and moving out have in common: the id of a move, which data comes along, and how far it is. */
import { randomBytes } from 'node:crypto';
import path from 'node:path';
import { pino } from 'pino';
import type { Transferred } from '../bindings/store-process/transfer.ts';
import type { AllStores } from '../bindings/store-process/transfer-all.ts';
import { storesOfBox, storesOfCluster, transferStores } from '../bindings/store-process/transfer-all.ts';
import type { Registry } from '../registry/index.ts';
import { keyFileAt } from '../registry/key-file.ts';
import { Invariants } from '../registry/payments/invariants.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { Config } from '../shared/config.ts';
import { fileSize } from '../shared/file-size.ts';
import { fullDisk } from '../shared/full-disk.ts';
import { Problem } from '../shared/problem.ts';

/** Keys of the host, in files of a data folder or sealed in PostgreSQL. */
export const KEYS = ['secrets.key', 'payments.key', 'network-keys.json', 'solana-fee-payer.json'];

/** What a move brought. */
export interface Moved {
  /** By table. */
  rows: Record<string, number>;
  /** Versions of code. */
  code: number;
  /** Of KV and R2. */
  stores: { stores: number } & Transferred;
  /** Durable Objects; queues and workflows are made of them, too. */
  objects: { objects: number; alarms: number; bytes: number };
  /** Of D1, and of data points. */
  databases: { databases: number; rows: number; bytes: number };
  /** Static files, with their lists. */
  assets: { files: number; bytes: number };
  /** By ACME; the account comes with them. */
  certificates: number;
}

/** One line for people. */
export type Say = (line: string) => void;

/** Between two lines about the same store, ms. */
const SAY_EVERY_MS = 2_000;

/** By which a move that is made again knows its own. */
export async function idOfMove(folder: string): Promise<string> {
  const file = keyFileAt(path.join(folder, 'move'));
  return ((await file.read()) ?? (await file.add(`${randomBytes(12).toString('hex')}\n`))).trim();
}

/** Both sides of KV and R2. @param tenantsFolder of the box */
async function openBothStores(
  config: Config,
  tenantsFolder: string,
): Promise<{ box: AllStores; cluster: AllStores; close(): Promise<void> }> {
  const { objects, s3 } = config.storage;
  const { database, storage } = config.cluster;
  const log = pino({ level: 'warn' }, pino.destination(2));
  if (objects === 's3' && s3.endpoint === storage.endpoint && s3.bucket === storage.bucket)
    throw new Problem(
      'invalid_config',
      'storage.s3 and cluster.storage are the same bucket, in which a box and a cluster would remove what the other has: give the cluster one of its own.',
    );
  const box = await storesOfBox(tenantsFolder, objects === 's3' ? s3 : undefined, log);
  try {
    const cluster = await storesOfCluster({ database, storage }, tenantsFolder, log);
    return {
      box,
      cluster,
      async close() {
        await box.close();
        await cluster.close();
      },
    };
  } catch (error) {
    await box.close();
    throw error;
  }
}

/** How one direction moves what is not in the registry. */
export interface DataSteps {
  /** @returns how many versions */
  code(): Promise<number>;
  /** @returns how many */
  certificates(): Promise<number>;
  assets(tenant: string): Promise<{ files: number; bytes: number }>;
  objects(deployments: Deployment[]): Promise<Pick<Moved, 'objects' | 'databases'>>;
  /** KV and R2 go from one side to the other. */
  from: 'box' | 'cluster';
}

/** Code, certificates, static files, KV and R2, objects and databases: in this order, as objects need the schema of stores. */
export async function moveData(
  config: Config,
  tenantsFolder: string,
  deployments: Deployment[],
  steps: DataSteps,
  say: Say,
): Promise<Omit<Moved, 'rows'>> {
  const code = await steps.code();
  say(`code: ${code} versions`);
  const certificates = await steps.certificates();
  if (certificates > 0) say(`certificates: ${certificates}`);
  const assets = { files: 0, bytes: 0 };
  for (const { tenant } of deployments) {
    const { files, bytes } = await steps.assets(tenant);
    assets.files += files;
    assets.bytes += bytes;
    if (files > 0) say(`static files of ${tenant}: ${files}`);
  }
  const { box, cluster, close } = await openBothStores(config, tenantsFolder);
  try {
    const [from, to] = steps.from === 'box' ? [box, cluster] : [cluster, box];
    const stores = await transferStores(from, to, storeProgress(say));
    return { code, certificates, assets, stores, ...(await steps.objects(deployments)) };
  } finally {
    await close();
  }
}

/** Tells now and then how far the stores are. */
function storeProgress(say: Say): (place: { tenant: string; name: string }, more: Transferred) => void {
  let last = '';
  let saidAt = 0;
  let sum = { rows: 0, bytes: 0 };
  return ({ tenant, name }, { rows, bytes }) => {
    const store = `${tenant}/${name}`;
    if (store !== last) sum = { rows: 0, bytes: 0 };
    sum = { rows: sum.rows + rows, bytes: sum.bytes + bytes };
    if (store === last && performance.now() - saidAt < SAY_EVERY_MS) return;
    last = store;
    saidAt = performance.now();
    say(`store ${store}: ${sum.rows} rows compared, ${fileSize(sum.bytes)} sent`);
  };
}

/** @throws Problem conflict where the books do not add up */
export async function checkBooks(registry: Registry, where: string): Promise<void> {
  const wrong = await new Invariants(registry).check();
  if (wrong.length > 0)
    throw new Problem('conflict', `The books do not add up ${where}: ${JSON.stringify(wrong)}. Nothing was moved.`);
}

/** With data. */
export function living(deployments: Deployment[]): Deployment[] {
  return deployments.filter(({ state }) => state !== 'decommissioned');
}

/** @throws Problem that says what to do, where what a move needs has failed */
export async function goingOnLater<T>(folder: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Problem) throw error;
    const full = fullDisk(error);
    const said = full ? `The disk is full (${full.message}): make room in ${folder}` : (error as Error).message;
    throw new Problem(
      'internal',
      `${said}. Nothing is lost: call the command again once that is mended, and the move goes on.`,
      {
        cause: error,
      },
    );
  }
}
