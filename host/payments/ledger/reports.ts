/** What the books say: revenue by route and day, every payment as CSV, totals, and what needs a person. */
import type { SQL } from 'drizzle-orm';
import { and, asc, eq, gte, inArray, isNotNull, lt, or, sql } from '../../registry/drizzle.ts';
import {
  isOpenOutgoing,
  isOpenPayment,
  ledger,
  type OutgoingRow,
  type PaymentRow,
  paymentOutgoing,
  payments,
} from '../../registry/schema/payments.ts';
import { formatUsd, micro, subtract, ZERO } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';
import type { Sender } from '../outgoing/sender.ts';
import type { SettlementMachine } from '../settlement/machine.ts';
import type { PaymentStore } from '../settlement/payment-store.ts';
import type { LedgerLine, OpenItem, PaymentsLedger, RevenueRow } from '../types.ts';

const DAY_MS = 86_400_000;

interface Filter {
  tenant?: string;
  slug?: string;
  from?: string;
  to?: string;
}

export interface ReportsOptions {
  store: PaymentStore;
  machine: SettlementMachine;
  sender: Sender;
  /** Finishes a payment that was pending. */
  continue(row: PaymentRow): Promise<void>;
}

export class Reports implements Omit<PaymentsLedger, 'reconcile' | 'stopped' | 'resume' | 'gas'> {
  readonly #options: ReportsOptions;

  constructor(options: ReportsOptions) {
    this.#options = options;
  }

