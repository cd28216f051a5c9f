/**
 * A node of a cluster for tests, in a process of its own: the runtime with its edge, and the bucket of objects. Told what
 * it is by its first message; killed, it leaves to others what it had.
 */
import path from 'node:path';
import { pino } from 'pino';
import { BucketGateway } from '../../../host/bindings/objects-bucket/gateway.ts';
import { BucketRecords, type Sql } from '../../../host/bindings/objects-bucket/records.ts';
import { DiskBlobs } from '../../../host/bindings/store-process/blobs/disk.ts';
import type { CertifiedKey } from '../../../host/peers/authority.ts';
import { PeerLinks } from '../../../host/peers/links.ts';
import { Questions } from '../../../host/peers/questions.ts';
import type { MemberId } from '../../../host/runtime/cluster-member.ts';
import { pgPool } from '../../bindings/objects-bucket/support/pg-pool.ts';
import { type Deployment, type RigOptions, RuntimeRig } from '../runtime-rig.ts';

export interface NodeInit {
  node: number;
  postgres: string;
  /** A folder in place of an S3. */
  blobs: string;
  authority: string;
  own: CertifiedKey;
  runtime?: RigOptions['runtime'];
}

export type NodeOrder =
  | { do: 'deploy'; slug: string; code: string; deployment: Deployment }
  /** Where the others listen. */
  | { do: 'peers'; ports: Record<number, number> }
  /** The bucket answers 503, or again. */
  | { do: 'bucket'; away: boolean }
  /** Other nodes are not reached, nor do they reach this one. */
  | { do: 'links'; cut: boolean }
  | { do: 'pid'; slug: string }
  | { do: 'activate'; slug: string }
  /** Its instance ends, as one does that nobody uses. */
  | { do: 'end'; slug: string }
  | { do: 'state'; slug: string }
  | { do: 'stop' };

let ports: Record<number, number> = {};
let away = false;
let cut = false;

async function begin(init: NodeInit): Promise<void> {
  const log = pino({ level: process.env.RIG_LOG ?? 'silent' });
  const pool = pgPool(init.postgres);
  // As a database that cannot be reached: what workerd gets is the gateway's own answer.
  const sql: Sql = {
    query: (query) => (away ? Promise.reject(new Error('the database is away')) : pool.query(query)),
  };
  const records = await BucketRecords.open(sql, (tenant) => new DiskBlobs(path.join(init.blobs, tenant)));
  const links = new PeerLinks({
    authority: init.authority,
    own: init.own,
    admits: () => !cut,
    addressOf: (node) => (ports[node] === undefined ? undefined : { host: '127.0.0.1', port: ports[node] }),
    onConnection: (purpose, stream, from) => {
      const said: unknown = JSON.parse(purpose);
      if (others.receive(said, stream, from)) return;
      const { tenant, member } = said as MemberId;
      rig.runtime.members?.receive({ tenant, member }, stream);
    },
  });
  const others = new Questions({
    own: String(init.node),
    peers: () =>
      Object.keys(ports)
        .filter((node) => Number(node) !== init.node)
        .map((node) => ({ number: Number(node), name: node })),
    dial: (node, purpose) => links.dial(node, purpose),
  });
  const rig = await RuntimeRig.start({
    ...(init.runtime ? { runtime: init.runtime } : {}),
    cluster: {
      node: init.node,
      secret: Buffer.alloc(32, 9),
      bucket: new BucketGateway({ records, log }),
      dialPeer: ({ node, ...to }) => links.dial(node, JSON.stringify(to)),
      others,
    },
  });
  const peers = await links.listen('127.0.0.1', 0);
  process.on('message', async (order: NodeOrder & { id: number }) => {
    const answer = await obey(rig, links, order).catch((error: Error) => ({ error: error.stack }));
    process.send?.({ id: order.id, answer }, () => {
      if (order.do === 'stop') process.exit(0);
    });
  });
  process.send?.({ id: 0, answer: { port: rig.port, peers, folder: rig.folder } });
}

async function obey(rig: RuntimeRig, links: PeerLinks, order: NodeOrder): Promise<unknown> {
  switch (order.do) {
    case 'deploy':
      return await rig.deploy(order.slug, order.code, order.deployment);
    case 'activate':
      return await rig.runtime.activate(order.slug);
    case 'end':
      return await rig.runtime.stop(order.slug, 'idle');
    case 'state':
      return rig.runtime.status(order.slug).state;
    case 'peers':
      ports = order.ports;
      return undefined;
    case 'bucket':
      away = order.away;
      return undefined;
    case 'links':
      cut = order.cut;
      links.review();
      return undefined;
    case 'pid':
      return rig.pidOf(order.slug);
    case 'stop':
      await rig.stop();
      await links.close();
  }
}

process.once('message', (init: NodeInit) => void begin(init));
// The test's process is gone.
process.on('disconnect', () => process.exit(1));
