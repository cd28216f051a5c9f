/**
 * What the start after a crash (and a timer) does with every payment that is between two states: finish it where money
 * moved, let it go where none did, and note a refund where the work was lost.
 */
import type { Logger } from 'pino';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import type { Money } from '../../shared/money.ts';
import type { Operations } from '../operations.ts';
import { termsFromText } from '../terms.ts';
import type { LiveCalls } from './live-calls.ts';
import type { SettlementMachine } from './machine.ts';
import { isTenants } from './payment-store.ts';

export interface RecoveryOptions {
  machine: SettlementMachine;
  operations: Operations;
  /** Calls that are charged while they go on. */
  live: LiveCalls;
  log: Logger;
}

/** At start: nobody is at work on anything. */
export async function recoverAll({ machine, operations, log }: RecoveryOptions): Promise<void> {
  for (const row of await machine.store.open()) {
    try {
      const next = await machine.exclusively(row, () => recover(machine, operations, row));
      if (next.state !== row.state) log.info({ payment: row.id, from: row.state, to: next.state }, 'payment recovered');
    } catch (error) {
      log.error({ err: error, payment: row.id, state: row.state }, 'payment could not be recovered yet');
    }
  }
}

/**
 * While running: settlements whose outcome was not known, or not noted, and whatever else nobody is at work on any more,
 * such as where a write failed. A start would do no more.
 */
export async function recoverLeft({ machine, operations, live, log }: RecoveryOptions): Promise<void> {
  for (const row of await machine.store.open()) {
    if (machine.isHeld(row) || machine.isSettling(row) || live.isOpen(row) || isTenants(row)) continue;
    try {
      await machine.exclusively(row, async () => {
        const current = (await machine.store.byId(row.id)) ?? row;
        if (current.state === 'settling' && current.pendingSince === null)
          await machine.store.pending(current, 'the outcome could not be noted');
        await recover(machine, operations, current);
      });
    } catch (error) {
      log.warn({ err: error, payment: row.id, state: row.state }, 'payment could not be recovered yet');
    }
  }
}

async function recover(machine: SettlementMachine, operations: Operations, row: PaymentRow): Promise<PaymentRow> {
  switch (row.state) {
    case 'verified':
      return machine.store.released(row, 'it was given up before the work was done');
    case 'working':
      if (isTenants(row)) return row;
      return (
        (await chargeMetered(machine, row)) ?? machine.store.released(row, 'it was given up while the handler worked')
      );
    case 'settling':
      return continueSettled(machine, operations, await machine.reconcile(row));
    case 'settled':
      return continueSettled(machine, operations, row);
    default:
      return row;
  }
}

/** What follows once it is known what became of a settlement. The payment's lock is held by the caller. */
export async function continueSettled(
  machine: SettlementMachine,
  operations: Operations,
  row: PaymentRow,
): Promise<PaymentRow> {
  if (row.state === 'released') {
    if (row.kind === 'operation') await operations.abandoned(row);
    return row;
  }
  if (row.state !== 'settled') return row;
  if (row.kind === 'operation') return operations.complete(row);
  if (row.kind === 'binding') return isTenants(row) ? row : machine.store.answered(row, undefined, true);
  const metered = await chargeMetered(machine, row);
  if (metered) return metered;
  if (await machine.store.kept.has(row)) return machine.store.answered(row, undefined, true);
  return machine.store.refunds.owe(row, 'it was given up before the answer was out');
}

/**
 * Ends a call that was charged while it went on: what its handler had reported is charged, whatever broke it off. The
 * payment's lock is held by the caller.
 * @param reported where more is known than was written down: a crash counts what was about to be delivered
 * @returns undefined where nothing was reported
 */
export async function chargeMetered(
  machine: SettlementMachine,
  row: PaymentRow,
  reported?: Money,
  clientGone = false,
): Promise<PaymentRow | undefined> {
  const { store } = machine;
  if (row.kind !== 'route' || (row.state !== 'working' && row.state !== 'settled')) return undefined;
  const total = reported ?? (await store.meters.totalOf(row));
  if (total === 0n) return undefined;
  const status = termsFromText(row.terms).perEvent === undefined ? 101 : 200;
  const answer = { status, headers: [], body: undefined };
  const taken = row.state === 'settled' && row.charged !== null ? row : await machine.take(row, total, { answer });
  const answered = await store.answered(taken, undefined, clientGone);
  await store.meters.forget(row);
  return answered;
}
