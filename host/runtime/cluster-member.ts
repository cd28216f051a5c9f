/**
 * An instance with objects as a member of workerd's cluster, in a sandbox without a network: what it calls on its
 * loopback is the bucket of objects or an instance of the same tenant on another node, and what these ask of it comes by
 * a unix socket of its own.
 */
import { connect, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { type Duplex, pipeline } from 'node:stream';
import { objectProgram } from '../bindings/d1/object-program.ts';
import { type Credentials, credentialsOf, peerKeyOf } from '../bindings/objects-bucket/credentials.ts';
import type { BucketTenant } from '../bindings/objects-bucket/gateway.ts';
import { listenInside } from '../sandbox/inside-listener.ts';
import type { TenantId } from '../shared/contracts.ts';
import type { Others } from '../shared/others.ts';
import type { PrewarmedSandbox } from './prewarmed-sandbox.ts';

/** One instance of a tenant, on one node. */
export interface MemberId {
  tenant: TenantId;
  /** From 1 to 254, another for each node. */
  node: number;
  /** From 1 to 65,535, another for each instance that lives at a time. */
  member: number;
}

/** What the host has of a cluster for the objects of tenants. */
export interface ObjectsCluster {
  /** From 1 to 254. */
  node: number;
  /** The same on all nodes: keys of tenants are made of it. */
  secret: Buffer;
  bucket: {
    /** @returns takes connections, paused ones, that come from the sandbox of this instance */
    entrance(of: BucketTenant): (socket: Socket) => void;
    /** The instance at this address is gone: others need not wait until its lease has run out. */
    ended(tenant: TenantId, address: string): Promise<void>;
    /** Of a tenant's objects: real time, ms. Nobody keeps it while no instance runs. */
    nextAlarm(tenant: TenantId): Promise<number | undefined>;
    /** It has not answered for a while: members of the cluster will end. */
    readonly away: boolean;
    /** @param listener called when it is away, and when it is back */
    watch(listener: () => void): void;
    close(): void;
  };
  /** A connection to an instance on another node; an error of it where there is none. */
  dialPeer(to: MemberId): Duplex;
  others: Others;
}

/** What its configuration says of the cluster. */
export interface MemberConfig {
  tenant: TenantId;
  credentials: Credentials;
  peerKey: string;
  /** `host:port` of the bucket, of where it listens, and of where others find it. */
  bucket: string;
  listen: string;
  advertise: string;
  /** Databases of D1: source of the worker that keeps them, and what each may grow to. */
  databases: { source: string; mostBytes: number; points: { mostBytes: number; days: number } };
}

/** What of a deployment an instance has in the cluster. */
export interface MemberPart {
  /** Of all objects together. */
  quotaBytes: number;
  databaseBytes: number;
  /** What data points may take, and how long they are kept. */
  points: { mostBytes: number; days: number };
}

export const PEERS_SOCKET = 'peers.sock';
/** One listener stands for the bucket, at 127.0.0.1, and for all other instances, each at an address of its own. */
const OUTSIDE_PORT = 9_000;
const OWN_PORT = 9_001;
const LOOPBACK = '127.0.0.1';
/** Connections of one instance to others. */
const MOST_PEERS = 128;
const MOST_MEMBERS = 65_535;

export class ClusterMember {
  readonly id: MemberId;
  readonly config: MemberConfig;
  /** Where others reach it. */
  readonly socket: string;
  /** Resolves when it has given its objects back, or is gone. */
  readonly left: Promise<void>;
  readonly #leave: () => void;
  readonly #server: Server;
  /** To the bucket and to others. */
  readonly #open = new Set<Socket>();
  /** Of those, how many lead to others: the bucket's own are many after many writes at once. */
  #peers = 0;
  /** Calls from other nodes. */
  readonly #calls = new Set<Socket>();
  #asksBucket = false;
  #seen = 0;

  private constructor(id: MemberId, config: MemberConfig, socket: string, server: Server) {
    this.id = id;
    this.config = config;
    this.socket = socket;
    this.#server = server;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.left = promise;
    this.#leave = resolve;
  }

  /** @param number any that counts up from instance to instance of this node */
  static async join(
    cluster: ObjectsCluster,
    tenant: TenantId,
    number: number,
    { quotaBytes, databaseBytes, points }: MemberPart,
    { process, listenFolder }: Pick<PrewarmedSandbox, 'process' | 'listenFolder'>,
  ): Promise<ClusterMember> {
    const id = { tenant, node: cluster.node, member: (number % MOST_MEMBERS) + 1 };
    const credentials = credentialsOf(cluster.secret, tenant);
    const config = {
      tenant,
      credentials,
      peerKey: peerKeyOf(cluster.secret, tenant),
      bucket: `${LOOPBACK}:${OUTSIDE_PORT}`,
      listen: `${LOOPBACK}:${OWN_PORT}`,
      advertise: `${addressOf(id)}:${OUTSIDE_PORT}`,
      databases: { source: await objectProgram(), mostBytes: databaseBytes, points },
    };
    const server = await listenInside(process, OUTSIDE_PORT);
    const member = new ClusterMember(id, config, path.join(listenFolder, PEERS_SOCKET), server);
    const onWork = () => {
      member.#asksBucket = true;
    };
    const onLeft = () => member.#leave();
    const toBucket = cluster.bucket.entrance({ tenant, credentials, quotaBytes, onWork, onLeft });
    server.on('connection', (socket) => member.#serve(cluster, toBucket, socket));
    server.on('error', () => undefined);
    void process.exited.then(() => member.close());
    return member;
  }

  /** Takes a connection from another node that is meant for this instance. */
  receive(stream: Duplex): void {
    const call = connect(this.socket);
    this.#calls.add(call);
    call.once('close', () => this.#calls.delete(call));
    join(stream, call);
  }

  /** Whether it has done anything since this was last asked, beside showing that it lives. */
  hasWorked(): boolean {
    const seen = [...this.#calls].reduce((sum, { bytesWritten }) => sum + bytesWritten, this.#calls.size);
    const worked = this.#asksBucket || seen !== this.#seen;
    this.#asksBucket = false;
    this.#seen = seen;
    return worked;
  }

  close(): void {
    this.#leave();
    this.#server.close();
    for (const socket of this.#open) socket.destroy();
  }

  #serve(cluster: ObjectsCluster, toBucket: (socket: Socket) => void, socket: Socket): void {
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    socket.setNoDelay(true);
    if (socket.localAddress === LOOPBACK) {
      toBucket(socket);
      return;
    }
    const peer = memberAt(this.id.tenant, socket.localAddress);
    if (!peer || this.#peers >= MOST_PEERS) {
      socket.destroy();
      return;
    }
    this.#peers++;
    socket.once('close', () => this.#peers--);
    join(socket, cluster.dialPeer(peer));
  }
}

/** An address of the loopback for each instance; nobody but instances of the same tenant calls it. */
function addressOf({ node, member }: MemberId): string {
  return `127.${node}.${member >> 8}.${member & 255}`;
}

function memberAt(tenant: TenantId, address: string | undefined): MemberId | undefined {
  const [, node = 0, high = 0, low = 0] = (address ?? '').split('.').map(Number);
  return node > 0 ? { tenant, node, member: high * 256 + low } : undefined;
}

function join(one: Duplex, other: Duplex): void {
  // Also those that come when the rest is over.
  for (const stream of [one, other]) stream.on('error', () => undefined);
  pipeline(one, other, one, () => {
    one.destroy();
    other.destroy();
  });
}
