/**
 * Who signed a voucher. Every call of a session needs this, so ordinary signatures are recovered by libsecp256k1 (as
 * WebAssembly), which takes a fifth of the time of the JavaScript that mppx uses for all kinds.
 */
import { Session } from 'mppx/tempo';
import { recover } from 'tiny-secp256k1';
import { domainSeparator, type Hex, hexToBytes, keccak256, type Address as ViemAddress } from 'viem';
import type { Money } from '../../../../shared/money.ts';
import { lower } from '../../../terms.ts';
import type { Address } from '../../../types.ts';
import type { SessionNetwork } from './payload.ts';

const { Voucher } = Session.Precompile;

/** Characters of 65 bytes with their 0x. */
const PLAIN_LENGTH = 132;

/** r, s and v of an ECDSA signature in hexadecimal; v as every wallet writes it. */
const PLAIN = /^0x[0-9a-fA-F]{128}1[bcBC]$/;
/** Half of the order of secp256k1, without 0x. The escrow refuses a greater s (EIP-2), so such a voucher pays nothing. */
const HALF_ORDER = '7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0';

export function voucherSignedBy(
  { escrow, chainId, signatures }: Pick<SessionNetwork, 'escrow' | 'chainId' | 'signatures'>,
  voucher: { channelId: string; cumulative: Money; signature: string },
  signer: Address,
): boolean {
  const { channelId, cumulative, signature } = voucher;
  const message = { channelId: channelId as Hex, cumulativeAmount: cumulative as bigint };
  try {
    if (!PLAIN.test(signature)) {
      // A voucher that the escrow does not take is worth nothing, whoever signed it.
      if (signatures === 'ecdsa' || signature.length <= PLAIN_LENGTH) return false;
      return Voucher.verifyVoucher(escrow, chainId, { ...message, signature: signature as Hex }, signer);
    }
    if (signature.slice(66, 130).toLowerCase() > HALF_ORDER) return false;
    const digest = voucherDigest(escrow, chainId, message);
    const parity = Number.parseInt(signature.slice(-2), 16) - 27;
    const key = recover(digest, hexToBytes(signature.slice(0, -2) as Hex), parity as 0 | 1, false);
    return key !== null && addressOf(key) === signer;
  } catch {
    return false;
  }
}

const CHANNEL_ID = /^0x[0-9a-fA-F]{64}$/;
const TYPE_HASH = keccak256(Buffer.from('Voucher(bytes32 channelId,uint96 cumulativeAmount)'));
const domains = new Map<string, Hex>();

/**
 * EIP-712 of mppx's voucher, as viem's hashTypedData makes it, which goes through the types and the domain each time.
 * @throws RangeError for what is no voucher
 */
export function voucherDigest(
  escrow: string,
  chainId: number,
  { channelId, cumulativeAmount }: { channelId: Hex; cumulativeAmount: bigint },
): Uint8Array {
  if (!CHANNEL_ID.test(channelId) || cumulativeAmount < 0n || cumulativeAmount >> 96n !== 0n)
    throw new RangeError('no voucher');
  const amount = cumulativeAmount.toString(16).padStart(64, '0');
  const struct = keccak256(Buffer.from(`${TYPE_HASH.slice(2)}${channelId.slice(2)}${amount}`, 'hex'));
  return keccak256(Buffer.from(`1901${domainOf(escrow, chainId).slice(2)}${struct.slice(2)}`, 'hex'), 'bytes');
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

/** The last twenty bytes of the hash of an uncompressed key without its prefix. */
function addressOf(key: Uint8Array): Address {
  return lower(`0x${keccak256(key.subarray(1)).slice(-40)}`);
}
