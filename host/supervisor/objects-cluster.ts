/**
 * Durable Objects, queues and workflows of several nodes, as one of them has them: their bucket, in PostgreSQL and on the
 * S3, and the connections to instances on other nodes.
 */
import { createHmac } from 'node:crypto';
import { networkInterfaces } from 'node:os';
import type { Duplex } from 'node:stream';
import type { Logger } from 'pino';
import { z } from 'zod';
import { BucketGateway } from '../bindings/objects-bucket/gateway.ts';
import { BucketRecords } from '../bindings/objects-bucket/records.ts';
import { SCHEMA } from '../bindings/store-process/cluster/schema.ts';
import { type CertifiedKey, certifyNode, createAuthority } from '../peers/authority.ts';
import { PeerLinks } from '../peers/links.ts';
import { Questions } from '../peers/questions.ts';
import type { Peer } from '../registry/postgres/nodes.ts';
import type { ObjectsCluster } from '../runtime/cluster-member.ts';
import type { Members } from '../runtime/members.ts';
import type { Config } from '../shared/config.ts';
import type { TenantId } from '../shared/contracts.ts';
import { openPool, type PgPool } from '../shared/pg.ts';
import { Problem } from '../shared/problem.ts';
import type { Cluster, SharedBucket } from './cluster.ts';
import type { Stores } from './stores.ts';

export interface ClusteredObjects {
  cluster: ObjectsCluster;
  /** What this node and the others ask each other. */
  others: Questions;
  records: BucketRecords;
  /**
   * Starts deployments with an alarm that has been due for a while: the node that had them has ended, and no other knows.
   * @param start of an instance on this node
   */
  wakeOverdue(
    deployments: { slug: string; tenant: TenantId }[],
    start: (slug: string) => Promise<unknown>,
  ): Promise<void>;
  close(): Promise<void>;
}

export interface ClusteredObjectsParts {
  config: Config['cluster'];
  cluster: Cluster;
  stores: Pick<Stores, 'keyFiles' | 'registry'>;
  log: Logger;
  /** Instances that other nodes call; there once the runtime is. */
  members: Promise<Members | undefined>;
}

/** Writes of all tenants' objects on this node, each one round trip. */
const CONNECTIONS = 8;
const CONNECT_MS = 5_000;
/** Shorter than what workerd waits for its bucket (14 s): a server that is gone is seen as away before. */
const ANSWER_MS = 5_000;
/** Longer than the lease of an instance: a living one would have run the alarm. */
const OVERDUE_MS = 20_000;
/** Of the nodes' certificates. */
const AUTHORITY = 'peers.json';
/** What a connection between nodes is for: an instance of this node. */
const purposeShape = z.strictObject({
  tenant: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
  member: z.int().min(1).max(65_535),
});

/** After the storage process has begun, which makes the schema. @throws Problem start_failed */
export async function openClusteredObjects(parts: ClusteredObjectsParts): Promise<ClusteredObjects> {
  const { config, cluster, log } = parts;
  const pool = poolOf(config.database);
  let records: BucketRecords;
  let links: PeerLinks;
  let others: Questions;
  let authority: CertifiedKey;
  try {
    authority = await authorityOf(parts.stores.keyFiles(AUTHORITY));
    records = await recordsOn(pool, cluster.bucket);
    ({ links, others } = await linksOf(parts, authority));
  } catch (error) {
    await pool.end();
    if (error instanceof Problem) throw error;
    throw new Problem('start_failed', `Objects of the cluster cannot be kept: ${(error as Error).message}.`, {
      cause: error,
    });
  }
  return {
    cluster: {
      node: cluster.number,
      // Not cluster.key, of which nodes may have two for a while.
      secret: createHmac('sha256', authority.key).update('turnpike objects of all nodes').digest(),
      bucket: new BucketGateway({ records, log }),
      dialPeer: ({ node, tenant, member }) => links.dial(node, JSON.stringify({ tenant, member })),
      others,
    },
    others,
    records,
    async wakeOverdue(deployments, start) {
      for (const { slug, tenant } of deployments) {
        const at = await records.nextAlarm(tenant);
        if (at === undefined || at > Date.now() - OVERDUE_MS) continue;
        await start(slug).catch((err) => log.debug({ err, slug }, 'a deployment was not woken; tried again'));
      }
    },
    async close() {
      await links.close();
      records.close();
      await pool.end();
    },
  };
}

