/** A host of several nodes on free ports: a PostgreSQL, an S3, a chain that all of them reach, and a data folder each. */
import { type ChildProcess, spawn } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { PostgresServer } from '../../registry/support/postgres-server.ts';
import { postgresPrograms } from './databases.ts';
import { type LocalNetworkFile, startHost, type TestHost, until } from './host.ts';
import { startTestNetwork, stopTestNetwork, type TestNetwork } from './local-network.ts';
import { freePort } from './ports.ts';
import { available } from './programs.ts';
import { Radosgw } from './radosgw.ts';

const HAPROXY = fileURLToPath(new URL('../../../config/cluster/haproxy.cfg', import.meta.url));
/** That of Base Sepolia, by which nodes take the chain for it. */
const CHAIN_ID = 84_532;
const RECIPIENT = '0x00000000000000000000000000000000000000aa';

/** Whether this machine has what a cluster needs. */
export const clusterPrograms = (): boolean =>
  Boolean(postgresPrograms()) && available('radosgw') && available('ceph-osd');

export class Cluster {
  readonly postgres: PostgresServer;
  readonly storage: Radosgw;
  /** That all nodes pay on. */
  readonly chain: TestNetwork;
  readonly #folder: string;
  readonly #publicPort: number;
  readonly database: string;
  readonly nodes: TestHost[] = [];
  #balancer: ChildProcess | undefined;

  private constructor(parts: {
    postgres: PostgresServer;
    storage: Radosgw;
    chain: TestNetwork;
    folder: string;
    publicPort: number;
  }) {
    this.postgres = parts.postgres;
    this.storage = parts.storage;
    this.chain = parts.chain;
    this.#folder = parts.folder;
    this.#publicPort = parts.publicPort;
    this.database = parts.postgres.create('cluster');
  }

  static async start(): Promise<Cluster> {
    const [postgres, storage, chain, folder, publicPort] = await Promise.all([
      PostgresServer.start(),
      Radosgw.start(),
      startTestNetwork({ payments: { localChainId: CHAIN_ID } }),
      mkdtemp(path.join(tmpdir(), 'tp-cluster-')),
      freePort(),
    ]);
    return new Cluster({ postgres, storage, chain, folder, publicPort });
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
    return this.#start(
      name,
      { ...this.#flags, 'cluster-node': name, 'cluster-address': '127.0.0.1:0', ...more },
      { ...this.#secrets, ...env },
    );
  }

  /** A host of one node, on the data folder that a node of that name has. */
  async box(name: string): Promise<TestHost> {
    return this.#start(name, this.#flags, {});
  }

  async #start(name: string, flags: Record<string, string>, env: Record<string, string>): Promise<TestHost> {
    const data = path.join(this.#folder, name);
    await mkdir(data, { recursive: true, mode: 0o700 });
    // Whose wallets have what gas costs: whichever node is first gives them to all.
    await copyFile(path.join(this.chain.folder, 'network-keys.json'), path.join(data, 'network-keys.json'));
    const host = await startHost({ data, flags, env });
    this.nodes.push(host);
    return host;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#publicPort}`;
  }

  /** Sends what is meant for the cluster's URL to one node, as a load balancer does. */
  via(node: () => TestHost, sender: typeof fetch = fetch): typeof fetch {
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

  readonly key = 'a key of thirty-two characters, or more';

  get #secrets(): Record<string, string> {
    const { endpoint, bucket, accessKey, secretKey } = this.storage.settings('cluster');
    return {
      TURNPIKE_CLUSTER_DATABASE: this.database,
      TURNPIKE_CLUSTER_KEY: this.key,
      TURNPIKE_CLUSTER_STORAGE_ENDPOINT: endpoint,
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
    await Promise.all([this.postgres.stop(), this.storage.stop()]);
    await stopTestNetwork(this.chain);
    await rm(this.#folder, { recursive: true, force: true });
  }
}
