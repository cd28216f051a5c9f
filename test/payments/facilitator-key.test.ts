/** What the operator's key becomes in requests to a facilitator: tokens as Coinbase and PayAI check them. */
import { createPublicKey, generateKeyPairSync, type KeyObject, verify } from 'node:crypto';
import { expect, test } from 'vitest';
import { authorizer } from '../../host/payments/methods/x402/facilitator-key.ts';

const url = new URL('https://api.cdp.coinbase.com/platform/v2/x402/verify');
const settings = { key: '', keyId: '', keyHeader: '' };

const ed25519 = generateKeyPairSync('ed25519').privateKey;
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey;
const { d = '', x = '' } = ed25519.export({ format: 'jwk' });
const seedAndPublic = Buffer.concat([d, x].map((part) => Buffer.from(part, 'base64url'))).toString('base64');
const pkcs8 = ed25519.export({ format: 'der', type: 'pkcs8' }).toString('base64');
const k256 = generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).privateKey.export({ format: 'pem', type: 'sec1' });
const pem = ec.export({ format: 'pem', type: 'sec1' }).toString();

function opened(headers: Record<string, string>, key: KeyObject) {
  const [header = '', claims = '', signature = ''] = headers.authorization?.replace('Bearer ', '').split('.') ?? [];
  const isEc = key.asymmetricKeyType === 'ec';
  const isSigned = verify(
    isEc ? 'sha256' : null,
    Buffer.from(`${header}.${claims}`),
    { key: createPublicKey(key), dsaEncoding: 'ieee-p1363' },
    Buffer.from(signature, 'base64url'),
  );
  const [head, said] = [header, claims].map((part) => JSON.parse(Buffer.from(part, 'base64url').toString()));
  return { isSigned, head, said };
}

test('a key without an id is sent as it is, in the header that is named', () => {
  expect(authorizer(settings)('POST', url)).toEqual({});
  expect(authorizer({ ...settings, key: 'k' })('POST', url)).toEqual({ authorization: 'Bearer k' });
  expect(authorizer({ ...settings, key: 'k', keyHeader: 'x-api-key' })('GET', url)).toEqual({ 'x-api-key': 'k' });
});

test.each([
  ['Ed25519', seedAndPublic, ed25519, 'EdDSA'],
  ['EC', pem, ec, 'ES256'],
  ['EC on one line, as variables hold it', pem.replaceAll('\n', '\\n'), ec, 'ES256'],
])('Coinbase: a token for this request alone, signed by %s', (_, key, signer, alg) => {
  const authorize = authorizer({ ...settings, key, keyId: 'organizations/1/apiKeys/2' });
  const { isSigned, head, said } = opened(authorize('POST', url), signer);
  expect(isSigned).toBe(true);
  expect(head).toEqual({ alg, typ: 'JWT', kid: 'organizations/1/apiKeys/2', nonce: expect.any(String) });
  expect(said).toMatchObject({
    sub: 'organizations/1/apiKeys/2',
    iss: 'cdp',
    aud: ['cdp_service'],
    uris: ['POST api.cdp.coinbase.com/platform/v2/x402/verify'],
  });
  expect(said.exp - said.iat).toBe(120);
  expect(authorize('POST', url)).not.toEqual(authorize('POST', url));
});

test.each([pkcs8, `payai_sk_${pkcs8}`])('PayAI: a token of the merchant', (key) => {
  const { isSigned, head, said } = opened(authorizer({ ...settings, key, keyId: 'id-1' })('POST', url), ed25519);
  expect([isSigned, head]).toEqual([true, { alg: 'EdDSA', typ: 'JWT', kid: 'id-1' }]);
  expect(said).toMatchObject({ sub: 'id-1', iss: 'payai-merchant', jti: expect.any(String) });
});

test('a key that no header can carry is refused at the start: fetch() would quote it', () => {
  expect(authorizer({ ...settings, key: 'k\n' })('GET', url)).toEqual({ authorization: 'Bearer k' });
  expect(() => authorizer({ ...settings, key: 'se\ncret' })).toThrow(
    expect.objectContaining({ code: 'invalid_config', message: expect.not.stringContaining('cret') }),
  );
});

test.each(['word', '-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----', k256.toString()])(
  'a key that cannot sign is refused at the start, and not quoted',
  (key) => {
    expect(() => authorizer({ ...settings, key, keyId: 'id-1' })).toThrow(
      expect.objectContaining({ code: 'invalid_config', message: expect.not.stringContaining(key) }),
    );
  },
);
