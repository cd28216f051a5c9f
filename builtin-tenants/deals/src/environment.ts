/** The bindings of this tenant, and what is derived from them once: addresses and business time. */

import type { Database } from '../../kit/database.ts';

export { businessNow } from '../../kit/business-time.ts';
export type { Database, Statement } from '../../kit/database.ts';

/** Pages as they were fetched, for evidence. */
export interface Bucket {
  put(key: string, value: string | Uint8Array): Promise<unknown>;
  delete(keys: string[]): Promise<void>;
}

export interface Env {
  DB: Database;
  BUCKET: Bucket;
  /** Public origin of the host, such as `https://api.example.com`. */
  APP_URL: string;
  /** What else the host has; kit/look/tenant.ts. */
  PLACES?: string;
  /** With it credit is charged at the pay platform. */
  PAY_SERVICE_KEY: string;
  /** Keys for cursors and webhooks are derived from it. */
  DEALS_SECRET: string;
  /** Set by the host when business time was moved. */
  CLOCK_OFFSET_MS?: string;
  /** JSON array of the operator's sources; see sources/source.ts. Without any, the demo shop is the source. */
  SOURCES?: string;
}

/** Address of this tenant: what the gateway signs requests to. */
export function baseUrl(env: Pick<Env, 'APP_URL'>): string {
  return `${env.APP_URL}/deals`;
}

const REQUIRED = ['APP_URL', 'PAY_SERVICE_KEY', 'DEALS_SECRET'] as const;

/** @throws Error that names what is missing; the values themselves are never in it */
export function checkEnvironment(env: Env): void {
  for (const name of REQUIRED) {
    if (!env[name]) throw new Error(`The secret ${name} is not set; the host sets it for the built-in tenant.`);
  }
}
