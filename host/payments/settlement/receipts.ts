/** Receipts: `Payment-Receipt` for MPP clients and `PAYMENT-RESPONSE` for x402 clients, for what was settled only. */
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { formatUsd, type Money } from '../../shared/money.ts';
import { methodOfRail } from '../methods/index.ts';

/** Headers of a settled charge, as JSON for the registry. */
export function chargeReceipt(row: PaymentRow, reference: string, charged: Money): string {
  return JSON.stringify(methodOfRail(row.rail).receipt(row, reference, charged));
}

/** What a paid answer carries beside its own headers. */
export function receiptHeaders(row: PaymentRow): Record<string, string> {
  const stored = row.receipt === null ? {} : (JSON.parse(row.receipt) as Record<string, string>);
  return {
    ...stored,
    'x-payment-id': row.id,
    ...(row.charged === null ? {} : { 'x-payment-amount': formatUsd(row.charged) }),
  };
}
