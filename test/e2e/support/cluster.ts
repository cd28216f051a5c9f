/**
 * A host of several nodes on free ports: a PostgreSQL, an S3, a chain that all of them reach, and a data folder each; on one
 * network, or apart: each in a network namespace, with a standby of the PostgreSQL, and an S3 that refuses when it is told to.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises';
import type { Server } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { PATH_USD_ADDRESS } from '../../../host/local-network/contracts/index.ts';
import { type CertifiedKey, certifyNode } from '../../../host/peers/authority.ts';
import { keyFilesOfNodes } from '../../../host/registry/key-file.ts';
import { postgresClient } from '../../../host/registry/postgres/client.ts';
import { openPostgresRegistry } from '../../../host/registry/postgres/index.ts';
import { type PostgresOptions, PostgresServer } from '../../registry/support/postgres-server.ts';
import { Door } from '../../s3/door.ts';
import { postgresPrograms } from './databases.ts';
import { type LocalNetworkFile, startHost, type TestHost } from './host.ts';
import { startTestNetwork, stopTestNetwork, type TestNetwork } from './local-network.ts';
import { Namespaces, type Place } from './namespaces.ts';
import { freePort } from './ports.ts';
import { available } from './programs.ts';
import { Radosgw } from './radosgw.ts';
import { relay } from './relay.ts';
import { until } from './until.ts';

const HAPROXY = fileURLToPath(new URL('../../../config/cluster/haproxy.cfg', import.meta.url));
/** That of Base Sepolia, by which nodes take the chain for it. */
const CHAIN_ID = 84_532;
const RECIPIENT = '0x00000000000000000000000000000000000000aa';

/** Whether this machine has what a cluster needs. */
export const clusterPrograms = (): boolean =>
  Boolean(postgresPrograms()) && available('radosgw') && available('ceph-osd');

/** What nodes that are apart reach, each at an address of its own. */
export interface Apart {
  network: Namespaces;
  postgres: Place;
  standby: Place;
  /** Of the second PostgreSQL, which has every write before it is acknowledged. */
  standbyServer: PostgresServer;
  s3: Place;
  /** In front of the S3. */
  door: Door;
  /** By their names. */
  nodes: Map<string, { place: Place; port: number }>;
  relays: Server[];
}

interface Parts {
  postgres: PostgresServer;
  storage: Radosgw;
  chain: TestNetwork;
  folder: string;
  publicPort: number;
  apart?: Apart;
}

const POSTGRES_PORT = 5432;
const S3_PORT = 9000;

export class Cluster {
  /** That takes writes. */
  postgres: PostgresServer;
  readonly storage: Radosgw;
  /** That all nodes pay on. */
  readonly chain: TestNetwork;
  readonly #folder: string;
  readonly #publicPort: number;
  readonly nodes: TestHost[] = [];
  readonly #apart: Apart | undefined;
  #balancer: ChildProcess | undefined;

  private constructor(parts: Parts) {
    this.postgres = parts.postgres;
    this.storage = parts.storage;
    this.chain = parts.chain;
    this.#folder = parts.folder;
    this.#publicPort = parts.publicPort;
    this.#apart = parts.apart;
    parts.postgres.create('cluster');
  }

  static async start(): Promise<Cluster> {
    const postgres = PostgresServer.start();
    return new Cluster({ ...(await commonParts()), postgres: await postgres });
  }

  /** Nodes, PostgreSQL and S3 in network namespaces: `namespacesAllowed` says whether that can be had. */
  static async startApart(): Promise<Cluster> {
    const network = await Namespaces.open();
    const [first, second, s3] = [await network.place(), await network.place(), await network.place()];
    const [postgres, parts] = await Promise.all([PostgresServer.start(serverAt(first)), commonParts()]);
    const socket = path.join(parts.folder, 's3.sock');
    const [standbyServer, door] = await Promise.all([
      postgres.standby(serverAt(second)),
      Door.open(parts.storage.access.endpoint, socket),
    ]);
    await s3.relay(`${s3.address}:${S3_PORT}`, socket);
    const chain = await relay(path.join(parts.folder, 'chain.sock'), new URL(parts.chain.x402.rpcUrl).host);
    const apart = {
      network,
      postgres: first,
      standby: second,
      standbyServer,
      s3,
      door,
      nodes: new Map(),
      relays: [chain],
    };
    return new Cluster({ ...parts, postgres, apart });
  }

