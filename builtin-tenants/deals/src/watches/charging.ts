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

/** The pay platform. Both throw where nothing is known of the outcome. */
export interface Credit {
  /** In order; earlier ones go first. */
  charge(charges: Charge[]): Promise<ChargeOutcome[]>;
  /** Whether the key was charged before. */
  wasCharged(key: string): Promise<boolean>;
}

const A_BATCH = 200;

/** Running watches at the end of their paid time. @returns how many were looked at */
export async function chargeDue(watches: Watches, credit: Credit, now: number): Promise<number> {
  return everyPage(
    (after) => watches.unpaid(now, after, A_BATCH),
    (rows) => chargeAll(watches, credit, rows, now),
  );
}

/** Suspended watches of an account, oldest first, as far as its credit goes. @returns how many were looked at */
export function resume(watches: Watches, credit: Credit, account: string, now: number): Promise<number> {
  return everyPage(
    (after) => watches.suspended(account, after, A_BATCH),
    (rows) => chargeAll(watches, credit, rows, now),
  );
}

/** The same for all accounts. One without credit costs one question, however many of its watches wait. */
export function resumeAll(watches: Watches, credit: Credit, now: number): Promise<number> {
  return everyPage(
    (after) => watches.oldestSuspended(after, A_BATCH),
    async (rows) => {
      const refused = await chargeAll(watches, credit, rows, now);
      for (const { account } of rows) if (!refused.has(account)) await resume(watches, credit, account, now);
    },
  );
}

/** Page by page in a fixed order, so that a watch that stays as it is keeps none behind it waiting. */
async function everyPage(
  read: (after: WatchRow | undefined) => Promise<WatchRow[]>,
  work: (rows: WatchRow[]) => Promise<unknown>,
): Promise<number> {
  let count = 0;
  let after: WatchRow | undefined;
  do {
    const rows = await read(after);
    if (rows.length > 0) await work(rows);
    count += rows.length;
    after = rows.length === A_BATCH ? rows.at(-1) : undefined;
  } while (after);
  return count;
}

/** @returns accounts whose credit did not cover a watch */
async function chargeAll(watches: Watches, credit: Credit, rows: WatchRow[], now: number): Promise<Set<string>> {
  const refused = new Set<string>();
  const claimed: { row: WatchRow; start: number }[] = [];
  for (const row of rows) {
    const wanted = duePeriod(row.paid_through, now);
    if (wanted === undefined) continue;
    const start = await watches.claimPeriod(row.id, row.paid_through, wanted);
    if (start === undefined) continue;
    if (now - start <= LATE_MS) claimed.push({ row, start });
    // A run was cut off long ago between the charge and its record: what was charged counts, what was not is over.
    else if (await credit.wasCharged(chargeKey(row.id, start))) await watches.paid(row.id, start, now);
    else await watches.giveUpPeriod(row.id, start);
  }
  if (claimed.length === 0) return refused;
  const outcomes = await credit.charge(
    claimed.map(({ row, start }) => ({
      key: chargeKey(row.id, start),
      accountId: row.account,
      memo: `a day of watch ${row.id}`,
    })),
  );
  for (const [index, { row, start }] of claimed.entries()) {
    const outcome = outcomes[index];
    if (outcome === 'charged' || outcome === 'duplicate') await watches.paid(row.id, start, now);
    else if (outcome === 'insufficient_credit') {
      await watches.unfunded(row.id, start, now);
      refused.add(row.account);
    }
  }
  return refused;
}
