/** Payments without callers, chains and answers: what they write. */
import { type NewPayment, newPaymentId, PaymentStore } from '../../../host/payments/settlement/payment-store.ts';
import type { Registry } from '../../../host/registry/index.ts';
import type { PaymentRow } from '../../../host/registry/payments/schema.ts';
import { AdjustableClock } from '../../../host/shared/clock.ts';
import { micro } from '../../../host/shared/money.ts';

/** Answers without bodies are kept nowhere else. */
const NO_ANSWERS = { drop: async () => {} } as never;

export function paymentsOn(registry: Registry): PaymentStore {
  return new PaymentStore(registry, new AdjustableClock(), NO_ANSWERS);
}

/** A payment that is answered, so that its seller is owed. */
export async function deliver(
  store: PaymentStore,
  credentialId: string,
  more: Partial<NewPayment>,
): Promise<PaymentRow> {
  let row = await store.begin(newPayment(credentialId, more), 'working', undefined);
  row = await store.settling(row, { charged: row.authorized });
  row = await store.settled(row, `0x${row.id}`, row.authorized, '{}');
  return store.answered(row, undefined, false);
}

export function newPayment(credentialId: string, more: Partial<NewPayment> = {}): NewPayment {
  return {
    id: newPaymentId(),
    credentialId,
    credentialHash: 'hash',
    credential: 'credential',
    rail: 'tempo/charge',
    kind: 'route',
    name: 'GET /',
    scope: 'scope',
    slug: 'shop',
    tenant: 'tenant',
    asset: 'usd',
    payer: 'payer',
    payerDid: 'did',
    recipient: 'host',
    payTo: 'payee',
    custody: 'collected',
    channel: null,
    authorized: micro(2_000),
    feeBps: 500,
    terms: '{}',
    settleBefore: null,
    place: 'place',
    ...more,
  };
}
