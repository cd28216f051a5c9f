/** The bindings of this tenant, and what is derived from them once: addresses, secrets, business time. */

import type { Database } from '../../kit/database.ts';

export { businessNow } from '../../kit/business-time.ts';
export type { Database, Statement } from '../../kit/database.ts';

export interface Fetcher {
  fetch(url: string, init?: RequestInit): Promise<Response>;
}

export interface Env {
  DB: Database;
  PAYMENTS: Fetcher;
  /** This host's own addresses without the way out. */
  EDGE: Fetcher;
  /** Public origin of the host, such as `https://api.example.com`. */
  APP_URL: string;
  /** What else the host has; kit/look/tenant.ts. */
  PLACES?: string;
  /** Origin of the pages for people, such as `https://pay.example.com`: no other tenant's page shares it. */
  PAGES_URL: string;
  /** At least 32 random characters: keys for challenges, forms and stored private keys are derived from it. */
  PAY_SECRET: string;
  /** With it the built-in origins charge credit (README.md). */
  PAY_SERVICE_KEY: string;
  /** With it the operator changes services, meters and plans. */
  PAY_OPERATOR_KEY: string;
  /** USD that a person's first account starts with, such as `5.00`. */
  WELCOME_BONUS_USD?: string;
  /** The host's payment network; only `local` is test money. */
  PAY_NETWORK?: string;
  /** Off the local network: days that a welcome bonus lasts, and USD that all of them may come to. */
  WELCOME_DAYS?: string;
  WELCOME_TOTAL_USD?: string;
  /** The host's mailer; not set where the operator named no SMTP server. */
  MAILER_URL?: string;
  /** Set by the host when business time was moved. */
  CLOCK_OFFSET_MS?: string;
}

/** Address of this tenant on the shared origin. */
export function payUrl(env: Pick<Env, 'APP_URL'>): string {
  return `${env.APP_URL}/pay`;
}

const REQUIRED = ['APP_URL', 'PAGES_URL', 'PAY_SECRET', 'PAY_SERVICE_KEY', 'PAY_OPERATOR_KEY'] as const;

/** @throws Error that names what is missing; the values themselves are never in it */
export function checkEnvironment(env: Env): void {
  for (const name of REQUIRED) {
    if (!env[name]) throw new Error(`The secret ${name} is not set; the host sets it for the built-in tenant.`);
  }
  if (env.PAY_SECRET.length < 32) throw new Error('PAY_SECRET is too short; it needs at least 32 characters.');
}
