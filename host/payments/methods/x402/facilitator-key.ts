/**
 * What a request to a facilitator carries so that it is the operator's: a key as it is, or a token that a key signs for
 * this request alone. Coinbase: https://docs.cdp.coinbase.com/api-reference/v2/authentication
 * PayAI: https://docs.payai.network/x402/facilitators/authentication
 */
import { createPrivateKey, type KeyObject, randomBytes, sign } from 'node:crypto';
import type { Config } from '../../../shared/config.ts';
import { Problem } from '../../../shared/problem.ts';

export type FacilitatorSettings = Config['payments']['x402']['facilitator'];

/** How long a token is good, seconds. */
const TOKEN_SECONDS = 120;
const PAYAI_PREFIX = 'payai_sk_';

/** @returns headers of one request */
export type Authorize = (method: 'GET' | 'POST', url: URL) => Record<string, string>;

/** @throws Problem `invalid_config` for a key that cannot sign where one has to; never quotes it */
export function authorizer(settings: Omit<FacilitatorSettings, 'url' | 'timeoutMs'>): Authorize {
  const { keyId, keyHeader } = settings;
  const key = settings.key.trim();
  if (key === '') return () => ({});
  // fetch() would quote it in its error.
  if (keyId === '' && !/^[\x20-\x7e]+$/.test(key)) throw notUsable('holds what no header can carry');
  if (keyId === '') return () => (keyHeader === '' ? { authorization: `Bearer ${key}` } : { [keyHeader]: key });
  const signer = signerOf(key);
  return (method, url) => ({ authorization: `Bearer ${token(signer, keyId, `${method} ${url.host}${url.pathname}`)}` });
}

interface Signer {
  issuer: 'cdp' | 'payai-merchant';
  key: KeyObject;
}

function signerOf(text: string): Signer {
  try {
    const signer = readSigner(text);
    const { asymmetricKeyType, asymmetricKeyDetails } = signer.key;
    if (asymmetricKeyType === 'ed25519' || asymmetricKeyDetails?.namedCurve === 'prime256v1') return signer;
  } catch {
    // The cause could quote the key.
  }
  throw notUsable(
    'is no private key that signs tokens: take the secret of the API key as Coinbase or PayAI shows it, or leave keyId out for a key that is sent as it is',
  );
}

function notUsable(why: string): Problem {
  return new Problem('invalid_config', `payments.x402.facilitator.key ${why}.`);
}

/** Coinbase: PEM of an EC key, or seed and public key of an Ed25519 key. PayAI: PKCS#8. */
function readSigner(text: string): Signer {
  if (text.startsWith('-----BEGIN')) return { issuer: 'cdp', key: createPrivateKey(text.replaceAll('\\n', '\n')) };
  const bytes = Buffer.from(text.replace(PAYAI_PREFIX, ''), 'base64');
  if (bytes.length !== 64)
    return { issuer: 'payai-merchant', key: createPrivateKey({ key: bytes, format: 'der', type: 'pkcs8' }) };
  const [d, x] = [bytes.subarray(0, 32).toString('base64url'), bytes.subarray(32).toString('base64url')];
  return { issuer: 'cdp', key: createPrivateKey({ key: { kty: 'OKP', crv: 'Ed25519', d, x }, format: 'jwk' }) };
}

function token({ issuer, key }: Signer, keyId: string, uri: string): string {
  const isEc = key.asymmetricKeyType === 'ec';
  const now = Math.floor(Date.now() / 1000);
  const [jti, nonce] = [randomBytes(16).toString('hex'), randomBytes(16).toString('hex')];
  const header = { alg: isEc ? 'ES256' : 'EdDSA', typ: 'JWT', kid: keyId, ...(issuer === 'cdp' ? { nonce } : {}) };
  const claims = {
    sub: keyId,
    iss: issuer,
    iat: now,
    nbf: now,
    exp: now + TOKEN_SECONDS,
    ...(issuer === 'cdp' ? { aud: ['cdp_service'], uris: [uri] } : { jti }),
  };
  const text = [header, claims].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
  const signature = sign(isEc ? 'sha256' : null, Buffer.from(text), { key, dsaEncoding: 'ieee-p1363' });
  return `${text}.${signature.toString('base64url')}`;
}
