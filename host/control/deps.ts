/** The dependencies of control's endpoints; the supervisor creates them and passes them in. */
import type { Logger } from 'pino';
import type { AssetStore } from '../assets/asset-store.ts';
import type { InstanceCall } from '../http/instance/fetch.ts';
import type { Payments } from '../payments/types.ts';
import type { Blocks } from '../registry/blocks.ts';
import type { Deployments } from '../registry/deployments.ts';
import type { Domains } from '../registry/domains.ts';
import type { Deployment } from '../registry/schema/deployments.ts';
import type { Secrets } from '../registry/secrets.ts';
import type { Usage } from '../registry/usage.ts';
import type { CodeStore } from '../runtime/code-store.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { Pipeline } from '../runtime/deploy/pipeline.ts';
import type { LogStore } from '../runtime/logs/log-store.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { EdgeContext, InstancePlan, StorageUsage, TenantId } from '../shared/contracts.ts';
import type { KeyedLock, Mutex } from '../shared/mutex.ts';
import type { Builtin } from './builtins.ts';
import type { KeyRing } from './deploy-keys.ts';
import type { NodeLogs } from './node-logs.ts';
import type { RenewalCredit } from './renewal-credit.ts';
import type { RoutePublisher } from './route-publisher.ts';

export interface ControlDeps {
  config: Config;
  clock: Clock;
  log: Logger;
  /** Public origin without a trailing slash. */
  publicUrl: string;
  deployments: Deployments;
  /** Deploy keys of owners. */
  keys: KeyRing;
  secrets: Secrets;
  domains: Domains;
  usage: Usage;
  /** Whom the operator has blocked. */
  blocks: Blocks;
  routes: RoutePublisher;
  /** Bundles, probes and stores code. Rejected code is not charged. */
  pipeline: Pick<Pipeline, 'accept' | 'check' | 'wasted'>;
  codeStore: Pick<CodeStore, 'get'>;
  /** Removes code that no version uses any more. */
  removeCode(digests: string[]): Promise<void>;
  /** Releases the upload's hold on this bundle; deletes it if no version references it. */
  releaseCode(digest: string): Promise<void>;
  runtime: Runtime;
  /** What an instance of the deployment, as it will be, will be started with, but its code. */
  planInstance(row: Deployment, secrets: Record<string, string>): Promise<InstancePlan>;
  payments: Payments;
  /** Prepaid credit that pays for renewals; undefined where the host has none. */
  renewalCredit: RenewalCredit | undefined;
  /** Asks the host's own worker in an instance's process. */
  askSystem(slug: string, call: Omit<InstanceCall, 'idleTimeoutMs'>, context: EdgeContext): Promise<Response>;
  logs: LogStore;
  /** Of owners, over all nodes. */
  nodeLogs: NodeLogs;
  /** Static files. */
  assets: AssetStore;
  storageUsage(tenant: TenantId): Promise<StorageUsage>;
  /** Key of a test wallet that pages may show; only on the local network. */
  demoWalletKey: string | undefined;
  /** Serialises changes of one deployment, by tenant: a change that does not start is rolled back before the next begins. */
  updates: Pick<KeyedLock, 'run'>;
  /** The built-in tenants of this version, enabled or not. */
  builtins: readonly Builtin[];
  /** Serialises changes of built-in tenants: the deploy at startup and a step of the clock would undo each other. */
  builtinTurns: Pick<Mutex, 'run'>;
  /** Tells the scheduler that crons or expiry dates changed. */
  scheduleChanged(): void;
}
