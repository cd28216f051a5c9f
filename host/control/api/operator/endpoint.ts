/** What an endpoint of the operator's API is, and what all of them need. */
import type { z } from 'zod';
import type { BackupChoice } from '../../../backup/index.ts';
import type { NodeHistory } from '../../../observability/node-history.ts';
import type { Payments } from '../../../payments/types.ts';
import type { Audit } from '../../../registry/audit.ts';
import type { Deployments } from '../../../registry/deployments.ts';
import type { Nodes } from '../../../registry/postgres/nodes.ts';
import type { Secrets } from '../../../registry/secrets.ts';
import { readJson } from '../../body.ts';
import type { OperatorTokens, Role } from '../../console/tokens.ts';
import type { ControlDeps } from '../../deps.ts';
import type { BaseCall, Endpoint } from '../../endpoint.ts';

/** `public`: for probes and scrapers on this machine; `operator`: with the token, or over the unix socket. */
export interface OperatorEndpoint extends Endpoint<OperatorCall> {
  /** Whether the console asks for the token again before this is done: a stolen cookie must not be enough for it. */
  asksAgain?: (given: Record<string, unknown>) => boolean;
}

export interface OperatorCall extends BaseCall {
  /**
   * Writes the act into the audit log, before it is done. `bodyOf` does it with the body, as its schema has accepted it;
   * for endpoints without a body, and not for GET, it is done before `handle`. No body of the operator's holds a secret.
   */
  begin(given: Record<string, unknown>): Promise<void>;
}

export interface OperatorDeps {
  /** What owners' endpoints work with, too. */
  control: ControlDeps;
  audit: Audit;
  /** Tells every edge which address ranges are blocked now. */
  pushBlocks(): Promise<void>;
  deployments: Deployments;
  secrets: Secrets;
  payments: Payments;
  health(): { ready: boolean; body: unknown };
  metrics(): Promise<string>;
  history: NodeHistory;
  tokens: OperatorTokens;
  describeHost: DescribeHost;
  /** Makes a link to the console that logs in once. */
  consoleLink(role: Role): { url: string; expiresAt: number };
  /** Moves business time; refused unless `clock.movable`. */
  moveClock(offsetMs: number): Promise<{ now: number; offsetMs: number }>;
  clockOffset(): number;
  /** Of which this process is one node; undefined: it is the only one. */
  cluster: { name: string; nodes: Pick<Nodes, 'list' | 'drain' | 'remove'> } | undefined;
  backup(choice: BackupChoice): Promise<unknown>;
  /** Caddy's on-demand TLS question: may a certificate be made for this name? */
  mayServe(domain: string): Promise<boolean>;
}

/** What the supervisor knows of the host. */
export interface DescribeHost {
  processes(): {
    processes: {
      name: string;
      state: string;
      pid: number | undefined;
      restarts: number;
      memoryBytes: number;
      cpuMs: number;
    }[];
    instances: { running: number; memoryBytes: number };
  };
  /** Of the data folder, bytes. */
  disk(): Promise<{ free: number; total: number }>;
  settings(): { key: string; value: unknown; source: string; secret: boolean; description: string }[];
  certificates(): Promise<{ names: string[]; validTo: number | undefined; reason: string | undefined }[]>;
  /** Newest first. */
  backups(): Promise<{ id: string; at: number; location: string }[]>;
  version(): { version: string; node: string; workerd: string; startedAt: string };
}

const MAX_BODY_BYTES = 65_536;

/** @throws Problem `invalid_json`, `invalid_field`, `too_large` */
export async function bodyOf<T extends Record<string, unknown>>(
  { request, begin }: OperatorCall,
  schema: z.ZodType<T>,
): Promise<T> {
  const given = await readJson(request, schema, { maxBytes: MAX_BODY_BYTES, caller: 'operator' });
  await begin({ ...given });
  return given;
}
