/**
 * x402 on EVM chains (`exact` by EIP-3009, `upto` by Permit2, `batch-settlement` by channels) and on Solana (`exact` by a
 * signed transaction).
 */

import { lower } from '../../terms.ts';
import { mppReceipt, sha256 } from '../common.ts';
import type { PaymentMethod } from '../method.ts';
import { batchReceipt } from './batch/answers.ts';
import { networkOfId, readX402, x402Of } from './credential.ts';
import { tokenOf } from './nonce.ts';
import { announceX402, matchX402, x402Offer } from './offer.ts';
import { isVersion1, nameOfNetwork } from './version-1.ts';

/** Of version 2, and of version 1. */
const HEADERS = ['payment-signature', 'x-payment'];

export const x402: PaymentMethod = {
  via: 'x402',
  family: 'x402',
  headers: HEADERS,
  exposed: ['PAYMENT-REQUIRED', 'PAYMENT-RESPONSE', 'X-PAYMENT-RESPONSE', 'Payment-Receipt'],
  partialRails: ['x402/upto'],
  read(headers) {
    const sent = HEADERS.map((name) => headers.get(name)).find((value) => value !== null);
    return sent === undefined || sent === null ? undefined : readX402(sent);
  },
  named(presented) {
    const { version, payload } = x402Of(presented);
    const { accepted, resource } = payload;
    return {
      amount: BigInt(accepted.amount),
      resource: resource?.url,
      token: tokenOf(accepted.extra?.challenge),
      version1: version === 1,
    };
  },
  payer(presented) {
    const signed = x402Of(presented).payload.payload;
    // Of a transaction it is its rail that finds out.
    if ('transaction' in signed) return undefined;
    if ('channelConfig' in signed) return lower(signed.channelConfig.payer);
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
  /** https://github.com/x402-foundation/x402/blob/main/specs/transports-v2/mcp.md */
  tools: {
    credential: 'x402/payment',
    header: (sent) => ({ 'payment-signature': base64(sent as object) }),
    required(headers) {
      const offers = headers.get('payment-required');
      return offers === null ? {} : { structuredContent: fromBase64(offers) };
    },
    receipt(headers) {
      const settled = headers.get('payment-response');
      return settled === null ? {} : { 'x402/payment-response': fromBase64(settled) };
    },
  },
  channelReceipt: (row, channel, charged) => ({
    'payment-receipt': mppReceipt('evm', row, channel.id, charged),
    'payment-response': batchReceipt(row, channel, charged),
  }),
  receipt(row, reference, charged) {
    const network = networkOfId(row.credentialId) ?? row.asset.split('/')[0] ?? '';
    const response = { success: true, transaction: reference, network, payer: row.payer, amount: charged.toString() };
    return {
      'payment-receipt': mppReceipt(network.startsWith('solana:') ? 'solana' : 'evm', row, reference, charged),
      'payment-response': base64(response),
      ...(isVersion1(row.credential)
        ? { 'x-payment-response': base64({ ...response, network: nameOfNetwork(network) }) }
        : {}),
    };
  },
};

function base64(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64');
}

function fromBase64(text: string): object {
  return JSON.parse(Buffer.from(text, 'base64').toString('utf8'));
}
