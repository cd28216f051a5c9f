/**
 * The runtime's interface: what it offers to the supervisor and what it needs from it. Types only; read this before
 * calling `createRuntime`.
 */

import type { Logger } from 'pino';
import type { QueueAnswer, QueueCall } from '../bindings/queues/call.ts';
import type { BindingServers } from '../bindings/server.ts';
import type { Visit } from '../bindings/services/directory.ts';
import type { Sandbox } from '../sandbox/confinement.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type {
  AcquiredInstance,
  EdgeMethods,
  EdgeTraffic,
  EgressMethods,
  InstancePlan,
  InstanceSpec,
  ServingInstance,
  StorageMethods,
  StorageQuotas,
  TenantId,
} from '../shared/contracts.ts';
import type { ObjectsCluster } from './cluster-member.ts';
import type { ProbePlace } from './deploy/probe.ts';
import type { ExitReason } from './exit-reason.ts';
import type { LogStore } from './logs/log-store.ts';
import type { Members } from './members.ts';
import type { ScheduledAnswer } from './system-calls.ts';

export type InstanceState = 'cold' | 'starting' | 'warm' | 'draining';

export interface LastExit {
  reason: ExitReason;
  /** One sentence for the owner. */
  detail: string;
  /** Clock time, ms. */
  at: number;
}

/** For `GET /_admin/get/:slug`, the usage page and metrics. */
export interface InstanceStatus {
  state: InstanceState;
  generation?: number;
  revision?: string;
  /** Clock time, ms. */
  startedAt?: number;
  /** Private memory of all processes of the instance, bytes; refreshed about once a second. */
  memoryBytes?: number;
  /** CPU time of all processes of the instance since it started, ms. */
  cpuMs?: number;
  inFlight: number;
  /** Where there are several. */
  instances?: number;
  lastExit?: LastExit;
  /** Set while the tenant waits out a crash loop: clock time of the next allowed start, ms. */
  retryAt?: number;
}

/** Things that happened, for metrics and usage. Log lines for the owner are written by the runtime itself. */
export type RuntimeEvent =
  | { type: 'started'; slug: string; tenant: TenantId; generation: number; coldStartMs: number }
  /** CPU time of instances since the last such event, ms: told now and then, and when they end. */
  | { type: 'used'; slug: string; tenant: TenantId; cpuMs: number }
  | {
      type: 'stopped';
      slug: string;
      tenant: TenantId;
      generation: number;
      reason: ExitReason;
      detail: string;
      /** CPU time that the instance used in its life, ms. */
      cpuMs: number;
    }
  | { type: 'start_failed'; slug: string; tenant: TenantId; detail: string };

/** A method of another process: the same shape as its contract, answered asynchronously. */
type Remote<M, K extends keyof M> = M[K] extends (argument: infer A) => infer R
  ? (argument: A) => Promise<Awaited<R>>
  : never;

export interface RuntimeDependencies {
  config: Config['runtime'];
  storeQuotas: StorageQuotas;
  /** `<data>/tenants`: a folder for each tenant. */
  tenantsFolder: string;
  /** `<data>/run`: the instances' sockets are below `<run>/c`. At most 70 bytes long. */
  runFolder: string;
  /** Owners' logs; shared with the endpoints that read them. */
  logs: LogStore;
  /** From `detectSandbox()`. */
  sandbox: Sandbox;
  clock: Clock;
  log: Logger;
  /** The deployment to run now, or a version of it that is not live. Throws a Problem where there is none, or none may run. */
  resolve(slug: string, preview?: string): Promise<InstanceSpec>;
  /** Set where tenants' objects are those of a cluster of nodes. */
  cluster?: ObjectsCluster;
  storage: {
    open: Remote<StorageMethods, 'open'>;
    close: Remote<StorageMethods, 'close'>;
  };
  egress: {
    open: Remote<EgressMethods, 'open'>;
    close: Remote<EgressMethods, 'close'>;
  };
  /** To every edge process. */
  edges: {
    setInstance: Remote<EdgeMethods, 'setInstance'>;
    retire: Remote<EdgeMethods, 'retire'>;
    failed: Remote<EdgeMethods, 'failed'>;
  };
  /** What serves the bindings that the storage process does not; a deployment that asks for another one does not start. */
  servers: BindingServers;
  onEvent?(event: RuntimeEvent): void;
}

