/**
 * Who signed, and whose a private key is, by libsecp256k1 (as WebAssembly) wherever viem, ox, mppx and x402 ask for it.
 * They all call one method of @noble/curves: for who signed it takes 2 ms, up to three times a payment, and this an eighth
 * of it; a start asks for the addresses of twelve keys. What the library does not answer is left to that method: whether
 * something is good, and what is wrong with it, stays its word.
 */
import { secp256k1 } from '@noble/curves/secp256k1';
import { pointFromScalar, recover } from 'tiny-secp256k1';

const { ProjectivePoint, Signature } = secp256k1;
const HASH_BYTES = 32;
const PRIVATE_KEY = /^[0-9a-f]{64}$/i;
/** Who was recovered last: one payment's signature is asked for by each library that looks at it. */
const REMEMBERED = 64;

type Point = InstanceType<typeof ProjectivePoint>;
type Signed = InstanceType<typeof Signature>;

const usualRecovery = Signature.prototype.recoverPublicKey;
const usualKey = ProjectivePoint.fromPrivateKey;

/** From here on, in this process. */
export function useLibsecp256k1(): void {
  ProjectivePoint.fromPrivateKey = (key) => pointOf(key) ?? usualKey.call(ProjectivePoint, key);
  Signature.prototype.recoverPublicKey = function (this: Signed, hash: Uint8Array | string) {
    return (
      recovered(this, typeof hash === 'string' ? Buffer.from(hash, 'hex') : hash) ?? usualRecovery.call(this, hash)
    );
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

/** @param key as hexadecimal digits, which is how viem has it. @returns undefined for anything else */
function pointOf(key: unknown): Point | undefined {
  if (typeof key !== 'string' || !PRIVATE_KEY.test(key)) return undefined;
  try {
    const point = pointFromScalar(Buffer.from(key, 'hex'), false);
    return point ? ProjectivePoint.fromHex(point) : undefined;
  } catch {
    return undefined;
  }
}
