/** Reports from the books in the registry: revenue, payments, lines of the ledger, totals. */
import type { SQL } from 'drizzle-orm';
import { type Money, micro } from '../../shared/money.ts';
import { and, asc, eq, gte, inArray, isNotNull, lt, sql } from '../drizzle.ts';
import type { Database } from '../index.ts';
import { isOpenOutgoing, isOpenPayment, ledger, type PaymentRow, paymentOutgoing, payments } from './schema.ts';

const DAY_MS = 86_400_000;

export interface PaymentFilter {
  tenant?: string;
  slug?: string;
  /** ms since the Unix epoch. */
  from?: number;
  /** ms since the Unix epoch, exclusive. */
  before?: number;
}

type LedgerRow = typeof ledger.$inferSelect;

export class PaymentReports {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** By day, slug and route. */
  async revenue(filter: PaymentFilter) {
    // Days since the epoch.
    const day = sql<number>`coalesce(${payments.settledAt}, ${payments.updatedAt}) / 86400000`;
    const slug = sql<string>`coalesce(${payments.slug}, '')`;
    const total = (column: SQL | typeof payments.charged) => sql<number>`coalesce(sum(${column}), 0)`;
    const rows = await this.#db
      .select({
        day,
        slug,
        route: payments.name,
        payments: sql<number>`count(*)`,
        gross: total(payments.charged),
        fee: total(sql`CASE WHEN ${payments.state} IN ('refund_owed', 'refunded') THEN 0 ELSE ${payments.fee} END`),
        refunded: total(
          sql`CASE WHEN ${payments.state} IN ('refund_owed', 'refunded') THEN ${payments.refunded} ELSE 0 END`,
        ),
      })
      .from(payments)
      .where(
        and(
          isNotNull(payments.charged),
          inArray(payments.state, ['settled', 'answered', 'refund_owed', 'refunded']),
          ...conditions(filter),
        ),
      )
      .groupBy(day, slug, payments.name)
      .orderBy(asc(day), asc(slug), asc(payments.name));
    return rows.map((row) => ({
      ...row,
      day: new Date(row.day * DAY_MS).toISOString().slice(0, 10),
      gross: micro(row.gross),
      fee: micro(row.fee),
      refunded: micro(row.refunded),
    }));
  }

  /** Oldest first. */
  async payments(filter: PaymentFilter): Promise<PaymentRow[]> {
    return this.#db
      .select()
      .from(payments)
      .where(and(...conditions(filter)))
      .orderBy(asc(payments.createdAt), asc(payments.id));
  }

  /** Settlements whose outcome is not known, oldest first. */
  async pending(): Promise<PaymentRow[]> {
    return this.#db
      .select()
      .from(payments)
      .where(and(isOpenPayment, eq(payments.state, 'settling'), isNotNull(payments.pendingSince)))
      .orderBy(asc(payments.createdAt));
  }

  /** Of a payment, or of all. */
  async lines(payment: string | undefined, limit: number): Promise<LedgerRow[]> {
    return this.#db
      .select()
      .from(ledger)
      .where(payment === undefined ? undefined : eq(ledger.payment, payment))
      .orderBy(asc(ledger.id))
      .limit(limit);
  }

  /** Lines of an asset that name a transaction of its chain. */
  async onChain(asset: string): Promise<LedgerRow[]> {
    return this.#db
      .select()
      .from(ledger)
      .where(sql`${ledger.asset} = ${asset} AND ${isNotNull(ledger.reference)}`);
  }

