/** x402 on EVM chains: `exact` by EIP-3009, `upto` by Permit2. */

import { lower } from '../../terms.ts';
import { mppReceipt, sha256 } from '../common.ts';
import type { PaymentMethod } from '../method.ts';
import { readX402, x402Of } from './credential.ts';
import { announceX402, matchX402, x402Offer } from './offer.ts';

export const x402: PaymentMethod = {
  via: 'x402',
  family: 'x402',
  header: 'payment-signature',
  exposed: ['PAYMENT-REQUIRED', 'PAYMENT-RESPONSE', 'Payment-Receipt'],
  partialRails: ['x402/upto'],
  read(headers) {
    const signature = headers.get(x402.header);
    return signature === null ? undefined : readX402(signature);
  },
  named(presented) {
    const { accepted, resource } = x402Of(presented).payload;
    return { amount: BigInt(accepted.amount), resource: resource?.url, token: accepted.extra?.challenge };
  },
  payer(presented) {
    const signed = x402Of(presented).payload.payload;
    return lower(('authorization' in signed ? signed.authorization : signed.permit2Authorization).from);
  },
  /** The hash of the signed part alone. */
  formerHash: (presented) => sha256(JSON.stringify(x402Of(presented).payload.payload)),
  match: matchX402,
  announce: announceX402,
  describe(offer) {
    const { scheme, network, asset } = x402Offer(offer).requirements;
    return { intent: scheme, method: 'x402', currency: `${network}/${asset}` };
  },
  receipt(row, reference, charged) {
    const network = row.asset.split('/')[0];
    const response = { success: true, transaction: reference, network, payer: row.payer, amount: charged.toString() };
    return {
      'payment-receipt': mppReceipt('evm', row, reference, charged),
      'payment-response': Buffer.from(JSON.stringify(response)).toString('base64'),
    };
  },
};