export interface ScheduledResult {
  /** `interrupted`: by the end of the host, before or while it ran. */
  outcome: 'ok' | 'exception' | 'exceeded_cpu' | 'exceeded_memory' | 'not_started' | 'interrupted';
  durationMs: number;
  error?: string;
}

export interface Runtime {
  /**
   * The first instance of the slug, or of a preview of it, and those beside it; starts the instance if it is cold. Concurrent
   * callers share one start.
   * @param key of the instance: the slug, or `instanceKey` of a preview
   * @throws Problem start_failed, crash_loop, cpu_exceeded, memory_exceeded, not_found, overloaded
   */
  acquire(key: string): Promise<AcquiredInstance>;
  /** For calls of other deployments; starts the instance if it is cold. @throws as `acquire` */
  visit(slug: string): Promise<Visit>;
  /**
   * `activate` may come soon: what it needs is made ready, where the slug runs.
   * @param planned what `resolve` will then answer
   * @returns where to probe the code: that instance takes over. Undefined where nothing runs, or it has to be another one
   */
  expectUpdate(planned: InstancePlan): ProbePlace | undefined;
  /**
   * Brings the present revision (`resolve`) into service: when an instance runs, starts the new one beside it, waits
   * until it listens, switches the edges and drains the old one; no request fails. Does nothing when cold. Previews end:
   * the next request starts them with the settings of then.
   * @throws Problem when the new revision does not start; the old instance then goes on serving
   */
  activate(slug: string): Promise<void>;
  /** Ends the slug's previews: the next request starts them anew. */
  endPreviews(slug: string): void;
  /** Ends the slug's instances, previews too: drained, then SIGTERM, then SIGKILL. Resolves when nothing of it runs. */
  stop(slug: string, reason: ExitReason, options?: { drainMs?: number }): Promise<void>;
  /** Runs the tenant's `scheduled()`; starts the instance if it is cold. Does not throw for what the tenant does. */
  runScheduled(slug: string, cron: string, scheduledTimeMs: number): Promise<ScheduledResult>;
  /**
   * Hands a call to a queue of the slug; starts the instance if it is cold. Messages are kept once this answers 200.
   * @throws Problem, or Error when the instance ends meanwhile
   */
  callQueue(slug: string, binding: string, call: QueueCall): Promise<QueueAnswer>;
  /**
   * Calls the tenant's `tail()`; starts the instance if it is cold.
   * @param from slug whose traces they are @param events a JSON array
   * @throws Problem, or Error when the instance ends meanwhile
   */
  tail(slug: string, from: string, events: Buffer): Promise<ScheduledAnswer>;
  status(slug: string): InstanceStatus;
  /** Whether somebody waits for an instance or a database just now. */
  readonly starting: boolean;
  /** Every slug that is not cold. */
  list(): { slug: string; tenant: TenantId; status: InstanceStatus }[];
  /** Instances in service, for an edge that starts later than they did. */
  instances(): ServingInstance[];
  /** What the edges report about once a second: keeps an instance from being idle. */
  reportTraffic(traffic: EdgeTraffic[]): void;
  /** Call after the storage (or egress) process was started again: opens the sockets of all running instances anew. */
  reopen(part: 'storage' | 'egress'): Promise<void>;
  /**
   * Says which deployments have Durable Objects, once after the start: an alarm of theirs may be due.
   */
  watchAlarms(deployments: { slug: string; tenant: TenantId }[]): void;
  /** Does the work while no process of the tenant runs: they are halted, and their callers wait. */
  standStill<Result>(tenant: TenantId, work: () => Promise<Result>): Promise<Result>;
  /** Instances that are members of their tenants' clusters; set where objects are those of a cluster. */
  readonly members: Members | undefined;
  /** How instances are confined, for /healthz and `turnpike doctor`. */
  readonly isolation: { level: Sandbox['level']; detail: string };
  /** Ends everything, within about six seconds. */
  close(): Promise<void>;
}
