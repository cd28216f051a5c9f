/** Who signed a voucher of a session. */
import { Session } from 'mppx/tempo';
import { domainSeparator, type Hex, keccak256, type Address as ViemAddress } from 'viem';
import type { Money } from '../../../../shared/money.ts';
import type { Address } from '../../../types.ts';
import { amountDigest, isPlain, PLAIN_LENGTH, signerOfDigest } from '../../channels/signature.ts';
import type { SessionNetwork } from './payload.ts';

const { Voucher } = Session.Precompile;

export function voucherSignedBy(
  { escrow, chainId, signatures }: Pick<SessionNetwork, 'escrow' | 'chainId' | 'signatures'>,
  voucher: { channelId: string; cumulative: Money; signature: string },
  signer: Address,
): boolean {
  const { channelId, cumulative, signature } = voucher;
  const message = { channelId: channelId as Hex, cumulativeAmount: cumulative as bigint };
  try {
    if (!isPlain(signature)) {
      // A voucher that the escrow does not take is worth nothing, whoever signed it.
      if (signatures === 'ecdsa' || signature.length <= PLAIN_LENGTH) return false;
      return Voucher.verifyVoucher(escrow, chainId, { ...message, signature: signature as Hex }, signer);
    }
    return signerOfDigest(voucherDigest(escrow, chainId, message), signature) === signer;
  } catch {
    return false;
  }
}

const TYPE_HASH = keccak256(Buffer.from('Voucher(bytes32 channelId,uint96 cumulativeAmount)'));
const domains = new Map<string, Hex>();

/** EIP-712 of mppx's voucher. @throws RangeError for what is no voucher */
export function voucherDigest(
  escrow: string,
  chainId: number,
  { channelId, cumulativeAmount }: { channelId: Hex; cumulativeAmount: bigint },
): Uint8Array {
  if (cumulativeAmount >> 96n !== 0n) throw new RangeError('no voucher');
  return amountDigest(domainOf(escrow, chainId), TYPE_HASH, channelId, cumulativeAmount);
}

/** There is one for each of the host's networks. */
function domainOf(escrow: string, chainId: number): Hex {
  const key = `${escrow} ${chainId}`;
  const known = domains.get(key);
  if (known !== undefined) return known;
  const hash = domainSeparator({ domain: Voucher.getVoucherDomain(escrow as ViemAddress, chainId) });
  domains.set(key, hash);
  return hash;
}
