/**
 * Keeps watches paid: charges the day that is due, suspends what credit does not cover, resumes what it covers again.
 *
 * A run takes a period for itself, charges it, and writes down what came of it; nobody else charges or refuses it in
 * the meantime. A run that is cut off leaves its periods behind. Once no charge of its can be under way any more, the pay
 * platform is asked what was charged: that counts, and anything else is as if it had never been tried.
 */
import { chargeKey, duePeriod } from './periods.ts';
import type { WatchRow } from './watch.ts';
import type { Claim, ClaimOutcome, Watches } from './watch-store.ts';

export interface Charge {
  key: string;
  accountId: string;
  memo: string;
}

export type ChargeOutcome = 'charged' | 'duplicate' | 'insufficient_credit' | 'refused';

/** The pay platform. Both throw where nothing is known of the outcome. */
export interface Credit {
  /** In order; earlier ones go first. What is not booked within `CHARGE_MS` never is. */
  charge(charges: Charge[]): Promise<ChargeOutcome[]>;
  /** Whether the key was charged before. */
  wasCharged(key: string): Promise<boolean>;
}

const A_BATCH = 200;

/** Running watches at the end of their paid time. */
export async function chargeDue(watches: Watches, credit: Credit, now: number): Promise<void> {
  await settleLeftBehind(watches, credit, now);
  await everyPage(
    (after: WatchRow | undefined) => watches.unpaid(now, after, A_BATCH),
    (rows) => chargeAll(watches, credit, rows, now),
  );
}

/** Suspended watches of an account, oldest first, as far as its credit goes. */
export async function resume(watches: Watches, credit: Credit, account: string, now: number): Promise<void> {
  await settleLeftBehind(watches, credit, now);
  await resumeAccount(watches, credit, account, now);
}

/** The same for all accounts. One without credit costs one question, however many of its watches wait. */
export async function resumeAll(watches: Watches, credit: Credit, now: number): Promise<void> {
  await settleLeftBehind(watches, credit, now);
  await everyPage(
    (after: WatchRow | undefined) => watches.oldestSuspended(after, A_BATCH),
    async (rows) => {
      const refused = await chargeAll(watches, credit, rows, now);
      for (const { account } of rows) if (!refused.has(account)) await resumeAccount(watches, credit, account, now);
    },
  );
}

async function resumeAccount(watches: Watches, credit: Credit, account: string, now: number): Promise<void> {
  await everyPage(
    (after: WatchRow | undefined) => watches.suspended(account, after, A_BATCH),
    (rows) => chargeAll(watches, credit, rows, now),
  );
}

async function settleLeftBehind(watches: Watches, credit: Credit, now: number): Promise<void> {
  await everyPage(
    (after: Claim | undefined) => watches.leftBehind(after, A_BATCH),
    async (claims) => {
      const outcomes: { claim: Claim; outcome: ClaimOutcome }[] = [];
      for (const claim of claims) {
        const charged = await credit.wasCharged(chargeKey(claim.id, claim.start));
        outcomes.push({ claim, outcome: charged ? 'paid' : 'not_charged' });
      }
      await watches.settle(outcomes, now);
    },
  );
}

/** Page by page in a fixed order, so that one that stays as it is keeps none behind it waiting. */
async function everyPage<Row>(
  read: (after: Row | undefined) => Promise<Row[]>,
  work: (rows: Row[]) => Promise<unknown>,
): Promise<void> {
  let after: Row | undefined;
  do {
    const rows = await read(after);
    if (rows.length > 0) await work(rows);
    after = rows.length === A_BATCH ? rows.at(-1) : undefined;
  } while (after);
}

const OUTCOMES: Record<ChargeOutcome, ClaimOutcome> = {
  charged: 'paid',
  duplicate: 'paid',
  insufficient_credit: 'unfunded',
  refused: 'not_charged',
};

/** @returns accounts whose credit did not cover a watch */
async function chargeAll(watches: Watches, credit: Credit, rows: WatchRow[], now: number): Promise<Set<string>> {
  const wanted = rows.flatMap((row) => {
    const start = duePeriod(row.paid_through, now);
    return start === undefined ? [] : [{ row, start }];
  });
  const claims = await watches.claim(wanted);
  if (claims.length === 0) return new Set();
  const outcomes = await credit.charge(
    claims.map(({ id, account, start }) => ({
      key: chargeKey(id, start),
      accountId: account,
      memo: `a day of watch ${id}`,
    })),
  );
  const settled = claims.flatMap((claim, index) => {
    const outcome = outcomes[index];
    return outcome ? [{ claim, outcome: OUTCOMES[outcome] }] : [];
  });
  await watches.settle(settled, now);
  return new Set(settled.flatMap(({ claim, outcome }) => (outcome === 'unfunded' ? [claim.account] : [])));
}
