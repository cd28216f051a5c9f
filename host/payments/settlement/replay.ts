/** The answer to a credential that was used before: the very answer of the first time, as far as it was kept. */
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { formatUsd, ZERO } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';
import { wholeAnswer } from '../../shared/whole-answer.ts';
import type { Again } from './again.ts';
import type { PaymentStore } from './payment-store.ts';
import { receiptHeaders } from './receipts.ts';

/** @param headersOf the headers of an answer, made as they were the first time */
export async function replay(
  again: Again,
  store: PaymentStore,
  requestId: string,
  headersOf: (headers: Headers, row: PaymentRow) => Headers,
): Promise<Response> {
  const { row } = again;
  if (row.state === 'refund_owed' || row.state === 'refunded') return lost(row, requestId);
  const answer = await store.kept.find(again);
  if (answer) {
    const headers = headersOf(new Headers(answer.headers), row);
    headers.set('x-payment-replayed', '1');
    const empty = answer.status === 204 || answer.status === 304;
    return wholeAnswer(new Uint8Array(empty ? [] : answer.body), { status: answer.status, headers });
  }
  return new Problem(
    'conflict',
    'This payment was settled and answered; answers that stream, are large or are old are not kept. Its receipt is in the headers.',
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
