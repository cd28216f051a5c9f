/** What more than one method of payment needs. */
import { createHash } from 'node:crypto';
import { Receipt } from 'mppx';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import type { Money } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';

/** @returns hexadecimal */
export function sha256(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

/** The credential is not for what is sold now. */
export function notForThis(detail: string): Problem {
  return new Problem('payment_invalid', `${detail} Pay the new challenge.`);
}

/** `Payment-Receipt` as MPP clients read it. @param method of MPP: `tempo`, or `evm` for x402 */
export function mppReceipt(method: string, row: PaymentRow, reference: string, charged: Money): string {
  return Receipt.serialize({
    method,
    status: 'success',
    timestamp: new Date().toISOString(),
    reference,
    externalId: row.id,
    amount: charged.toString(),
  } as never);
}
