/** MPP on Tempo: charges and sessions. */
import { Challenge, Credential, Mcp, Receipt } from 'mppx';
import type { MppNetwork } from '../../network/types.ts';
import { lower } from '../../terms.ts';
import type { Address } from '../../types.ts';
import { mppReceipt } from '../common.ts';
import type { PaymentMethod, Rail } from '../method.ts';
import { tempoCharge } from './charge.ts';
import { mppOf, readMpp } from './credential.ts';
import { announceMpp, matchMpp, mppOffer } from './offer.ts';
import { tempoSession } from './session.ts';
import { acknowledged, sessionReceipt } from './sessions/receipt.ts';
import type { SessionVerifier } from './sessions/verifier.ts';

/** A network, and what is paid there by sessions; undefined where nothing is. */
export interface TempoPlace {
  network: MppNetwork;
  verifier: SessionVerifier | undefined;
}

/** What MPP needs of the host. */
export interface TempoNeeds {
  mpp: readonly TempoPlace[];
  /** Receives what is paid. */
  collector: Address;
  /** HMAC key of our challenges. */
  challengeKey: string;
}

export function tempoRails({ mpp, collector, challengeKey }: TempoNeeds): Rail[] {
  return mpp.flatMap(({ network, verifier }) => [
    tempoCharge({ network, collector, challengeKey }),
    ...(verifier ? [tempoSession({ network, payee: collector, verifier })] : []),
  ]);
}

export const tempo: PaymentMethod = {
  via: 'mpp',
  family: 'tempo',
  headers: ['authorization'],
  exposed: ['WWW-Authenticate', 'Payment-Receipt'],
  carries: (value) => /^payment /i.test(value),
  read(headers, key) {
    const authorization = headers.get('authorization');
    const payment = authorization === null ? null : Credential.extractPaymentScheme(authorization);
    return payment === null ? undefined : readMpp(payment, key);
  },
  named(presented) {
    const { credential, meta } = mppOf(presented);
    const { request, digest } = credential.challenge;
    return { amount: BigInt(String(request.amount)), digest, meta };
  },
  payer(presented) {
    const address = /^did:pkh:eip155:\d+:(0x[0-9a-fA-F]{40})$/.exec(mppOf(presented).credential.source ?? '')?.[1];
    return address === undefined ? undefined : lower(address);
  },
  match: matchMpp,
  announce: announceMpp,
  describe(offer) {
    const { intent, method, request } = mppOffer(offer);
    return { intent, method, currency: String(request.currency) };
  },
  tools: {
    credential: Mcp.credentialMetaKey,
    header: (sent) => ({ authorization: Credential.serialize(sent as Credential.Credential) }),
    required(headers) {
      if (!headers.has('www-authenticate')) return {};
      return { challenge: { [Mcp.paymentRequiredMetaKey]: { challenges: Challenge.fromHeadersList(headers) } } };
    },
    receipt(headers, sent) {
      const receipt = headers.get('payment-receipt');
      if (receipt === null) return {};
      const { id } = (sent as Credential.Credential).challenge;
      return { [Mcp.receiptMetaKey]: { ...Receipt.deserialize(receipt), challengeId: id } };
    },
  },
  channelReceipt: (row, channel) => ({
    'payment-receipt': sessionReceipt(
      row.credential === null ? channel : { ...channel, voucher: acknowledged(row.credential, channel) },
      row.credentialId,
    ),
  }),
  receipt: (row, reference, charged) => ({ 'payment-receipt': mppReceipt('tempo', row, reference, charged) }),
};
