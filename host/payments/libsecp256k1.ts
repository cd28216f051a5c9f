/**
 * Who signed, recovered by libsecp256k1 (as WebAssembly) wherever viem, ox, mppx and x402 ask for it. They all call one
 * method of @noble/curves, which takes 2 ms, up to three times a payment; this takes an eighth of it. What the library
 * does not recover is left to that method: whether a signature is good, and what is wrong with it, stays its word.
 */
import { secp256k1 } from '@noble/curves/secp256k1';
import { recover } from 'tiny-secp256k1';

const { ProjectivePoint, Signature } = secp256k1;
const HASH_BYTES = 32;
/** Who was recovered last: one payment's signature is asked for by each library that looks at it. */
const REMEMBERED = 64;

type Point = InstanceType<typeof ProjectivePoint>;
type Signed = InstanceType<typeof Signature>;

const usual = Signature.prototype.recoverPublicKey;

/** From here on, in this process. */
export function recoverQuickly(): void {
  Signature.prototype.recoverPublicKey = function (this: Signed, hash: Uint8Array | string) {
    return recovered(this, typeof hash === 'string' ? Buffer.from(hash, 'hex') : hash) ?? usual.call(this, hash);
  };
}

const known = new Map<string, Point>();

/** @returns undefined for what is not recovered here */
function recovered(signature: Signed, hash: Uint8Array): Point | undefined {
  const { recovery } = signature;
  if ((recovery !== 0 && recovery !== 1) || hash.length !== HASH_BYTES) return undefined;
  const compact = Buffer.from(signature.toCompactRawBytes());
  const name = `${compact.toString('latin1')}${Buffer.from(hash).toString('latin1')}${recovery}`;
  const before = known.get(name);
  if (before) return before;
  try {
    const key = recover(hash, compact, recovery, false);
    if (!key) return undefined;
    const point = ProjectivePoint.fromHex(key);
    const [oldest] = known.size < REMEMBERED ? [] : known.keys();
    if (oldest !== undefined) known.delete(oldest);
    known.set(name, point);
    return point;
  } catch {
    return undefined;
  }
}
