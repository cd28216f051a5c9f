/** Requests as the pay platform's gateway signs them, with keys of the test. */
import { createHash, randomUUID } from 'node:crypto';
import { createSignature, webcrypto } from 'http-message-sig';

type CryptoKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

export interface SigningPair {
  kid: string;
  privateKey: CryptoKey;
  jwk: { kty: string; crv: string; x: string; kid: string; use: string };
}

export const COMPONENTS = [
  '@method',
  '@target-uri',
  'content-digest',
  'x-pay-account',
  'x-pay-request-id',
  'x-pay-usage',
];

export interface Parts {
  key: SigningPair;
  /** Public origin of the host. */
  appUrl: string;
  method?: string;
  /** Below `/deals`. */
  path?: string;
  body?: string;
  /** Seconds that the signer's clock is off. */
  skew?: number;
  life?: number;
  tag?: string;
  components?: string[];
  nonce?: string;
  account?: string;
  requestId?: string;
  usage?: string;
}

export interface SignedRequest {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: string;
}

export async function newSigningPair(kid: string): Promise<SigningPair> {
  const pair = (await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify'])) as {
    publicKey: CryptoKey;
    privateKey: CryptoKey;
  };
  const { x = '' } = await crypto.subtle.exportKey('jwk', pair.publicKey);
  return { kid, privateKey: pair.privateKey, jwk: { kty: 'OKP', crv: 'Ed25519', x, kid, use: 'sig' } };
}

export async function signRequest(parts: Parts): Promise<SignedRequest> {
  const { key, appUrl, method = 'POST', path = '/v1/watches?a=1', body = '{"a":1}', skew = 0 } = parts;
  const headers: Record<string, string> = {
    'content-digest': digestOf(body),
    'x-pay-account': parts.account ?? 'acc_1',
    'x-pay-request-id': parts.requestId ?? 'req_1',
    'x-pay-usage': parts.usage ?? '[{"meterSlug":"deal_query","quantity":1}]',
  };
  const created = Math.floor(Date.now() / 1_000) + skew;
  const fields = await createSignature(
    {
      kind: 'request',
      method,
      targetUri: `${appUrl}/deals${path}`,
      fields: Object.entries(headers).map(([name, value]) => ({ name, value })),
    },
    {
      label: 'pay',
      components: parts.components ?? COMPONENTS,
      parameters: {
        created,
        expires: created + (parts.life ?? 60),
        nonce: parts.nonce ?? randomUUID(),
        keyid: key.kid,
        alg: 'ed25519',
        tag: parts.tag ?? 'pay-gateway',
      },
      signer: webcrypto.signer(key.privateKey),
    },
  );
  for (const [name, value] of Object.entries(fields as unknown as Record<string, string>)) {
    if (/^signature-?input$/i.test(name)) headers['signature-input'] = value;
    else if (/^signature$/i.test(name)) headers.signature = value;
  }
  return { method, path, headers, body };
}

/** RFC 9530. */
export function digestOf(body: string): string {
  return `sha-256=:${createHash('sha256').update(body).digest('base64')}:`;
}
