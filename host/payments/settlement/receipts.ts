/** Receipts: `Payment-Receipt` for MPP clients and `PAYMENT-RESPONSE` for x402 clients, for what was settled only. */
import { Receipt } from 'mppx';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { formatUsd, type Money } from '../../shared/money.ts';

/** Headers of a settled charge, as JSON for the registry. */
export function chargeReceipt(row: PaymentRow, reference: string, charged: Money): string {
  const receipt = Receipt.serialize({
    method: row.rail.startsWith('x402/') ? 'evm' : 'tempo',
    status: 'success',
    timestamp: new Date().toISOString(),
    reference,
    externalId: row.id,
    amount: charged.toString(),
  } as never);
  const headers: Record<string, string> = { 'payment-receipt': receipt };
  if (row.rail.startsWith('x402/')) {
    const network = row.asset.split('/')[0];
    const response = { success: true, transaction: reference, network, payer: row.payer, amount: charged.toString() };
    headers['payment-response'] = Buffer.from(JSON.stringify(response)).toString('base64');
  }
  return JSON.stringify(headers);
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
