/** Vouchers of x402's `batch-settlement`: which channel they are of, and who signed them. */
import { BATCH_SETTLEMENT_ADDRESS, BATCH_SETTLEMENT_DOMAIN } from '@x402/evm';
import { computeChannelId } from '@x402/evm/batch-settlement/client';
import { domainSeparator, type Hex, keccak256 } from 'viem';
import { lower } from '../../../terms.ts';
import type { Address } from '../../../types.ts';
import { amountDigest, signerOfDigest } from '../../channels/signature.ts';
import type { BatchPayload } from '../credential.ts';

export type ChannelConfig = BatchPayload['channelConfig'];

const TYPE_HASH = keccak256(Buffer.from('Voucher(bytes32 channelId,uint128 maxClaimableAmount)'));

/** Channels whose ids are remembered: every call brings the same configuration. */
const REMEMBERED = 1_000;

/** viem refuses addresses in mixed case that are not a checksum. */
export function inLowerCase({ payer, payerAuthorizer, receiver, receiverAuthorizer, token, ...rest }: ChannelConfig) {
  return {
    payer: lower(payer),
    payerAuthorizer: lower(payerAuthorizer),
    receiver: lower(receiver),
    receiverAuthorizer: lower(receiverAuthorizer),
    token: lower(token),
    withdrawDelay: rest.withdrawDelay,
    salt: rest.salt as Hex,
  };
}

export class BatchVouchers {
  readonly #signedFor: number;
  readonly #domain: Hex;
  readonly #ids = new Map<string, string>();

  /** @param signedFor id of the chain that payers sign for */
  constructor(signedFor: number) {
    this.#signedFor = signedFor;
    this.#domain = domainSeparator({
      domain: {
        ...BATCH_SETTLEMENT_DOMAIN,
        chainId: signedFor,
        verifyingContract: BATCH_SETTLEMENT_ADDRESS as Hex,
      },
    });
  }

  /** In lower case. */
  channelId(config: ChannelConfig): string {
    const { payer, payerAuthorizer, receiver, receiverAuthorizer, token, withdrawDelay, salt } = config;
    const key = [payer, payerAuthorizer, receiver, receiverAuthorizer, token, withdrawDelay, salt].join(' ');
    const known = this.#ids.get(key);
    if (known !== undefined) return known;
    const id = computeChannelId(inLowerCase(config), this.#signedFor).toLowerCase();
    const [oldest] = this.#ids.size < REMEMBERED ? [] : this.#ids.keys();
    if (oldest !== undefined) this.#ids.delete(oldest);
    this.#ids.set(key, id);
    return id;
  }

  isSignedBy({ channelId, maxClaimableAmount, signature }: BatchPayload['voucher'], signer: string): boolean {
    const digest = amountDigest(this.#domain, TYPE_HASH, channelId, BigInt(maxClaimableAmount));
    return signerOfDigest(digest, signature) === (lower(signer) as Address);
  }
}
