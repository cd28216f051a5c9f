/** Drizzle's view of migrations/0001_deployments.sql. Times are milliseconds since the Unix epoch. */
import type { AssetSettings, BindingSet } from '../../shared/contracts.ts';
import type { TenantLimits } from '../../shared/tenant-limits.ts';
import { blob, integer, primaryKey, sqliteTable, text } from '../drizzle.ts';

export type DeploymentState = 'active' | 'expired' | 'decommissioned';

/** A paid route as stored: validated by payments/paid-routes.ts before it comes here. */
export type StoredPaidRoute = { method: string; path: string; price: string } & Record<string, unknown>;

export const deployments = sqliteTable('deployments', {
  tenant: text('tenant').primaryKey(),
  slug: text('slug').notNull(),
  /** Lowercase 0x address. */
  owner: text('owner').notNull(),
  ownerDid: text('owner_did').notNull(),
  state: text('state').$type<DeploymentState>().notNull(),
  digest: text('digest').notNull(),
  version: integer('version').notNull(),
  /** Grows with every change that a running instance must see. */
  revision: integer('revision').notNull(),
  compatibilityDate: text('compatibility_date').notNull(),
  compatibilityFlags: text('compatibility_flags', { mode: 'json' }).$type<string[]>().notNull(),
  bindings: text('bindings', { mode: 'json' }).$type<BindingSet>().notNull(),
  /** Name in env -> text, or JSON. */
  vars: text('vars', { mode: 'json' }).$type<Record<string, unknown>>().notNull().default({}),
  assets: text('assets', { mode: 'json' }).$type<AssetSettings | null>(),
  crons: text('crons', { mode: 'json' }).$type<string[]>().notNull(),
  paidRoutes: text('paid_routes', { mode: 'json' }).$type<StoredPaidRoute[]>().notNull(),
  /** Which handlers the code exports, as the probe saw them. */
  handlers: text('handlers', { mode: 'json' }).$type<string[]>().notNull(),
  payTo: text('pay_to').notNull(),
  notify: text('notify'),
  builtin: integer('builtin', { mode: 'boolean' }).notNull().default(false),
  createdAt: integer('created_at').notNull(),
  updatedAt: integer('updated_at').notNull(),
  expiresAt: integer('expires_at').notNull(),
  warnedAt: integer('warned_at'),
  decommissionedAt: integer('decommissioned_at'),
  /** When the data goes, and when it went. */
  purgeAt: integer('purge_at'),
  purgedAt: integer('purged_at'),
  /** From when on another owner may take the slug. */
  freeAt: integer('free_at'),
  /** Since when, and why, the operator has it suspended; beside `state`, which goes on changing with time. */
  suspendedAt: integer('suspended_at'),
  suspendedReason: text('suspended_reason'),
  /** Limits of its own in place of the host's settings. */
  limits: text('limits', { mode: 'json' }).$type<TenantLimits>().notNull().default({}),
  /** The operator's own, for nobody else. */
  note: text('note'),
});

export type Deployment = typeof deployments.$inferSelect;

/** migrations/0009_shared_stores.sql */
export const sharedStores = sqliteTable(
  'shared_stores',
  {
    owner: text('owner').notNull(),
    kind: text('kind').notNull(),
    id: text('id').notNull(),
    tenant: text('tenant').notNull(),
  },
  (table) => [primaryKey({ columns: [table.owner, table.kind, table.id, table.tenant] })],
);

export const slugClaims = sqliteTable('slug_claims', {
  slug: text('slug').primaryKey(),
  claim: text('claim').notNull(),
  expiresAt: integer('expires_at').notNull(),
});

export const versions = sqliteTable(
  'versions',
  {
    tenant: text('tenant').notNull(),
    version: integer('version').notNull(),
    digest: text('digest').notNull(),
    bytes: integer('bytes').notNull(),
    /** `deploy`, `update`, `preview`, `rollback to N` or `promote N`. */
    note: text('note').notNull(),
    handlers: text('handlers', { mode: 'json' }).$type<string[]>().notNull(),
    assets: text('assets', { mode: 'json' }).$type<AssetSettings | null>(),
    createdAt: integer('created_at').notNull(),
    /** Address of a wallet, or a deploy key by its id and name; null in versions of earlier hosts. */
    madeBy: text('made_by'),
    /** Random: the id in the version's own address. */
    preview: text('preview'),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.version] })],
);

export type Version = typeof versions.$inferSelect;

export const secrets = sqliteTable(
  'secrets',
  {
    tenant: text('tenant').notNull(),
    name: text('name').notNull(),
    keyId: text('key_id').notNull(),
    sealed: blob('sealed', { mode: 'buffer' }).notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.name] })],
);

export type DomainState = 'pending' | 'verified' | 'active';

export const domains = sqliteTable('domains', {
  /** Lowercase punycode. */
  domain: text('domain').primaryKey(),
  tenant: text('tenant').notNull(),
  token: text('token').notNull(),
  state: text('state').$type<DomainState>().notNull(),
  reason: text('reason'),
  verifiedBy: text('verified_by').$type<'txt' | 'token' | null>(),
  createdAt: integer('created_at').notNull(),
  verifiedAt: integer('verified_at'),
  checkedAt: integer('checked_at'),
  nextCheckAt: integer('next_check_at').notNull(),
  /** Since when the record of a verified domain has been missing. */
  failingSince: integer('failing_since'),
  /** Failed checks in a row while pending. */
  attempts: integer('attempts').notNull().default(0),
});

export type Domain = typeof domains.$inferSelect;

export const usageDaily = sqliteTable(
  'usage_daily',
  {
    tenant: text('tenant').notNull(),
    /** UTC day, YYYY-MM-DD. */
    day: text('day').notNull(),
    requests: integer('requests').notNull().default(0),
    errors: integer('errors').notNull().default(0),
    bytesIn: integer('bytes_in').notNull().default(0),
    bytesOut: integer('bytes_out').notNull().default(0),
    cpuMs: integer('cpu_ms').notNull().default(0),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.day] })],
);

export const settings = sqliteTable('settings', {
  name: text('name').primaryKey(),
  value: text('value').notNull(),
});

/** migrations/0205_auto_renewals.sql */
export const autoRenewals = sqliteTable('auto_renewals', {
  tenant: text('tenant').primaryKey(),
  /** JSON of payments' `Mandate`. */
  mandate: text('mandate').notNull(),
  until: integer('until').notNull(),
  payment: text('payment'),
  paymentFor: integer('payment_for'),
  failures: integer('failures').notNull(),
  nextAt: integer('next_at').notNull(),
  lastFailure: text('last_failure'),
  createdAt: integer('created_at').notNull(),
});

export type AutoRenewal = typeof autoRenewals.$inferSelect;

export const renewals = sqliteTable('renewals', {
  paymentId: text('payment_id').primaryKey(),
  tenant: text('tenant').notNull(),
  expiresAt: integer('expires_at').notNull(),
  createdAt: integer('created_at').notNull(),
});
