/** Drizzle's view of migrations/0006_deploy_keys.sql. Times are milliseconds since the Unix epoch. */
import type { TenantId } from '../../shared/contracts.ts';
import type { KeyAction } from '../../shared/deploy-keys.ts';
import { blob, integer, sqliteTable, text } from '../drizzle.ts';

export const deployKeys = sqliteTable('deploy_keys', {
  id: text('id').primaryKey(),
  /** Lowercase 0x address. */
  owner: text('owner').notNull(),
  /** SHA-256 of the key. */
  hash: blob('hash', { mode: 'buffer' }).notNull(),
  name: text('name'),
  /** A slug that is deployed anew is another tenant, which the key is not for. Null: every deployment of the owner. */
  slugs: text('slugs', { mode: 'json' }).$type<{ slug: string; tenant: TenantId }[] | null>(),
  actions: text('actions', { mode: 'json' }).$type<KeyAction[]>().notNull(),
  createdAt: integer('created_at').notNull(),
  expiresAt: integer('expires_at').notNull(),
  usedAt: integer('used_at'),
});

export type DeployKey = typeof deployKeys.$inferSelect;