  /**
   * Hashes of all transactions of an asset that the books know, those that were signed and not sent yet, too.
   * @param line of the ledger
   * @returns by hash, whether it had happened when that line was written
   */
  async transactions(asset: string, line: number): Promise<Map<string, boolean>> {
    const found = await this.#db.all<{ hash: string; happened: number }>(sql`
      SELECT hash, 0 AS happened FROM payment_transfers WHERE asset = ${asset}
      UNION ALL SELECT reference, max(CASE WHEN id <= ${line} THEN 1 ELSE 0 END) FROM ledger
      WHERE asset = ${asset} AND reference IS NOT NULL GROUP BY reference`);
    return new Map(found.map(({ hash, happened }) => [hash, happened === 1]));
  }

  /** What moved on a chain and is somebody's claim on the host, in all. */
  async kept(asset: string): Promise<bigint> {
    const [row] = await this.#db
      .select({ sum: sql<number>`coalesce(sum(${ledger.amount}), 0)` })
      .from(ledger)
      .where(sql`${ledger.asset} = ${asset} AND ${ledger.account} LIKE 'claim:%' AND ${ledger.reference} IS NOT NULL`);
    return BigInt(row?.sum ?? 0);
  }

  /** Transactions whose lines do not sum to zero: the writer refuses them, so one of these is a damaged file. */
  async unbalanced() {
    return this.#db
      .select({ txn: ledger.txn, asset: ledger.asset, sum: sql<number>`sum(${ledger.amount})` })
      .from(ledger)
      .groupBy(ledger.txn, ledger.asset)
      .having(sql`sum(${ledger.amount}) <> 0`);
  }

  /** Accounts that were paid more than they earned. (A channel's claim may be negative: it is what is still to be collected.) */
  async negative() {
    return this.#db
      .select({ account: ledger.account, sum: sql<number>`sum(${ledger.amount})` })
      .from(ledger)
      .where(sql`${ledger.account} LIKE 'claim:%' AND ${ledger.account} NOT LIKE 'claim:channel:%'`)
      .groupBy(ledger.account, ledger.asset)
      .having(sql`sum(${ledger.amount}) < 0`);
  }

  /** Accounts that hold anything. */
  async accounts() {
    return this.#db
      .select({ account: ledger.account, asset: ledger.asset, balance: sql<number>`sum(${ledger.amount})` })
      .from(ledger)
      .groupBy(ledger.account, ledger.asset)
      .having(sql`sum(${ledger.amount}) <> 0`)
      .orderBy(ledger.account);
  }

  /** Totals by asset. */
  async summary(): Promise<{ asset: string; gross: Money; fees: Money; operations: Money; owed: Money }[]> {
    const rows = await this.#db
      .select({
        asset: payments.asset,
        gross: sql<number>`coalesce(sum(CASE WHEN ${payments.kind} <> 'operation' THEN ${payments.charged} END), 0)`,
        fees: sql<number>`coalesce(sum(${payments.fee}), 0)`,
        operations: sql<number>`coalesce(sum(CASE WHEN ${payments.kind} = 'operation' THEN ${payments.charged} END), 0)`,
      })
      .from(payments)
      .where(inArray(payments.state, ['settled', 'answered']))
      .groupBy(payments.asset);
    const owed = await this.#db
      .select({ asset: paymentOutgoing.asset, amount: sql<number>`sum(${paymentOutgoing.amount})` })
      .from(paymentOutgoing)
      .where(isOpenOutgoing)
      .groupBy(paymentOutgoing.asset);
    return rows.map(({ asset, gross, fees, operations }) => ({
      asset,
      gross: micro(gross),
      fees: micro(fees),
      operations: micro(operations),
      owed: micro(owed.find((one) => one.asset === asset)?.amount ?? 0),
    }));
  }
}

function conditions({ tenant, slug, from, before }: PaymentFilter): SQL[] {
  const at = sql`coalesce(${payments.settledAt}, ${payments.updatedAt})`;
  return [
    ...(tenant === undefined ? [] : [eq(payments.tenant, tenant)]),
    ...(slug === undefined ? [] : [eq(payments.slug, slug)]),
    ...(from === undefined ? [] : [gte(at, from)]),
    ...(before === undefined ? [] : [lt(at, before)]),
  ];
}
