/** Payments without callers, chains and answers: what they write. */
import { type NewPayment, newPaymentId, PaymentStore } from '../../../host/payments/settlement/payment-store.ts';
import type { Registry } from '../../../host/registry/index.ts';
import { AdjustableClock } from '../../../host/shared/clock.ts';
import { micro } from '../../../host/shared/money.ts';

/** Answers without bodies are kept nowhere else. */
const NO_ANSWERS = { drop: async () => {} } as never;

export function paymentsOn(registry: Registry): PaymentStore {
  return new PaymentStore(registry, new AdjustableClock(), NO_ANSWERS);
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
