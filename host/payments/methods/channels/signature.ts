/**
 * Who made an ordinary signature. Every call that a channel pays needs this, so it is recovered by libsecp256k1 (as
 * WebAssembly), which takes a fifth of the time of the JavaScript in viem.
 */
import { recover } from 'tiny-secp256k1';
import { type Hex, hexToBytes, keccak256 } from 'viem';
import { lower } from '../../terms.ts';
import type { Address } from '../../types.ts';

/** r, s and v of an ECDSA signature in hexadecimal; v as every wallet writes it. */
const PLAIN = /^0x[0-9a-fA-F]{128}1[bcBC]$/;
/** Half of the order of secp256k1, without 0x. Contracts refuse a greater s (EIP-2), so such a voucher pays nothing. */
const HALF_ORDER = '7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0';

/** Characters of 65 bytes with their 0x. */
export const PLAIN_LENGTH = 132;

export function isPlain(signature: string): boolean {
  return PLAIN.test(signature);
}

/** @returns undefined where nobody made it, or contracts would not take it */
export function signerOfDigest(digest: Uint8Array, signature: string): Address | undefined {
  if (!isPlain(signature) || signature.slice(66, 130).toLowerCase() > HALF_ORDER) return undefined;
  const parity = Number.parseInt(signature.slice(-2), 16) - 27;
  try {
    const key = recover(digest, hexToBytes(signature.slice(0, -2) as Hex), parity as 0 | 1, false);
    return key === null ? undefined : addressOf(key);
  } catch {
    return undefined;
  }
}

const CHANNEL_ID = /^0x[0-9a-fA-F]{64}$/;

/**
 * EIP-712 of a channel's id and an amount, as viem's hashTypedData makes it, which goes through the types and the domain
 * each time.
 * @param type hash of the type that holds both
 * @throws RangeError for what is no channel, or no amount
 */
export function amountDigest(domain: Hex, type: Hex, channel: string, amount: bigint): Uint8Array {
  if (!CHANNEL_ID.test(channel) || amount < 0n || amount >> 128n !== 0n) throw new RangeError('no voucher');
  const struct = keccak256(
    Buffer.from(`${type.slice(2)}${channel.slice(2)}${amount.toString(16).padStart(64, '0')}`, 'hex'),
  );
  return keccak256(Buffer.from(`1901${domain.slice(2)}${struct.slice(2)}`, 'hex'), 'bytes');
}

/** The last twenty bytes of the hash of an uncompressed key without its prefix. */
function addressOf(key: Uint8Array): Address {
  return lower(`0x${keccak256(key.subarray(1)).slice(-40)}`);
}
