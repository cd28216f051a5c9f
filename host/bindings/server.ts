/** What serves the bindings that the store process does not serve, such as D1 and payments. */
import type { Logger } from 'pino';
import type { Sandbox } from '../sandbox/confinement.ts';
import type { Config } from '../shared/config.ts';
import type { StorageQuotas, TenantId } from '../shared/contracts.ts';
import type { QueueAnswer, QueueCall } from './queues/call.ts';
import type { ServiceDirectory } from './services/directory.ts';

/** What a running host gives to the servers. */
export interface ServerHost {
  config: Config;
  /** It is one of several nodes. */
  isClustered: boolean;
  tenantsFolder: string;
  /** Files that are made anew at every start. */
  runFolder: string;
  sandbox: Sandbox;
  log: Logger;
  /** Serves `env.PAYMENTS` of a tenant on a unix socket. Without it the host does not offer that binding. */
  payments?: {
    open(tenant: { tenant: TenantId; slug: string; socket: string }): Promise<void>;
    close(tenant: { tenant: TenantId; slug: string }): Promise<void>;
  };
  /** Deployments that call each other. Without it the host does not offer that. */
  services?: ServiceDirectory;
  /** The socket on which edges serve instances. Without it the host does not offer that. */
  edgeSocket?: string;
  /** Adds a line to a tenant's log. */
  tell(tenant: TenantId, event: string, text: string): void;
  /**
   * Hands traces to another deployment of the same owner. Without it the host does not offer that.
   * @param events a JSON array
   * @throws Problem, or Error when the instance ends meanwhile
   */
  deliverTail?(from: TenantId, consumer: string, events: Buffer): Promise<void>;
  /**
   * Hands messages to the deployment of the same owner that consumes the shared queue. Resolves when it keeps them.
   * @throws Problem
   */
  sendToQueue?(from: TenantId, queue: string, call: QueueCall): Promise<QueueAnswer>;
}

/** Where one deployment's instances expect the binding. */
export interface BindingPlace {
  tenant: TenantId;
  slug: string;
  /** What it is called in env, or one of the bindings that lead to the same. */
  name: string;
  /** Id of the store that it leads to. */
  store: string;
  /** As the binding's schema has checked them. */
  settings: Readonly<Record<string, unknown>>;
  /** Name of the binding's service: no other of the deployment has it. */
  service: string;
  /** Folder of the deployment's sockets, and in it the one of this binding. */
  servicesFolder: string;
  socket: string;
  /** Folder that is removed with the deployment's sockets. */
  sandboxFolder: string;
  /** The user of those who connect; undefined where the host is not root. */
  clientUid: number | undefined;
  /** Limits of the tenant's stores as they are now. */
  quotas(): StorageQuotas;
  /** Lets that user connect to the socket. */
  permit(): void;
  /** Told when a process of the binding ended without being asked. */
  onDeath(detail: string): void;
}

/** Processes of a binding that belong to one deployment: they are watched and counted like its instance. */
export interface BindingProcesses {
  /** A call waits for them. */
  readonly starting: boolean;
  /** Starts them ahead of the first call. */
  warm(): void;
  /** Looks at them. @param now ms of `performance.now()` */
  sample(now: number): { cpuMs: number; privateBytes: number };
  /** CPU time since this was last asked, ms. */
  takeCpuMs(): number;
}

/** One deployment's binding. */
export interface ServedBinding {
  /** Makes the socket. Idempotent; called again for each version that is brought into service. */
  open(): Promise<void>;
  close(): Promise<void>;
  processes?: BindingProcesses;
}

/** Made once per host. */
export interface BindingServer {
  /** Opens nothing yet. */
  serve(place: BindingPlace): ServedBinding;
  /** Usage figures of a tenant's data, as the owner's API reports them. */
  usage?(tenant: TenantId): Promise<Record<string, number>>;
  /** Removes what a tenant keeps outside of its folder. Can be repeated after a failure. */
  purge?(tenant: TenantId): Promise<void>;
}

/** Answers undefined where this host does not offer the binding. */
export type MakeBindingServer = (host: ServerHost) => BindingServer | undefined;

/** By the key of their binding. */
export type BindingServers = ReadonlyMap<string, BindingServer>;