  get #db() {
    return this.#options.store.db;
  }

  async revenue(filter: Filter): Promise<RevenueRow[]> {
    const day = sql<string>`strftime('%Y-%m-%d', coalesce(${payments.settledAt}, ${payments.updatedAt}) / 1000, 'unixepoch')`;
    const total = (column: SQL | typeof payments.charged) => sql<number>`coalesce(sum(${column}), 0)`;
    const rows = await this.#db
      .select({
        day,
        slug: payments.slug,
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
      .groupBy(day, payments.slug, payments.name)
      .orderBy(asc(day), asc(payments.slug), asc(payments.name));
    return rows.map((row) => ({
      ...row,
      slug: row.slug ?? '',
      gross: micro(row.gross),
      fee: micro(row.fee),
      refunded: micro(row.refunded),
    }));
  }

  async csv(filter: Filter): Promise<string> {
    const rows = await this.#db
      .select()
      .from(payments)
      .where(and(...conditions(filter)))
      .orderBy(asc(payments.createdAt), asc(payments.id));
    const head =
      'time,payment,slug,what,rail,asset,payer,pay_to,authorized_usd,charged_usd,fee_usd,refunded_usd,state,reference';
    const lines = rows.map((row) =>
      [
        new Date(row.createdAt).toISOString(),
        row.id,
        row.slug ?? '',
        row.name,
        row.rail,
        row.asset,
        row.payer,
        row.payTo,
        formatUsd(row.authorized),
        formatUsd(row.charged ?? ZERO),
        formatUsd(row.fee),
        formatUsd(row.refunded),
        row.state,
        row.reference ?? '',
      ]
        .map(csvField)
        .join(','),
    );
    return `${[head, ...lines].join('\r\n')}\r\n`;
  }

  async lines({ payment, limit = 1000 }: { payment?: string; limit?: number }): Promise<LedgerLine[]> {
    const rows = await this.#db
      .select()
      .from(ledger)
      .where(payment === undefined ? undefined : eq(ledger.payment, payment))
      .orderBy(asc(ledger.id))
      .limit(limit);
    return rows.map(({ txn, payment: of, reference, at, account, asset, amount, kind }) => ({
      transaction: txn,
      at,
      account,
      asset,
      amount,
      kind,
      payment: of ?? undefined,
      reference: reference ?? undefined,
    }));
  }

  async open(): Promise<OpenItem[]> {
    const [pending, outgoing] = await Promise.all([
      this.#db
        .select()
        .from(payments)
        .where(and(isOpenPayment, eq(payments.state, 'settling'), isNotNull(payments.pendingSince)))
        .orderBy(asc(payments.createdAt)),
      this.#db
        .select()
        .from(paymentOutgoing)
        .where(
          and(
            isOpenOutgoing,
            or(inArray(paymentOutgoing.state, ['owed', 'sending', 'stuck']), isNotNull(paymentOutgoing.debtor)),
          ),
        )
        .orderBy(asc(paymentOutgoing.createdAt)),
    ]);
    return [...pending.map(pendingItem), ...outgoing.map(outgoingItem)];
  }

  async resolve(
    id: string,
    how: { action: 'retry' | 'paid' | 'waive'; reference?: string },
  ): Promise<OpenItem | undefined> {
    if (id.startsWith('pay_')) return this.#resolvePending(id, how.action);
    const { sender } = this.#options;
    await sender.exclusively(() => this.#resolveOutgoing(id, how));
    if (how.action === 'retry') await sender.run(undefined, ZERO);
    const [after] = await this.#db.select().from(paymentOutgoing).where(eq(paymentOutgoing.id, id));
    return after && (isDebt(after) || ['owed', 'sending', 'stuck'].includes(after.state))
      ? outgoingItem(after)
      : undefined;
  }

  async #resolveOutgoing(id: string, how: { action: 'retry' | 'paid' | 'waive'; reference?: string }): Promise<void> {
    const [row] = await this.#db.select().from(paymentOutgoing).where(eq(paymentOutgoing.id, id));
    if (!row || row.state === 'sent' || row.state === 'waived' || (row.state === 'waiting' && !isDebt(row)))
      throw new Problem('not_found', `Nothing is open under ${id}; list what is with: turnpike payments`);
    const { store, sender } = this.#options;
    const now = store.now();
    switch (how.action) {
      case 'retry':
        if (row.channel !== null && !row.covered) throw neverCame();
        if (row.state === 'stuck')
          await store.write([
            this.#set(id, { state: 'owed', attempts: 0, error: null, transfer: null, updatedAt: now }),
          ]);
        break;
      case 'paid': {
        if (row.channel !== null && !row.covered) throw neverCame();
        if (row.withheld > 0n)
          throw new Problem('conflict', 'A part of it was held back already: waive the rest, and that part is sent.');
        if (row.state === 'sending')
          throw new Problem('conflict', 'It is being sent just now; look again in a minute.');
        const { reference } = how;
        if (reference === undefined || !/^0x[0-9a-fA-F]{64}$/.test(reference))
          throw new Problem('invalid_field', 'Give the hash of the transaction that paid it as reference.');
        await store.write([
          this.#set(id, { state: 'sent', error: null, updatedAt: now }),
          ...(await sender.sentStatements(row, reference)),
        ]);
        break;
      }
      case 'waive':
        if (row.state === 'sending')
          throw new Problem('conflict', 'It is being sent just now; look again in a minute.');
        // What was held back is the payer's by now.
        await store.write([
          isDebt(row) && row.withheld > 0n
            ? this.#set(id, {
                state: 'owed',
                amount: row.withheld,
                covered: true,
                source: await this.#holder(id),
                updatedAt: now,
              })
            : this.#set(id, { state: 'waived', error: 'waived by the operator', updatedAt: now }),
        ]);
    }
  }

  async #resolvePending(id: string, action: string): Promise<OpenItem | undefined> {
    const { store, machine } = this.#options;
    const row = await store.byId(id);
    if (row?.state !== 'settling') throw new Problem('not_found', `${id} is not pending.`);
    if (action !== 'retry') throw new Problem('conflict', 'What the chain has not decided can only be retried.');
    await machine.exclusively(row, async () => this.#options.continue(await machine.reconcile(row)));
    const after = await store.byId(id);
    return after?.state === 'settling' ? pendingItem(after) : undefined;
  }

  #set(id: string, change: Partial<OutgoingRow>) {
    return this.#db.update(paymentOutgoing).set(change).where(eq(paymentOutgoing.id, id));
  }

  async debt(tenant: string) {
    const [row] = await this.#db
      .select({ sum: sql<number>`coalesce(sum(amount - withheld), 0)` })
      .from(paymentOutgoing)
      .where(and(eq(paymentOutgoing.debtor, tenant), eq(paymentOutgoing.state, 'waiting')));
    return micro(row?.sum ?? 0);
  }

  /** The wallet that holds what was held back for a debt. */
  async #holder(debt: string): Promise<string> {
    const [row] = await this.#db
      .select({ source: paymentOutgoing.source })
      .from(ledger)
      .innerJoin(paymentOutgoing, eq(ledger.txn, sql`${debt} || ':held:' || ${paymentOutgoing.id}`))
      .limit(1);
    if (!row) throw new Error(`nothing was held back for ${debt}`);
    return row.source;
  }

  async summary() {
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
    return rows.map((row) => ({
      asset: row.asset,
      gross: formatUsd(micro(row.gross)),
      fees: formatUsd(micro(row.fees)),
      operations: formatUsd(micro(row.operations)),
      owed: formatUsd(micro(owed.find(({ asset }) => asset === row.asset)?.amount ?? 0)),
    }));
  }
}

