/** What an endpoint of the operator's API is, and what all of them need. */
import type { z } from 'zod';
import type { BackupChoice } from '../../../backup/index.ts';
import type { Payments } from '../../../payments/types.ts';
import type { Deployments } from '../../../registry/deployments.ts';
import type { Secrets } from '../../../registry/secrets.ts';
import { Problem } from '../../../shared/problem.ts';
import { readBody } from '../../../shared/request-body.ts';
import type { BaseCall, Endpoint } from '../../endpoint.ts';

/** `public`: for probes and scrapers on this machine; `operator`: with the token, or over the unix socket. */
export type OperatorEndpoint = Endpoint<BaseCall>;

export interface OperatorDeps {
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
export async function bodyOf<T>({ request }: BaseCall, schema: z.ZodType<T>): Promise<T> {
  const text = (await readBody(request, MAX_BODY_BYTES, 'operator')).toString('utf8');
  const parsed = schema.safeParse(text === '' ? {} : json(text));
  if (parsed.success) return parsed.data;
  throw new Problem(
    'invalid_field',
    parsed.error.issues.map((issue) => `${issue.path.join('.') || 'The body'}: ${issue.message}`).join('; '),
  );
}

function json(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Problem('invalid_json', 'The body is not JSON; send an object.');
  }
}
