/** Watches and the real credit ledger on databases in memory, with a clock of the test. */

import { MIGRATIONS } from '../../../builtin-tenants/deals/src/database/migrations.ts';
import type { Charge, ChargeOutcome, Credit } from '../../../builtin-tenants/deals/src/watches/charging.ts';
import { parseWatch, type WatchRow } from '../../../builtin-tenants/deals/src/watches/watch.ts';
import { Watches } from '../../../builtin-tenants/deals/src/watches/watch-store.ts';
import { migrate } from '../../../builtin-tenants/kit/migrate.ts';
import { Ledger } from '../../../builtin-tenants/pay/src/credit/ledger.ts';
import { MIGRATIONS as PAY_MIGRATIONS } from '../../../builtin-tenants/pay/src/database/migrations.ts';
import { type MemoryDatabase, memoryDatabase } from './memory-database.ts';

export const DAY_PRICE = 100_000;

export interface ChargedWatches {
  deals: MemoryDatabase;
  pay: MemoryDatabase;
  watches: Watches;
  ledger: Ledger;
  credit: Credit;
  now: number;
  /** Outages: called before a charge, and after it (its answer is then lost). */
  before?: () => void;
  after?: () => void;
  account(id: string, micro: number): Promise<void>;
  grant(id: string, micro: number): Promise<void>;
  create(account: string): Promise<string>;
  row(id: string): WatchRow;
  /** Keys of all charges, in the order in which they were booked. */
  charged(watch?: string): string[];
  close(): void;
}

export async function chargedWatches(start: number): Promise<ChargedWatches> {
  const deals = memoryDatabase();
  const pay = memoryDatabase();
  await migrate(deals, MIGRATIONS);
  await migrate(pay, PAY_MIGRATIONS);
  const rig = { deals, pay, now: start } as ChargedWatches;
  rig.ledger = new Ledger(pay, () => rig.now);
  rig.watches = new Watches(deals, () => rig.now);
  rig.credit = creditOf(rig);
  let grants = 0;
  rig.grant = async (account, amount) => {
    await rig.ledger.grant({ key: `grant:${++grants}`, account, amount, source: 'purchase', promotional: false });
  };
  rig.account = async (id, micro) => {
    pay.sql("INSERT INTO accounts (id, kind, created_at) VALUES (?, 'anonymous', ?)", id, rig.now);
    if (micro > 0) await rig.grant(id, micro);
  };
  let requests = 0;
  const input = parseWatch(new TextEncoder().encode('{"query":{},"trigger":{"on":["enter"]},"every_s":43200}'));
  rig.create = async (account) => (await rig.watches.create(account, `req_${++requests}`, input, rig.now)).watch.id;
  rig.row = (id) => deals.sql<WatchRow>('SELECT * FROM watches WHERE id = ?', id)[0] as WatchRow;
  rig.charged = (watch) =>
    pay
      .sql<{ key: string }>(
        "SELECT request_id AS key FROM ledger_transactions WHERE kind = 'charge' AND request_id GLOB ? ORDER BY rowid",
        watch === undefined ? '*' : `*${watch}*`,
      )
      .map(({ key }) => key);
  rig.close = () => {
    deals.close();
    pay.close();
  };
  return rig;
}

/** As the platform's service API: the same ledger, the same outcomes. */
function creditOf(rig: ChargedWatches): Credit {
  return {
    async charge(charges: Charge[]): Promise<ChargeOutcome[]> {
      rig.before?.();
      const outcomes = await rig.ledger.chargeAll(
        charges.map(({ key, accountId, memo }) => ({
          key: `charge:deals-watches:${key}`,
          account: accountId,
          service: 'deals-watches',
          amount: DAY_PRICE,
          usage: '[{"meterSlug":"watch_day","quantity":1}]',
          requestId: key,
          memo,
        })),
      );
      rig.after?.();
      return outcomes.map(({ status }) =>
        status === 'no_account' ? 'insufficient_credit' : status === 'conflict' ? 'refused' : status,
      );
    },
    async wasCharged(key: string) {
      rig.before?.();
      return rig.pay.sql('SELECT 1 FROM ledger_transactions WHERE key = ?', `charge:deals-watches:${key}`).length > 0;
    },
  };
}

/** Whether every transaction, and all of them together, sum to zero, and every balance is that of its entries. */
export function ledgerIsSound(pay: MemoryDatabase): boolean {
  const [total] = pay.sql<{ sum: number }>('SELECT coalesce(sum(amount), 0) AS sum FROM ledger_entries');
  const odd = pay.sql('SELECT transaction_id FROM ledger_entries GROUP BY transaction_id HAVING sum(amount) <> 0');
  const wrong = pay.sql(
    `SELECT a.id FROM ledger_accounts a WHERE a.balance <> (SELECT coalesce(sum(amount), 0) FROM ledger_entries e WHERE e.account_id = a.id)`,
  );
  return total?.sum === 0 && odd.length === 0 && wrong.length === 0;
}
