/**
 * x402 `batch-settlement`: the payer deposits once, and each call costs a signature. What was spent is collected for many
 * calls at a time, and what is left goes back. Its channels are in the same books as the sessions of MPP.
 */
import type { PaymentRow } from '../../../../registry/payments/schema.ts';
import type { X402Network } from '../../../network/types.ts';
import { lower, type Terms } from '../../../terms.ts';
import type { Presented, Rail } from '../../method.ts';
import { x402Of } from '../credential.ts';
import type { Gas } from '../gas.ts';
import { type X402Offer, x402Offer } from '../offer.ts';
import type { BatchKeeper } from './keeper.ts';

/** How long the authorization of a deposit stays good, seconds. */
const TIMEOUT_SECONDS = 300;

export function batchRail({ network, keeper, gas }: { network: X402Network; keeper: BatchKeeper; gas: Gas }): Rail {
  return {
    name: 'x402/batch-settlement',
    asset: keeper.asset,

    offer(terms: Terms): X402Offer | undefined {
      // One voucher is one call: what goes on for long holds its channel up.
      if (terms.kind !== 'route' || terms.live || terms.amount === 0n) return undefined;
      if (!gas.mayOffer(terms, network.chain.id, 0)) return undefined;
      return {
        via: 'x402',
        rail: 'x402/batch-settlement',
        custody: 'channel',
        asset: keeper.asset,
        recipient: keeper.payee,
        payTo: lower(terms.payTo ?? network.recipient),
        tenant: terms.tenant,
        requirements: {
          scheme: 'batch-settlement',
          network: network.network,
          asset: network.token,
          amount: terms.amount.toString(),
          payTo: keeper.payee,
          maxTimeoutSeconds: TIMEOUT_SECONDS,
          extra: {
            name: network.name,
            version: network.version,
            assetTransferMethod: 'eip3009',
            ...keeper.extra(terms.amount),
          },
        },
      };
    },

    turn: (presented) => keeper.turn(x402Of(presented)),
    verify: (presented, offer) => keeper.authorize(x402Of(presented), x402Offer(offer)),
    usedUp: (presented: Presented) => keeper.usedUp(x402Of(presented)),

    // The books settle what channels pay (store.channel.captured); no payment of theirs waits for the chain.
    settle: async ({ channel }: PaymentRow) => ({ status: 'settled', reference: channel ?? '' }),
    reconcile: async ({ channel }: PaymentRow) => ({ status: 'settled', reference: channel ?? '' }),
  };
}
