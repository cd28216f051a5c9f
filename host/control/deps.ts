/** What control is composed of; main.ts makes these and hands them to the endpoints. */
import type { Logger } from 'pino';
import type { Payments } from '../payments/types.ts';
import type { Deployments } from '../registry/deployments.ts';
import type { Domains } from '../registry/domains.ts';
import type { Secrets } from '../registry/secrets.ts';
import type { Usage } from '../registry/usage.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { Pipeline } from '../runtime/deploy/pipeline.ts';
import type { LogStore } from '../runtime/logs/log-store.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { StorageUsage, TenantId } from '../shared/contracts.ts';
import type { KeyedLock, Mutex } from '../shared/mutex.ts';
import type { RoutePublisher } from './route-publisher.ts';

export interface ControlDeps {
  config: Config;
  clock: Clock;
  log: Logger;
  /** Public origin without a trailing slash. */
  publicUrl: string;
  deployments: Deployments;
  secrets: Secrets;
  domains: Domains;
  usage: Usage;
  routes: RoutePublisher;
  /** Bundles, probes and stores code; what it refuses costs nothing. */
  pipeline: Pick<Pipeline, 'accept' | 'check' | 'wasted'>;
  /** Removes code that no version uses any more. */
  removeCode(digests: string[]): Promise<void>;
  /** What `pipeline.accept` stored is named by now, or never will be: then it goes. */
  releaseCode(digest: string): Promise<void>;
  runtime: Runtime;
  payments: Payments;
  logs: LogStore;
  storageUsage(tenant: TenantId): Promise<StorageUsage & { sqlBytes: number }>;
  /** Key of a test wallet that pages may show; only on the local network. */
  demoWalletKey: string | undefined;
  /** Changes of one deployment, by tenant: what does not start must be taken back before the next is made. */
  updates: KeyedLock;
  /** Changes of built-in tenants: the host's own deploying and a step of the clock would undo each other. */
  builtinTurns: Mutex;
  /** Tells the scheduler that crons or expiry dates changed. */
  scheduleChanged(): void;
}
