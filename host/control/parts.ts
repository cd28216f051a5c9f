/** What control is composed of; main.ts makes these and hands them to the endpoints. */
import type { Logger } from 'pino';
import type { Payments } from '../payments/types.ts';
import type { CodeVersion, Deployments } from '../registry/deployments.ts';
import type { Domains } from '../registry/domains.ts';
import type { Secrets } from '../registry/secrets.ts';
import type { Usage } from '../registry/usage.ts';
import type { Runtime } from '../runtime/contract.ts';
import type { LogStore } from '../runtime/logs/log-store.ts';
import type { Clock } from '../shared/clock.ts';
import type { Config } from '../shared/config.ts';
import type { StorageUsage, TenantId } from '../shared/contracts.ts';
import type { CodeInput } from './deployment-input.ts';
import type { RouteTable } from './route-table.ts';

/** Bundles, probes and stores code. @throws Problem code_rejected | code_too_large | invalid_field; costs nothing */
export interface CodePipeline {
  accept(input: CodeInput, options: CodeOptions): Promise<CodeVersion>;
}

export interface CodeOptions {
  compatibilityDate: string;
  compatibilityFlags: string[];
  /** A version without `scheduled()` is refused where there are any. */
  crons: string[];
}

export interface ControlParts {
  config: Config;
  clock: Clock;
  log: Logger;
  /** Public origin without a trailing slash. */
  publicUrl: string;
  deployments: Deployments;
  secrets: Secrets;
  domains: Domains;
  usage: Usage;
  routes: RouteTable;
  pipeline: CodePipeline;
  runtime: Runtime;
  payments: Payments;
  logs: LogStore;
  storageUsage(tenant: TenantId): Promise<StorageUsage & { sqlBytes: number }>;
  /** Tells the scheduler that crons or expiry dates changed. */
  scheduleChanged(): void;
}
