/** Drizzle's view of migrations/0007_operator.sql and 0011_audit_role.sql, without what it adds to deployments. Times are ms since the epoch. */
import { integer, sqliteTable, text } from '../drizzle.ts';

export const blocks = sqliteTable('blocks', {
  /** A lowercase 0x address, or a range in its canonical spelling, such as `203.0.113.0/24`. */
  subject: text('subject').primaryKey(),
  kind: text('kind').$type<'wallet' | 'range'>().notNull(),
  reason: text('reason'),
  createdAt: integer('created_at').notNull(),
});

export type Block = typeof blocks.$inferSelect;

export const audit = sqliteTable('audit', {
  id: integer('id').primaryKey({ autoIncrement: true }),
  /** Business time. */
  at: integer('at').notNull(),
  systemAt: integer('system_at').notNull(),
  /** Method and path pattern of the endpoint. */
  act: text('act').notNull(),
  /** A slug, or what else the act was about. */
  subject: text('subject'),
  /** As the endpoint took them. */
  parameters: text('parameters', { mode: 'json' }).$type<Record<string, unknown>>().notNull(),
  reason: text('reason'),
  /** Whence the operator called. */
  address: text('address').notNull(),
  role: text('role').$type<'operator' | 'reader'>().notNull().default('operator'),
  /** HTTP status of the answer; null: the host was stopped before there was one. */
  outcome: integer('outcome'),
});

export type AuditEntry = typeof audit.$inferSelect;
