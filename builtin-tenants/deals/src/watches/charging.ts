/** Keeps watches paid: charges the day that is due, suspends what credit does not cover, resumes what it covers again. */
import { chargeKey, duePeriod, LATE_MS } from './periods.ts';
import type { Watches } from './store.ts';
import type { WatchRow } from './watch.ts';

export interface Charge {
  key: string;
  accountId: string;
  memo: string;
}

export type ChargeOutcome = 'charged' | 'duplicate' | 'insufficient_credit' | 'refused';

/** Charges of the pay platform, in order; throws where nothing is known of the outcome. */
export type ChargeBatch = (charges: Charge[]) => Promise<ChargeOutcome[]>;

const A_BATCH = 200;

/** Running watches at the end of their paid time. @returns how many were looked at */
export async function chargeDue(watches: Watches, charge: ChargeBatch, now: number): Promise<number> {
  const due = await watches.unpaid(now, A_BATCH);
  await chargeAll(watches, charge, due, now);
  return due.length;
}

/** Suspended watches, oldest first, as far as the credit goes. */
export async function resume(
  watches: Watches,
  charge: ChargeBatch,
  account: string | undefined,
  now: number,
): Promise<number> {
  const waiting = await watches.suspended(account, A_BATCH);
  await chargeAll(watches, charge, waiting, now);
  return waiting.length;
}

async function chargeAll(watches: Watches, charge: ChargeBatch, rows: WatchRow[], now: number): Promise<void> {
  const claimed: { row: WatchRow; start: number }[] = [];
  for (const row of rows) {
    const wanted = duePeriod(row.paid_through, now);
    if (wanted === undefined) continue;
    // A start that a killed run left behind counts while the charge could still be on its way, then no more.
    const start = await watches.claimPeriod(row.id, row.paid_through, wanted, now - LATE_MS);
    if (start !== undefined) claimed.push({ row, start });
  }
  if (claimed.length === 0) return;
  const outcomes = await charge(
    claimed.map(({ row, start }) => ({
      key: chargeKey(row.id, start),
      accountId: row.account,
      memo: `a day of watch ${row.id}`,
    })),
  );
  for (const [index, { row, start }] of claimed.entries()) {
    const outcome = outcomes[index];
    if (outcome === 'charged' || outcome === 'duplicate') await watches.paid(row.id, start, now);
    else if (outcome === 'insufficient_credit') await watches.unfunded(row.id, start, now);
  }
}
