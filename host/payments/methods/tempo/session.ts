/**
 * MPP `tempo/session`: the payer deposits into a channel and signs cumulative vouchers; a call only needs a voucher,
 * no chain. A voucher authorizes, the books decide what it cost, and closing returns the rest of the deposit.
 */
import { Session } from 'mppx/tempo';
import type { PaymentRow } from '../../../registry/payments/schema.ts';
import { type Money, parseUsd } from '../../../shared/money.ts';
import type { MppNetwork } from '../../network/types.ts';
import { assetId, lower, type Terms } from '../../terms.ts';
import type { Address } from '../../types.ts';
import type { Presented, Rail } from '../method.ts';
import { mppOf } from './credential.ts';
import type { MppOffer } from './offer.ts';
import type { SessionVerifier } from './sessions/verifier.ts';

/** Deposit that clients are asked for: this many calls, but at most ten dollars unless one call costs more. */
const SUGGESTED_CALLS = 20n;
const SUGGESTED_LIMIT = 10_000_000n;

export function tempoSession(options: { network: MppNetwork; payee: Address; verifier: SessionVerifier }): Rail {
  const { network, payee, verifier } = options;
  const asset = assetId(network.chain.id, network.currency);
  return {
    name: 'tempo/session',
    asset,

    offer(terms: Terms): MppOffer | undefined {
      // Where a call fails or costs less nothing has to move, so sessions are for metered routes.
      if (terms.kind !== 'route' || terms.mode !== 'metered') return undefined;
      const unit = terms.perEvent === undefined ? terms.amount : parseUsd(terms.perEvent);
      return {
        via: 'mpp',
        rail: 'tempo/session',
        ...(unit === terms.amount ? {} : { authorizes: unit }),
        method: 'tempo',
        intent: 'session',
        custody: 'channel',
        asset,
        recipient: payee,
        payTo: lower(terms.payTo ?? network.recipient),
        request: {
          amount: unit.toString(),
          currency: network.currency,
          recipient: payee,
          unitType: terms.perEvent === undefined ? 'request' : 'event',
          suggestedDeposit: suggestedDeposit(unit).toString(),
          methodDetails: {
            chainId: network.chain.id,
            escrowContract: Session.Precompile.Protocol.tip20ChannelEscrow,
            sessionProtocol: 'v2',
          },
        },
      };
    },

    async verify(presented: Presented) {
      return verifier.authorize(mppOf(presented).credential);
    },

    // The books settle sessions (store.channel.captured); no state of a session payment waits for the chain.
    async settle(payment: PaymentRow) {
      return { status: 'settled', reference: payment.channel ?? '' };
    },

    async reconcile(payment: PaymentRow) {
      return { status: 'settled', reference: payment.channel ?? '' };
    },
  };
}

function suggestedDeposit(price: Money): bigint {
  const several = price * SUGGESTED_CALLS;
  if (several <= SUGGESTED_LIMIT) return several;
  return price > SUGGESTED_LIMIT ? price : SUGGESTED_LIMIT;
}
