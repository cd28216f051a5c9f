/** The statements of every paid call, whose text is built once: see registry/statements.ts. */
import { eq, sql } from '../../registry/drizzle.ts';
import type { Registry } from '../../registry/index.ts';
import { paymentChannels, payments, paymentVouchers } from '../../registry/schema/payments.ts';
import { compiled, inserts, updates } from '../../registry/statements.ts';

export function paidCallStatements(db: Registry['db']) {
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
    captured: sql`${captured} + ${placeholder('charged')}`,
    units: sql`${units} + 1`,
    usedAt: sql`${placeholder('now')}`,
  };
  const giveBack = { reserved: sql`${reserved} - ${placeholder('authorized')}` };
  return {
    byCredential: db
      .select()
      .from(payments)
      .where(eq(payments.credentialId, placeholder('credentialId')))
      .prepare(),
    byId: db
      .select()
      .from(payments)
      .where(eq(payments.id, placeholder('id')))
      .prepare(),
    insert: inserts(db, payments),
    update: updates(db, payments, payments.id),
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