  /** By a socket of its own, which no partition cuts. */
  get database(): string {
    return this.postgres.url('cluster');
  }

  /** The PostgreSQL dies, and its standby takes over. */
  async failover(): Promise<void> {
    await this.postgres.kill();
    this.apart.standbyServer.promote();
    [this.postgres, this.apart.standbyServer] = [this.apart.standbyServer, this.postgres];
    [this.apart.postgres, this.apart.standby] = [this.apart.standby, this.apart.postgres];
  }

  /** In the place of the one that died the other gets a standby. */
  async followUp(): Promise<void> {
    const { standby, standbyServer } = this.apart;
    await standbyServer.stop();
    this.apart.standbyServer = await this.postgres.standby(serverAt(standby));
  }

  get apart(): Apart {
    if (!this.#apart) throw new Error('these nodes are on one network');
    return this.#apart;
  }

  /** As clients in tests know a network. */
  get network(): LocalNetworkFile {
    const { x402, wallets = [] } = this.chain;
    const { network, token, name, version } = x402;
    return {
      rpcUrl: x402.rpcUrl,
      chainId: CHAIN_ID,
      token: token as `0x${string}`,
      x402: { network, token: token as `0x${string}`, name, version },
      wallets: wallets as LocalNetworkFile['wallets'],
    };
  }

  /** @param name of the node; one that was there before has its data folder @param more flags */
  async node(name: string, more: Record<string, string> = {}, env: Record<string, string> = {}): Promise<TestHost> {
    const flags = { ...this.#flags, 'cluster-node': name, 'cluster-address': '127.0.0.1:0', ...more };
    const secrets = { ...this.#secrets, ...env };
    if (!this.#apart) return this.#start(name, flags, secrets);
    const { place, port } = this.#apart.nodes.get(name) ?? (await this.#place(name, this.#apart));
    const own = { ...flags, 'cluster-address': `${place.address}:0`, port: String(port) };
    return this.#start(name, own, secrets, place.within);
  }

  /** A namespace for a node, whose public port is this machine's, and which has the chain where this machine has it. */
  async #place(name: string, { network, nodes, relays }: Apart): Promise<{ place: Place; port: number }> {
    const made = { place: await network.place(), port: await freePort() };
    const [here, socket] = [`127.0.0.1:${made.port}`, path.join(this.#folder, `${name}.sock`)];
    const chain = new URL(this.chain.x402.rpcUrl).host;
    await made.place.relay(socket, here, chain, path.join(this.#folder, 'chain.sock'));
    relays.push(await relay(here, socket));
    nodes.set(name, made);
    return made;
  }

  /** A host of one node, on the data folder that a node of that name has. */
  async box(name: string, more: Record<string, string> = {}): Promise<TestHost> {
    return this.#start(name, { ...this.#flags, ...more }, {});
  }

  async #start(
    name: string,
    flags: Record<string, string>,
    env: Record<string, string>,
    within: string[] = [],
  ): Promise<TestHost> {
    const data = path.join(this.#folder, name);
    await mkdir(data, { recursive: true, mode: 0o700 });
    // Whose wallets have what gas costs: whichever node is first gives them to all.
    await copyFile(path.join(this.chain.folder, 'network-keys.json'), path.join(data, 'network-keys.json'));
    const host = await startHost({ data, flags, env, within });
    this.nodes.push(host);
    return host;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#publicPort}`;
  }

  /** Sends what is meant for the cluster's URL to one node, as a load balancer does. */
  via(node: () => Pick<TestHost, 'url'>, sender: typeof fetch = fetch): typeof fetch {
    return async (input, init) => {
      const request = new Request(input, init);
      const headers = new Headers(request.headers);
      headers.set('x-forwarded-host', new URL(this.url).host);
      const answer = await sender(
        new Request(request.url.replace(this.url, node().url), new Request(request, { headers })),
      );
      // Clients sign only for the address that they called.
      return Object.defineProperty(answer, 'url', { value: request.url });
    };
  }

  get #flags(): Record<string, string> {
    return {
      'public-url': this.url,
      'trusted-proxies': '127.0.0.1/32',
      'payments-network': 'none',
      'payments-x402-network': 'base-sepolia',
      'payments-x402-rpc-url': this.chain.x402.rpcUrl,
      'payments-x402-recipient': RECIPIENT,
    };
  }

  /** Flags of nodes that take MPP, too, on the same chain. */
  get mpp(): Record<string, string> {
    const { rpcUrl } = this.chain.x402;
    const tempo = {
      network: `tempo:${CHAIN_ID}`,
      rpcUrl,
      token: PATH_USD_ADDRESS,
      recipient: RECIPIENT,
      testMoney: true,
    };
    return { 'payments-also': JSON.stringify([tempo]) };
  }

  /** The operator's wallet. */
  readonly recipient: `0x${string}` = RECIPIENT;
  readonly key = 'a key of thirty-two characters, or more';

  /** What the holder of a node's key has: a certificate of the nodes' own authority, which no node admits yet. */
  async certify(number: number) {
    const registry = await openPostgresRegistry(this.database);
    const keys = await keyFilesOfNodes(registry, this.key, tmpdir());
    const authority = JSON.parse((await keys('peers.json').read()) ?? '') as CertifiedKey;
    await registry.end();
    return { authority: authority.certificate, own: await certifyNode(authority, number) };
  }

  /** The registry names one more node, of which nothing runs. */
  async admit(name: string, number: number, address: string, certificate: string): Promise<void> {
    const client = postgresClient(this.database);
    const sql = `INSERT INTO nodes (name, node, version, started_at, number, address, certificate)
      VALUES (?, ?, '0', 0, ?, ?, ?)`;
    await client.execute({ sql, args: [name, name, number, address, certificate] });
    await client.end();
  }

  get #secrets(): Record<string, string> {
    const { endpoint, bucket, accessKey, secretKey } = this.storage.settings('cluster');
    const apart = this.#apart;
    const servers = apart && [apart.postgres, apart.standby].map(({ address }) => `${address}:${POSTGRES_PORT}`);
    return {
      TURNPIKE_CLUSTER_DATABASE: servers ? `postgres://turnpike@${servers}/cluster` : this.database,
      TURNPIKE_CLUSTER_KEY: this.key,
      TURNPIKE_CLUSTER_STORAGE_ENDPOINT: apart ? `http://${apart.s3.address}:${S3_PORT}` : endpoint,
      TURNPIKE_CLUSTER_STORAGE_BUCKET: bucket,
      TURNPIKE_CLUSTER_STORAGE_ACCESS_KEY: accessKey,
      TURNPIKE_CLUSTER_STORAGE_SECRET_KEY: secretKey,
    };
  }

  /** The settings of a node, for commands. */
  get environment(): Record<string, string> {
    return {
      ...this.#secrets,
      TURNPIKE_PUBLIC_URL: this.url,
      TURNPIKE_PAYMENTS_NETWORK: 'none',
      TURNPIKE_BUILTIN_TENANTS_ENABLED: '',
    };
  }

  /** HAProxy with the example's settings on the public port, in front of two nodes. Ends with the cluster. */
  async balance(a: TestHost, b: TestHost): Promise<void> {
    const address = (host: TestHost) => new URL(host.url).host;
    const env = { LISTEN: new URL(this.url).host, NODE_A: address(a), NODE_B: address(b) };
    const child = spawn('/usr/sbin/haproxy', ['-db', '-f', HAPROXY], { env, stdio: 'ignore' });
    this.#balancer = child;
    await until(async () => (await fetch(`${this.url}/healthz`).catch(() => undefined))?.status === 200);
  }

  async stop(): Promise<void> {
    this.#balancer?.kill('SIGKILL');
    await Promise.all(this.nodes.map((node) => node.stop()));
    const apart = this.#apart;
    for (const server of apart?.relays ?? []) server.close();
    await Promise.all([this.postgres.stop(), apart?.standbyServer.stop(), apart?.door.close(), this.storage.stop()]);
    await Promise.all([stopTestNetwork(this.chain), apart?.network.close()]);
    await rm(this.#folder, { recursive: true, force: true });
  }
}

function serverAt({ address, within }: Place): PostgresOptions {
  return { tcp: { host: address, port: POSTGRES_PORT }, within };
}

async function commonParts(): Promise<Omit<Parts, 'postgres'>> {
  const [storage, chain, folder, publicPort] = await Promise.all([
    Radosgw.start(),
    startTestNetwork({ payments: { localChainId: CHAIN_ID } }),
    mkdtemp(path.join(tmpdir(), 'tp-cluster-')),
    freePort(),
  ]);
  return { storage, chain, folder, publicPort };
}
