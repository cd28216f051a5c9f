/** Drizzle's view of migrations/0200_cron.sql. Times are milliseconds since the Unix epoch. */
import { integer, primaryKey, sqliteTable, text } from '../drizzle.ts';

export type CronOutcome =
  | 'running'
  | 'interrupted'
  | 'ok'
  | 'exception'
  | 'exceeded_cpu'
  | 'exceeded_memory'
  | 'not_started';

export const cronTriggers = sqliteTable(
  'cron_triggers',
  {
    tenant: text('tenant').notNull(),
    cron: text('cron').notNull(),
    since: integer('since').notNull(),
  },
  (table) => [primaryKey({ columns: [table.tenant, table.cron] })],
);

export const cronRuns = sqliteTable('cron_runs', {
  id: integer('id').primaryKey(),
  tenant: text('tenant').notNull(),
  cron: text('cron').notNull(),
  scheduledAt: integer('scheduled_at').notNull(),
  startedAt: integer('started_at').notNull(),
  finishedAt: integer('finished_at'),
  outcome: text('outcome').$type<CronOutcome>().notNull(),
  error: text('error'),
});

export type CronRun = typeof cronRuns.$inferSelect;
