/** What the books say: revenue by route and day, every payment as CSV, totals, and what needs a person. */
import { OutgoingStore } from '../../registry/payments/outgoing.ts';
import { type PaymentFilter, PaymentReports } from '../../registry/payments/reports.ts';
import type { OutgoingRow, PaymentRow } from '../../registry/payments/schema.ts';
import { formatUsd, subtract, ZERO } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';
import type { Sender } from '../outgoing/sender.ts';
import type { SettlementMachine } from '../settlement/machine.ts';
import type { PaymentStore } from '../settlement/payment-store.ts';
import type { LedgerLine, OpenItem, PaymentsLedger, RevenueRow } from '../types.ts';
import type { Restored } from './restored.ts';

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
  restored?: Restored;
  /** Finishes a payment that was pending. */
  continue(row: PaymentRow): Promise<void>;
}

export class Reports
  implements Omit<PaymentsLedger, 'reconcile' | 'stopped' | 'resume' | 'gas' | 'facilitator' | 'wallets'>
{
  readonly #options: ReportsOptions;
  readonly #reports: PaymentReports;
  readonly #outgoing: OutgoingStore;

  constructor(options: ReportsOptions) {
    this.#options = options;
    this.#reports = new PaymentReports(options.store.books.db);
    this.#outgoing = new OutgoingStore(options.store.books);
  }

  async revenue(filter: Filter): Promise<RevenueRow[]> {
    return this.#reports.revenue(read(filter));
  }

  async csv(filter: Filter): Promise<string> {
    const rows = await this.#reports.payments(read(filter));
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
    const rows = await this.#reports.lines(payment, limit);
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
    const [pending, outgoing] = await Promise.all([this.#reports.pending(), this.#outgoing.open()]);
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
    const after = await this.#outgoing.byId(id);
    return after && (isDebt(after) || ['owed', 'sending', 'stuck'].includes(after.state))
      ? outgoingItem(after)
      : undefined;
  }

  async #resolveOutgoing(id: string, how: { action: 'retry' | 'paid' | 'waive'; reference?: string }): Promise<void> {
    const row = await this.#outgoing.byId(id);
    if (!row || row.state === 'sent' || row.state === 'waived' || (row.state === 'waiting' && !isDebt(row)))
      throw new Problem('not_found', `Nothing is open under ${id}; list what is with: turnpike payments`);
    const { sender, restored } = this.#options;
    const { books } = this.#options.store;
    const change = (columns: Partial<OutgoingRow>) => this.#outgoing.changed([row], columns);
    switch (how.action) {
      case 'retry':
        if (row.channel !== null && !row.covered) throw neverCame();
        if (row.state === 'stuck') {
          const again = change({ state: 'owed', attempts: 0, error: null, transfer: null });
          await books.write([again, ...(restored?.resolved(id) ?? [])]);
          await restored?.load();
        }
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
        await books.write([change({ state: 'sent', error: null }), ...(await sender.sentStatements(row, reference))]);
        break;
      }
      case 'waive':
        if (row.state === 'sending')
          throw new Problem('conflict', 'It is being sent just now; look again in a minute.');
        // What was held back is the payer's by now.
        await books.write([
          isDebt(row) && row.withheld > 0n
            ? change({ state: 'owed', amount: row.withheld, covered: true, source: await this.#outgoing.holderOf(id) })
            : change({ state: 'waived', error: 'waived by the operator' }),
        ]);
    }
  }

  async #resolvePending(id: string, action: string): Promise<OpenItem | undefined> {
    const { store, machine } = this.#options;
    const row = await store.byId(id);
    if (row?.state !== 'settling')
      throw new Problem('not_found', `${id} is not pending; turnpike payments lists what is.`);
    if (action !== 'retry') throw new Problem('conflict', 'What the chain has not decided can only be retried.');
    await machine.exclusively(row, async () => this.#options.continue(await machine.reconcile(row)));
    const after = await store.byId(id);
    return after?.state === 'settling' ? pendingItem(after) : undefined;
  }

  debt(tenant: string) {
    return this.#outgoing.debt(tenant);
  }

  async summary() {
    const rows = await this.#reports.summary();
    return rows.map(({ asset, gross, fees, operations, owed }) => ({
      asset,
      gross: formatUsd(gross),
      fees: formatUsd(fees),
      operations: formatUsd(operations),
      owed: formatUsd(owed),
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

/** @throws Problem `invalid_field` */
function read({ tenant, slug, from, to }: Filter): PaymentFilter {
  return {
    ...(tenant === undefined ? {} : { tenant }),
    ...(slug === undefined ? {} : { slug }),
    ...(from === undefined ? {} : { from: dayStart(from) }),
    ...(to === undefined ? {} : { before: dayStart(to) + DAY_MS }),
  };
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
