/**
 * Who signed, recovered by libsecp256k1 (as WebAssembly) wherever viem, ox, mppx and x402 ask for it. They all call one
 * method of @noble/curves, which takes 2 ms, up to three times a payment; this takes an eighth of it. What the library
 * does not recover is left to that method: whether a signature is good, and what is wrong with it, stays its word.
 */
import { secp256k1 } from '@noble/curves/secp256k1';
import { recover } from 'tiny-secp256k1';

const { ProjectivePoint, Signature } = secp256k1;
const HASH_BYTES = 32;

type Signed = InstanceType<typeof Signature>;

const usual = Signature.prototype.recoverPublicKey;

/** From here on, in this process. */
export function recoverQuickly(): void {
  Signature.prototype.recoverPublicKey = function (this: Signed, hash: Uint8Array | string) {
    const key = recovered(this, typeof hash === 'string' ? Buffer.from(hash, 'hex') : hash);
    return key ? ProjectivePoint.fromHex(key) : usual.call(this, hash);
  };
}

/** @returns undefined for what is not recovered here */
function recovered(signature: Signed, hash: Uint8Array): Uint8Array | undefined {
  const { recovery } = signature;
  if ((recovery !== 0 && recovery !== 1) || hash.length !== HASH_BYTES) return undefined;
  try {
    return recover(hash, signature.toCompactRawBytes(), recovery, false) ?? undefined;
  } catch {
    return undefined;
  }
}
