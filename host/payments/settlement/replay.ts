/** The answer to a credential that was used before: the very answer of the first time, as far as it was kept. */
import type { PaymentRow } from '../../registry/schema/payments.ts';
import { formatUsd, ZERO } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';
import { receiptHeaders } from './receipts.ts';

export function replay(row: PaymentRow, requestId: string | undefined): Response {
  if (row.state === 'refund_owed' || row.state === 'refunded') return lost(row, requestId);
  if (row.answerStatus !== null && (row.answerComplete || row.answerBody !== null)) {
    const headers = new Headers(row.answerHeaders ?? []);
    for (const [name, value] of Object.entries(receiptHeaders(row))) headers.set(name, value);
    headers.set('x-payment-replayed', '1');
    if (requestId !== undefined) headers.set('x-request-id', requestId);
    const empty = row.answerStatus === 204 || row.answerStatus === 304 || (row.answerBody?.length ?? 0) === 0;
    return new Response(empty ? null : new Uint8Array(row.answerBody ?? []), { status: row.answerStatus, headers });
  }
  return new Problem(
    'conflict',
    'This payment was settled and answered; answers that stream or are large are not kept. Its receipt is in the headers.',
    { headers: receiptHeaders(row), extensions: { payment: row.id } },
  ).toResponse(requestId);
}

/** Settled, and the work did not survive. */
export function lost(row: PaymentRow, requestId: string | undefined): Response {
  const amount = formatUsd(row.refunded > ZERO ? row.refunded : (row.charged ?? row.authorized));
  const done = row.state === 'refunded';
  return new Problem(
    'upstream_failed',
    done
      ? `The work was lost after it was paid; ${amount} USD went back to the payer.`
      : `The work was lost after it was paid; a refund of ${amount} USD is owed to the payer.`,
    { headers: { 'x-payment-id': row.id }, extensions: { payment: row.id, refund: done ? 'done' : 'owed', amount } },
  ).toResponse(requestId);
}