/** What the bucket of objects holds, without a node. After the stores have made the schema. */
export async function openRecords(
  database: string,
  bucket: SharedBucket,
): Promise<{ records: BucketRecords; close(): Promise<void> }> {
  const pool = poolOf(database);
  try {
    const records = await recordsOn(pool, bucket);
    return {
      records,
      async close() {
        records.close();
        await pool.end();
      },
    };
  } catch (error) {
    await pool.end();
    throw error;
  }
}

function recordsOn(pool: PgPool, { bucket }: SharedBucket): Promise<BucketRecords> {
  return BucketRecords.open(pool, (tenant) => bucket.blobs(`objects/${tenant}`));
}

/** Listens for other nodes, and tells them where. */
async function linksOf(
  { config, cluster, stores, members, log }: ClusteredObjectsParts,
  authority: CertifiedKey,
): Promise<{ links: PeerLinks; others: Questions }> {
  const { nodes, number } = cluster;
  const own = await certifyNode(authority, number);
  let peers = new Map<number, Peer>();
  const links = new PeerLinks({
    authority: authority.certificate,
    own,
    admits: ({ node, fingerprint }) => peers.get(node)?.certificate === fingerprint,
    addressOf: (node) => placeOf(peers.get(node)?.address),
    onConnection: (purpose, stream, from) => void receive(purpose, stream, from),
  });
  const others = new Questions({
    own: cluster.name,
    peers: () => [...peers.values()].filter((peer) => peer.number !== number),
    dial: (node, purpose) => links.dial(node, purpose),
  });
  async function receive(purpose: string, stream: Duplex, from: number): Promise<void> {
    const said = jsonOf(purpose);
    if (others.receive(said, stream, from)) return;
    const to = purposeShape.safeParse(said).data;
    const here = to && (await members.catch(() => undefined));
    if (to && here) here.receive(to, stream);
    else stream.destroy();
  }
  const readPeers = async () => {
    peers = new Map((await nodes.peers()).map((peer) => [peer.number, peer]));
    links.review();
  };
  stores.registry.changes.on('nodes', readPeers);
  const { host, port } = placeOf(config.address) ?? { host: ownAddress(), port: 0 };
  const listening = await links.listen(host, port).catch((error: Error) => {
    throw new Problem('start_failed', `cluster.address: ${host}:${port} cannot be listened on: ${error.message}.`, {
      cause: error,
    });
  });
  const name = host.includes(':') ? `[${host}]` : host;
  await nodes.announce({ address: `${name}:${listening}`, certificate: own.fingerprint });
  await readPeers();
  log.info({ address: `${name}:${listening}`, node: number }, 'other nodes reach this one');
  return { links, others };
}

async function authorityOf(file: ReturnType<Stores['keyFiles']>): Promise<CertifiedKey> {
  const kept = (await file.read()) ?? (await file.add(JSON.stringify(await createAuthority())));
  return JSON.parse(kept) as CertifiedKey;
}

function placeOf(address = ''): { host: string; port: number } | undefined {
  const [, host = '', port] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
  return port === undefined ? undefined : { host, port: Number(port) };
}

/** The first that is not of this machine alone. */
function ownAddress(): string {
  const all = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
  return all.find(({ internal, family }) => !internal && family === 'IPv4')?.address ?? '127.0.0.1';
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function poolOf(connectionString: string): PgPool {
  const times = { connectionTimeoutMillis: CONNECT_MS, query_timeout: ANSWER_MS };
  return openPool({ connectionString, max: CONNECTIONS, ...times, pipeline: false }, `SET search_path = ${SCHEMA}`);
}
