/** The audit log: what the operator did, in the order in which it was begun. The database keeps it append-only. */
import type { Clock } from '../shared/clock.ts';
import { and, desc, eq, lt } from './drizzle.ts';
import type { Database } from './index.ts';
import { type AuditEntry, audit } from './schema/operator.ts';

export type Act = Pick<AuditEntry, 'act' | 'subject' | 'parameters' | 'reason' | 'address'> &
  Partial<Pick<AuditEntry, 'role'>>;

/** Parameters are cut off here, characters of their JSON. */
const MOST_CHARACTERS = 2_000;

export class Audit {
  readonly #db: Database;
  readonly #clock: Pick<Clock, 'now'>;

  constructor(db: Database, clock: Pick<Clock, 'now'>) {
    this.#db = db;
    this.#clock = clock;
  }

  /** Before the act: what was not written down is not done. @returns the id for `end` */
  async begin(act: Act): Promise<number> {
    const [row] = await this.#db
      .insert(audit)
      .values({ ...act, parameters: bounded(act.parameters), at: this.#clock.now(), systemAt: Date.now() })
      .returning({ id: audit.id });
    if (!row) throw new Error('insert returned nothing');
    return row.id;
  }

  /** @param outcome HTTP status of the answer */
  async end(id: number, outcome: number): Promise<void> {
    await this.#db.update(audit).set({ outcome }).where(eq(audit.id, id));
  }

  /** Newest first. @param before an id: only older ones */
  async list({
    subject,
    before,
    limit,
  }: {
    subject?: string | undefined;
    before?: number | undefined;
    limit: number;
  }): Promise<AuditEntry[]> {
    return await this.#db
      .select()
      .from(audit)
      .where(
        and(
          subject === undefined ? undefined : eq(audit.subject, subject),
          before === undefined ? undefined : lt(audit.id, before),
        ),
      )
      .orderBy(desc(audit.id))
      .limit(limit);
  }
}

function bounded(parameters: Record<string, unknown>): Record<string, unknown> {
  const text = JSON.stringify(parameters);
  return text.length <= MOST_CHARACTERS ? parameters : { cutOff: text.slice(0, MOST_CHARACTERS) };
}
