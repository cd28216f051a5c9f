/** What an endpoint of the operator's API is, and what all of them need. */
import type { z } from 'zod';
import type { BackupChoice } from '../../../backup/index.ts';
import type { Payments } from '../../../payments/types.ts';
import type { Audit } from '../../../registry/audit.ts';
import type { Deployments } from '../../../registry/deployments.ts';
import type { Secrets } from '../../../registry/secrets.ts';
import { readJson } from '../../body.ts';
import type { ControlDeps } from '../../deps.ts';
import type { BaseCall, Endpoint } from '../../endpoint.ts';

/** `public`: for probes and scrapers on this machine; `operator`: with the token, or over the unix socket. */
export type OperatorEndpoint = Endpoint<OperatorCall>;

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
  /** Moves business time; refused unless `clock.movable`. */
  moveClock(offsetMs: number): Promise<{ now: number; offsetMs: number }>;
  clockOffset(): number;
  backup(choice: BackupChoice): Promise<unknown>;
  /** Caddy's on-demand TLS question: may a certificate be made for this name? */
  mayServe(domain: string): Promise<boolean>;
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