function isDebt({ state, debtor }: OutgoingRow): boolean {
  return state === 'waiting' && debtor !== null;
}

function neverCame(): Problem {
  return new Problem(
    'conflict',
    'The money for it never came: its payer took the deposit back. Close it with: turnpike payments waive',
  );
}

function conditions({ tenant, slug, from, to }: Filter): SQL[] {
  const at = sql`coalesce(${payments.settledAt}, ${payments.updatedAt})`;
  return [
    ...(tenant === undefined ? [] : [eq(payments.tenant, tenant)]),
    ...(slug === undefined ? [] : [eq(payments.slug, slug)]),
    ...(from === undefined ? [] : [gte(at, dayStart(from))]),
    ...(to === undefined ? [] : [lt(at, dayStart(to) + DAY_MS)]),
  ];
}

/** @throws Problem `invalid_field` */
function dayStart(day: string): number {
  const at = /^\d{4}-\d{2}-\d{2}$/.test(day) ? Date.parse(`${day}T00:00:00Z`) : Number.NaN;
  if (Number.isNaN(at)) throw new Problem('invalid_field', 'Days are written YYYY-MM-DD.');
  return at;
}

/** RFC 4180, and nothing that a spreadsheet would take for a formula. */
function csvField(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function pendingItem(row: PaymentRow): OpenItem {
  return {
    id: row.id,
    kind: 'pending-settlement',
    payment: row.id,
    asset: row.asset,
    to: row.recipient,
    amount: formatUsd(row.charged ?? row.authorized),
    since: row.pendingSince ?? row.updatedAt,
    error: row.error ?? undefined,
    command: `turnpike payments retry ${row.id}`,
  };
}

function outgoingItem(row: OutgoingRow): OpenItem {
  const kind = isDebt(row) ? 'tenant-debt' : row.state === 'stuck' ? 'stuck' : (`${row.kind}-owed` as const);
  return {
    id: row.id,
    kind,
    payment: row.payment,
    asset: row.asset,
    to: row.recipient === '' ? 'operator' : row.recipient,
    amount: formatUsd(isDebt(row) ? subtract(row.amount, row.withheld) : row.amount),
    since: row.createdAt,
    error: row.error ?? undefined,
    command:
      isDebt(row) || (row.channel !== null && !row.covered)
        ? `turnpike payments waive ${row.id}`
        : row.state === 'stuck'
          ? `turnpike payments paid ${row.id} --reference <transaction hash>`
          : `turnpike payments retry ${row.id}`,
  };
}
