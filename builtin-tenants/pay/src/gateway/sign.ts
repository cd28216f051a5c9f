/** Signs a forward so that its origin can tell it from a direct call: RFC 9421 over RFC 9530 digests. */
import { createSignature, webcrypto } from 'http-message-sig';
import { sha256Base64 } from '../accounts/tokens.ts';
import type { SigningKeys } from './signing-keys.ts';

/** What an origin must find covered, in this order. */
export const COMPONENTS = [
  '@method',
  '@target-uri',
  'content-digest',
  'x-pay-account',
  'x-pay-request-id',
  'x-pay-usage',
];
export const TAG = 'pay-gateway';
const LIFE_S = 60;

export interface Forward {
  method: string;
  url: string;
  /** End-to-end headers that go along unsigned. */
  headers: Headers;
  body: Uint8Array<ArrayBuffer>;
  /** Account, wallet, or `none`. */
  account: string;
  requestId: string;
  /** JSON of the paid usage, or `none`. */
  usage: string;
}

/** The headers of the forward, complete. */
export async function signedHeaders(forward: Forward, keys: SigningKeys): Promise<Headers> {
  const headers = new Headers(forward.headers);
  const signed = {
    'content-digest': `sha-256=:${await sha256Base64(forward.body)}:`,
    'x-pay-account': forward.account,
    'x-pay-request-id': forward.requestId,
    'x-pay-usage': forward.usage,
  };
  for (const [name, value] of Object.entries(signed)) headers.set(name, value);
  const { kid, key } = await keys.present();
  const created = Math.floor(Date.now() / 1000);
  const fields = await createSignature(
    {
      kind: 'request',
      method: forward.method,
      targetUri: forward.url,
      fields: Object.entries(signed).map(([name, value]) => ({ name, value })),
    },
    {
      label: 'pay',
      components: COMPONENTS,
      parameters: {
        created,
        expires: created + LIFE_S,
        nonce: crypto.randomUUID(),
        keyid: kid,
        alg: 'ed25519',
        tag: TAG,
      },
      signer: webcrypto.signer(key),
    },
  );
  headers.set('signature-input', fields.signatureInput);
  headers.set('signature', fields.signature);
  return headers;
}
