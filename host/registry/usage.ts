/** Traffic of tenants by UTC day. Counters are added up in memory and written every few seconds: they are not money. */
import type { TenantId } from '../shared/contracts.ts';
import { and, asc, eq, gte, sql } from './drizzle.ts';
import type { Database } from './index.ts';
import { usageDaily } from './schema/deployments.ts';

export interface UsageDelta {
  requests: number;
  errors: number;
  bytesIn: number;
  bytesOut: number;
  cpuMs: number;
}

const NOTHING: UsageDelta = { requests: 0, errors: 0, bytesIn: 0, bytesOut: 0, cpuMs: 0 };

export class Usage {
  readonly #db: Database;
  /** `<tenant> <day>` -> not yet written. */
  readonly #pending = new Map<string, UsageDelta>();

  constructor(db: Database) {
    this.#db = db;
  }

  count(tenant: TenantId, now: number, delta: Partial<UsageDelta>): void {
    const key = `${tenant} ${new Date(now).toISOString().slice(0, 10)}`;
    const sum = { ...(this.#pending.get(key) ?? NOTHING) };
    for (const [name, value] of Object.entries(delta)) sum[name as keyof UsageDelta] += value;
    this.#pending.set(key, sum);
  }

  async flush(): Promise<void> {
    const pending = [...this.#pending];
    this.#pending.clear();
    for (const [key, delta] of pending) {
      const [tenant = '', day = ''] = key.split(' ');
      const values = { ...delta, cpuMs: Math.round(delta.cpuMs) };
      await this.#db
        .insert(usageDaily)
        .values({ tenant, day, ...values })
        .onConflictDoUpdate({
          target: [usageDaily.tenant, usageDaily.day],
          set: {
            requests: sql`${usageDaily.requests} + ${values.requests}`,
            errors: sql`${usageDaily.errors} + ${values.errors}`,
            bytesIn: sql`${usageDaily.bytesIn} + ${values.bytesIn}`,
            bytesOut: sql`${usageDaily.bytesOut} + ${values.bytesOut}`,
            cpuMs: sql`${usageDaily.cpuMs} + ${values.cpuMs}`,
          },
        });
    }
  }

  /** @param fromDay UTC day, YYYY-MM-DD, inclusive */
  async byDay(tenant: TenantId, fromDay: string) {
    await this.flush();
    const rows = await this.#db
      .select()
      .from(usageDaily)
      .where(and(eq(usageDaily.tenant, tenant), gte(usageDaily.day, fromDay)))
      .orderBy(asc(usageDaily.day));
    return rows.map(({ tenant: _tenant, ...row }) => row);
  }
}
