/** Callers that show a credential to a node, whose only rail counts what it took. */
import pino from 'pino';
import { prepareOffers } from '../../../host/payments/challenge.ts';
import type { Presented, Rail } from '../../../host/payments/methods/method.ts';
import type { X402Offer } from '../../../host/payments/methods/x402/offer.ts';
import { placeOf } from '../../../host/payments/settlement/again.ts';
import { type Admitted, SettlementMachine } from '../../../host/payments/settlement/machine.ts';
import type { PaymentStore } from '../../../host/payments/settlement/payment-store.ts';
import type { Share, Terms } from '../../../host/payments/terms.ts';
import { micro } from '../../../host/shared/money.ts';

const PAYEE = '0x00000000000000000000000000000000000000aa';
export const TERMS: Terms = {
  kind: 'route',
  name: 'GET /a',
  scope: 'route:ta:GET /a',
  slug: 'a',
  tenant: 'ta',
  amount: micro(10_000n),
  mode: 'fixed',
  slow: false,
  payTo: PAYEE,
  feeBps: 0,
  description: 'a',
  sku: undefined,
  pricingVersion: undefined,
};
const OFFER = {
  rail: 'x402/exact',
  asset: 'eip155:1/0x1',
  custody: 'direct',
  recipient: PAYEE,
  payTo: PAYEE,
  via: 'x402',
  requirements: {
    scheme: 'exact',
    network: 'eip155:1',
    asset: '0x1',
    amount: '10000',
    payTo: PAYEE,
    maxTimeoutSeconds: 60,
    extra: {},
  },
} satisfies X402Offer;

/**
 * @param settle what the chain says of a charge
 * @param shares what it finds, when it verifies, that other calls could use up; default: nothing
 */
export function machineOn(
  store: PaymentStore,
  settle: Rail['settle'],
  shares: () => Promise<readonly Share[]> = async () => [],
): SettlementMachine {
  const payer = { address: PAYEE, did: `did:pkh:eip155:1:${PAYEE}` } as const;
  const verify = async () => ({ payer, settleBefore: Number.POSITIVE_INFINITY, shares: await shares() });
  const rail: Rail = {
    name: 'x402/exact',
    asset: OFFER.asset,
    offer: () => undefined,
    verify,
    settle,
    reconcile: settle,
  };
  return new SettlementMachine({ store, rails: [rail], channels: undefined, log: pino({ level: 'silent' }) });
}

/** @param id of the credential */
export function admit(machine: SettlementMachine, id: string, idempotencyKey?: string): Promise<Admitted> {
  const payload = { x402Version: 2, accepted: OFFER.requirements, payload: {} };
  const presented = { via: 'x402', rail: 'x402/exact', id, hash: id, text: id, payload } as unknown as Presented;
  const prepared = prepareOffers(TERMS, [OFFER]);
  const asked = { realm: 'h', resource: 'https://h/', digest: undefined, now: Date.now() };
  const place = placeOf(['call', 'path', 'a', 'GET', '/a'], Buffer.alloc(0));
  return machine.admit({ caller: 'test', presented, prepared, asked, place, idempotencyKey, state: 'working' });
}
