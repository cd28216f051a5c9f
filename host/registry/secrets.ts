/** Tenants' secrets: sealed rows in, clear values out, for the runtime alone. */
import type { TenantId } from '../shared/contracts.ts';
import { Mutex } from '../shared/mutex.ts';
import { and, eq, inArray, ne, or, sql } from './drizzle.ts';
import type { Database, Registry } from './index.ts';
import { payments } from './payments/schema.ts';
import { secrets } from './schema/deployments.ts';
import type { Sealed, SecretBox } from './secret-box.ts';
import { readSetting, savedSetting } from './settings.ts';

/** The lease of whoever rotates. */
const ROTATION = 'rotation of keys';
/** Setting: when the last rotation of several nodes was, ms since 1970. */
const ROTATED_AT = 'secrets-rotated-at';
/** What was sealed before a rotation is written, or given up, so long after it, ms. */
const LONGEST_CHANGE_MS = 3_600_000;

export interface SealedSecret extends Sealed {
  name: string;
}

export class Secrets {
  readonly #db: Database;
  readonly #box: SecretBox;
  readonly #registry: Pick<Registry, 'node' | 'leases'> | undefined;
  readonly #rotations = new Mutex();
  /** Changes under way that may write what an older key sealed, and how many have ended. */
  #changing = 0;
  #changed = 0;

  /** @param registry on which there may be several nodes; default: this process is the only one */
  constructor(db: Database, box: SecretBox, registry?: Pick<Registry, 'node' | 'leases'>) {
    this.#db = db;
    this.#box = box;
    this.#registry = registry;
  }

  seal(tenant: TenantId, values: Record<string, string>): SealedSecret[] {
    return Object.entries(values).map(([name, value]) => ({ name, ...this.#box.seal(value, context(tenant, name)) }));
  }

  /** All secrets of a tenant in clear. Keep them in memory only. */
  async reveal(tenant: TenantId): Promise<Record<string, string>> {
    const rows = await this.#db.select().from(secrets).where(eq(secrets.tenant, tenant));
    return Object.fromEntries(rows.map((row) => [row.name, this.#box.unseal(row, context(tenant, row.name))]));
  }

  /** Whatever is rotated meanwhile, keys that sealed what `work` holds are not forgotten before it ends. */
  async keepingKeys<T>(work: () => Promise<T>): Promise<T> {
    this.#changing += 1;
    try {
      return await work();
    } finally {
      this.#changing -= 1;
      this.#changed += 1;
    }
  }

  /**
   * New key, every secret sealed anew, old keys forgotten. May be killed at any point and run again:
   * old keys are dropped last, by the next rotation where somebody changes secrets during this one.
   * @returns how many secrets were resealed
   */
  rotate(): Promise<number> {
    const rotation = () => this.#rotations.run(() => this.#rotate());
    return this.#registry ? this.#registry.leases.exclusively(ROTATION, rotation) : rotation();
  }

  async #rotate(): Promise<number> {
    await this.#box.reload();
    const former = this.#box.currentKeyId;
    await this.#box.addKey();
    const stale = await this.#db.select().from(secrets).where(ne(secrets.keyId, this.#box.currentKeyId));
    for (const row of stale) {
      const place = context(row.tenant, row.name);
      const { keyId, sealed } = this.#box.seal(this.#box.unseal(row, place), place);
      await this.#db
        .update(secrets)
        .set({ keyId, sealed })
        .where(and(eq(secrets.tenant, row.tenant), eq(secrets.name, row.name), eq(secrets.sealed, row.sealed)));
    }
    const changed = this.#changing === 0 ? this.#changed : undefined;
    const left = await this.#db.select().from(secrets).where(ne(secrets.keyId, this.#box.currentKeyId)).limit(1);
    // A deploy that is being paid for keeps its sealed secrets with the payment until it is completed.
    const [paying] = await this.#db
      .select({ id: payments.id })
      .from(payments)
      .where(
        and(
          inArray(payments.state, ['verified', 'settling', 'settled']),
          // One that is verified may have its secrets sealed by now, and not yet beside the payment.
          or(
            sql`${payments.prepared} LIKE '%"keyId"%'`,
            and(eq(payments.state, 'verified'), eq(payments.name, 'deploy')),
          ),
        ),
      )
      .limit(1);
    const unchanged = this.#changing === 0 && this.#changed === changed;
    if (left.length === 0 && !paying && unchanged) await this.#dropOldKeys(former);
    return stale.length;
  }

  /** What another node changes just now is not known here: what it may have sealed with is kept until the next rotation. */
  async #dropOldKeys(former: string): Promise<void> {
    const { currentKeyId } = this.#box;
    if (!this.#registry?.node) return this.#box.keepKeys([currentKeyId]);
    const last = Number((await readSetting(this.#db, ROTATED_AT)) ?? 0);
    if (Date.now() - last > LONGEST_CHANGE_MS) await this.#box.keepKeys([currentKeyId, former]);
    await savedSetting(this.#db, ROTATED_AT, String(Date.now()));
  }
}

/** Whether the registry holds secrets, which only the keys that sealed them open. */
export async function holdsSecrets(db: Database): Promise<boolean> {
  return (await db.select({ name: secrets.name }).from(secrets).limit(1)).length > 0;
}

function context(tenant: TenantId, name: string): string {
  return `secret:${tenant}:${name}`;
}
