/** The statements of every paid call, whose text is built once: see registry/statements.ts. */
import { and, eq, inArray, isNotNull, lt, sql } from '../drizzle.ts';
import type { Registry } from '../index.ts';
import { NOW } from '../leases.ts';
import { compiled, finds, inserts, updates } from '../statements.ts';
import type { Books } from './books.ts';
import {
  type ChannelRow,
  isOpenPayment,
  type PaymentRow,
  paymentChannels,
  paymentOutgoing,
  payments,
  paymentVouchers,
} from './schema.ts';
import { type OtherPart, stillUnderWay } from './shares.ts';

export function paidCallStatements(registry: Pick<Registry, 'db' | 'client'>) {
  const { db } = registry;
  const { placeholder } = sql;
  const { id, reserved, captured, units, state, voucher, voucherSignature } = paymentChannels;
  const ofChannel = eq(id, placeholder('channel'));
  const greater = sql`${placeholder('cumulative')} > ${voucher}`;
  const reserve = {
    // A channel that is not open (any more) breaks the column's CHECK, and with it the whole transaction.
    reserved: sql`CASE WHEN ${state} = 'open' THEN ${reserved} + ${placeholder('amount')} ELSE -1 END`,
    usedAt: sql`${placeholder('now')}`,
  };
  const reserveByVoucher = {
    ...reserve,
    voucher: sql`max(${voucher}, ${placeholder('cumulative')})`,
    voucherSignature: sql`CASE WHEN ${greater} THEN ${placeholder('signature')} ELSE ${voucherSignature} END`,
  };
  const capture = {
    reserved: sql`${reserved} - ${placeholder('authorized')}`,
    // So does one that has spent more or less since it was read: the receipt says how much.
    captured: sql`CASE WHEN ${captured} = ${placeholder('captured')} AND ${units} = ${placeholder('units')}
      THEN ${captured} + ${placeholder('charged')} ELSE -1 END`,
    units: sql`${units} + 1`,
    usedAt: sql`${placeholder('now')}`,
  };
  // A payment that is not (any more) as it was read breaks NOT NULL, and with it the whole transaction.
  const isAsRead = sql`${payments.attempts} = ${placeholder(' attempts')} AND ${payments.state} = ${placeholder(' state')}
    AND ${payments.node} IS NOT DISTINCT FROM ${placeholder(' node')}`;
  const update = updates(db, payments, payments.id, {
    attempts: sql`CASE WHEN ${isAsRead} THEN ${payments.attempts} + ${placeholder(' begins')} END`,
  });
  const giveBack = { reserved: sql`${reserved} - ${placeholder('authorized')}` };
  return {
    byCredential: finds(registry, payments, eq(payments.credentialId, placeholder('credentialId'))),
    byId: finds(registry, payments, eq(payments.id, placeholder('id'))),
    channelById: finds(registry, paymentChannels, ofChannel),
    insert: inserts(db, payments),
    /** @param was as it was read. `change.attempts`, where it is given, is one more: it begins again */
    update: (was: Pick<PaymentRow, 'id' | 'attempts' | 'state' | 'node'>, change: Partial<PaymentRow>) =>
      update(was.id, change, {
        ' attempts': was.attempts,
        ' state': was.state,
        ' node': was.node,
        ' begins': change.attempts === undefined ? 0 : change.attempts - was.attempts,
      }),
    reserve: compiled(db.update(paymentChannels).set(reserve).where(ofChannel)),
    reserveByVoucher: compiled(db.update(paymentChannels).set(reserveByVoucher).where(ofChannel)),
    voucher: compiled(
      db
        .insert(paymentVouchers)
        .values({
          channel: placeholder('channel'),
          cumulative: placeholder('cumulative'),
          signature: placeholder('signature'),
        })
        .onConflictDoNothing(),
    ),
    capture: compiled(db.update(paymentChannels).set(capture).where(ofChannel)),
    giveBack: compiled(db.update(paymentChannels).set(giveBack).where(ofChannel)),
  };
}

/** What is asked for and changed more rarely. */
export function paymentQueries({ db, client, now }: Books) {
  const isOpenHold = and(isOpenPayment, eq(payments.kind, 'binding'));
  return {
    /** Oldest first. @param node of several; null: this process is the only one */
    inStates: async (states: readonly PaymentRow['state'][], node: string | null): Promise<PaymentRow[]> =>
      db
        .select()
        .from(payments)
        .where(
          and(isOpenPayment, inArray(payments.state, [...states]), node === null ? undefined : eq(payments.node, node)),
        )
        .orderBy(payments.createdAt),

    /** What nodes that have ended were at work on becomes this node's: whoever of them goes on after all writes nothing. */
    async takeOver(node: string): Promise<void> {
      const isAlive = sql`EXISTS (SELECT 1 FROM leases WHERE leases.name = 'node:' || ${payments.node} AND valid_until > ${sql.raw(NOW)})`;
      const isLeft = and(isOpenPayment, sql`NOT coalesce(${payments.node} = ${node} OR ${isAlive}, false)`);
      // A read waits for nobody.
      const left = await db.select({ id: payments.id }).from(payments).where(isLeft).limit(1);
      if (left.length > 0) await db.update(payments).set({ node }).where(isLeft);
    },

    /** Holds whose signature runs out before a moment, real time, ms. */
    endingHolds: async (before: number): Promise<PaymentRow[]> =>
      db
        .select()
        .from(payments)
        .where(
          and(
            isOpenHold,
            eq(payments.state, 'working'),
            isNotNull(payments.settleBefore),
            lt(payments.settleBefore, before),
          ),
        ),

    /** Settled holds that were not touched since a moment, business time, ms. */
    settledHolds: async (before: number): Promise<PaymentRow[]> =>
      db
        .select()
        .from(payments)
        .where(and(isOpenHold, eq(payments.state, 'settled'), lt(payments.updatedAt, before))),

    /** @param parts of one share */
    stillUnderWay: (parts: readonly OtherPart[]) => stillUnderWay(client, parts),

    /**
     * Takes `amount` off what a channel owes. Breaks the column's CHECK, and with it the transaction, where the channel
     * has changed since it was read.
     */
    lessCaptured({ id, state, settled }: ChannelRow, amount: bigint) {
      const captured = sql`CASE WHEN ${paymentChannels.state} = ${state}
        AND ${paymentChannels.settled} = ${Number(settled)}
        AND ${paymentChannels.captured} >= ${paymentChannels.settled} + ${Number(amount)}
        THEN ${paymentChannels.captured} - ${Number(amount)} ELSE -1 END`;
      return db.update(paymentChannels).set({ captured }).where(eq(paymentChannels.id, id));
    },

    /** What would be paid out of a payment is not any more. */
    waived(payment: string, reason: string) {
      const { kind, state } = paymentOutgoing;
      return db
        .update(paymentOutgoing)
        .set({ state: 'waived', error: reason, updatedAt: now() })
        .where(
          and(
            eq(paymentOutgoing.payment, payment),
            inArray(kind, ['payout', 'fee']),
            inArray(state, ['waiting', 'owed', 'stuck']),
          ),
        );
    },
  };
}
