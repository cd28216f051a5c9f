/** Custom domains: one owner each, their verification, and which of them the edge serves. */
import type { TenantId } from '../shared/contracts.ts';
import { Problem } from '../shared/problem.ts';
import { and, asc, desc, eq, gt, inArray, isNotNull, lte, or } from './drizzle.ts';
import type { Database } from './index.ts';
import { type Domain, type DomainState, domains } from './schema/deployments.ts';

/** A verified domain is looked at once a day. */
const LONGEST_WAIT_MS = 2 * 24 * 3_600_000;
const SERVABLE: DomainState[] = ['verified', 'active'];

export class Domains {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** @throws Problem conflict when another tenant has attached the domain */
  async attach(domain: string, tenant: TenantId, token: string, now: number): Promise<Domain> {
    const [row] = await this.#db
      .insert(domains)
      .values({ domain, tenant, token, state: 'pending', createdAt: now, nextCheckAt: now })
      .onConflictDoUpdate({ target: domains.domain, set: { nextCheckAt: now }, setWhere: eq(domains.tenant, tenant) })
      .returning();
    if (!row) throw taken(domain);
    return row;
  }

  /** @returns whether there was such a domain */
  async detach(domain: string, tenant: TenantId): Promise<boolean> {
    const gone = await this.#db
      .delete(domains)
      .where(and(eq(domains.domain, domain), eq(domains.tenant, tenant)))
      .returning();
    return gone.length > 0;
  }

  async byName(domain: string): Promise<Domain | undefined> {
    const [row] = await this.#db.select().from(domains).where(eq(domains.domain, domain));
    return row;
  }

  /** Of all tenants, those that need a look first. */
  async all(limit: number): Promise<Domain[]> {
    return await this.#db
      .select()
      .from(domains)
      .orderBy(desc(isNotNull(domains.reason)), asc(domains.domain))
      .limit(limit);
  }

  async ofTenant(tenant: TenantId): Promise<Domain[]> {
    return await this.#db.select().from(domains).where(eq(domains.tenant, tenant)).orderBy(asc(domains.domain));
  }

  /**
   * Changes a domain, unless it went to another tenant since it was read.
   * @returns undefined where there is no such domain of that tenant
   */
  async update(
    { domain, tenant }: Pick<Domain, 'domain' | 'tenant'>,
    change: Partial<Omit<Domain, 'domain' | 'tenant'>>,
  ): Promise<Domain | undefined> {
    const [row] = await this.#db
      .update(domains)
      .set(change)
      .where(and(eq(domains.domain, domain), eq(domains.tenant, tenant)))
      .returning();
    return row;
  }

  /** What became of a served name's certificate. A name that is not verified (any more) stays as it is. */
  async setServed(domain: string, state: 'verified' | 'active', reason: string | null): Promise<Domain | undefined> {
    const [row] = await this.#db
      .update(domains)
      .set({ state, reason })
      .where(and(eq(domains.domain, domain), inArray(domains.state, SERVABLE)))
      .returning();
    return row;
  }

  /** Takes a domain from a tenant whose record is not there: never found, or missing now. @returns whether it did */
  async releaseUnproved(domain: string, tenant: TenantId): Promise<boolean> {
    const gone = await this.#db
      .delete(domains)
      .where(
        and(
          eq(domains.domain, domain),
          eq(domains.tenant, tenant),
          or(eq(domains.state, 'pending'), isNotNull(domains.failingSince)),
        ),
      )
      .returning();
    return gone.length > 0;
  }

  // What is due later than anything is planned was planned while the clock was ahead.
  async dueChecks(now: number, limit: number): Promise<Domain[]> {
    return await this.#db
      .select()
      .from(domains)
      .where(or(lte(domains.nextCheckAt, now), gt(domains.nextCheckAt, now + LONGEST_WAIT_MS)))
      .orderBy(asc(domains.nextCheckAt))
      .limit(limit);
  }

  /** Tenant -> names that the edge serves. */
  async servable(): Promise<Map<TenantId, string[]>> {
    const rows = await this.#db.select().from(domains).where(inArray(domains.state, SERVABLE));
    return new Map(
      Object.entries(Object.groupBy(rows, (row) => row.tenant)).map(([tenant, group]) => [
        tenant,
        (group ?? []).map((row) => row.domain),
      ]),
    );
  }

  /** All names that the edge serves. */
  async servableNames(): Promise<string[]> {
    const rows = await this.#db
      .select({ domain: domains.domain })
      .from(domains)
      .where(inArray(domains.state, SERVABLE));
    return rows.map((row) => row.domain);
  }

  async servableBy(tenant: TenantId): Promise<string[]> {
    const rows = await this.#db
      .select()
      .from(domains)
      .where(and(eq(domains.tenant, tenant), inArray(domains.state, SERVABLE)));
    return rows.map((row) => row.domain);
  }
}

/** Another tenant has it. */
export function taken(domain: string): Problem {
  return new Problem('conflict', `${domain} is attached to another slug; its owner must detach it first.`);
}
