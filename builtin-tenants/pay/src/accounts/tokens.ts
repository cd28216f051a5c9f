/** Random names and secrets, and the digests under which secrets are stored. */

const ALPHABET = 'abcdefghijklmnopqrstuvwxyz234567';
/** RFC 8628, 6.1: no vowels, so that no words appear; no letters that look alike. */
const CONSONANTS = 'BCDFGHJKLMNPQRSTVWXZ';

/** 100 random bits after a prefix that says what it names: `acc_k3…`. */
export function newId(prefix: string): string {
  const bytes = crypto.getRandomValues(new Uint8Array(20));
  return `${prefix}_${Array.from(bytes, (byte) => ALPHABET[byte & 31]).join('')}`;
}

/** 256 random bits after a prefix that says what it opens. */
export function newSecret(prefix: string): string {
  return `${prefix}_${base64url(crypto.getRandomValues(new Uint8Array(32)))}`;
}

/** Eight consonants as `BCDF-GHJK`: 34 bits, guarded by a ten-minute life and a limit of attempts. */
export function newUserCode(): string {
  let code = '';
  while (code.length < 8) {
    const [byte = 255] = crypto.getRandomValues(new Uint8Array(1));
    // 240 is the largest multiple of 20 in a byte: each letter is equally likely.
    if (byte < 240) code += CONSONANTS[byte % 20];
  }
  return `${code.slice(0, 4)}-${code.slice(4)}`;
}

/** What a person typed, as the code is stored: case, spaces and dashes do not matter. */
export function normalizeUserCode(text: string): string {
  const letters = text.toUpperCase().replace(/[^A-Z]/g, '');
  return `${letters.slice(0, 4)}-${letters.slice(4, 8)}`;
}

/** Secrets are random and long, so a plain digest keeps them as safe as a slow one would. */
export async function sha256Hex(text: string | Uint8Array): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytesOf(text))).toHex();
}

export async function sha256Base64(text: string | Uint8Array): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytesOf(text))).toBase64();
}

/** What WebCrypto calls a CryptoKey; Node's types have it as a value only. */
export type MacKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

/** HMAC-SHA-256 under a key derived for one purpose, base64url. */
export async function mac(secret: string, purpose: string, text: string): Promise<string> {
  return macUnder(await macKey(secret, purpose), text);
}

export function macKey(secret: string, purpose: string): Promise<MacKey> {
  return crypto.subtle.importKey('raw', bytesOf(`${purpose}\n${secret}`), { name: 'HMAC', hash: 'SHA-256' }, false, [
    'sign',
  ]);
}

export async function macUnder(key: MacKey, text: string): Promise<string> {
  return base64url(new Uint8Array(await crypto.subtle.sign('HMAC', key, bytesOf(text))));
}

/** Takes as long for a wrong value as for the right one. */
export function sameText(a: string, b: string): boolean {
  if (a.length !== b.length) return false;
  let difference = 0;
  for (let index = 0; index < a.length; index++) difference |= a.charCodeAt(index) ^ b.charCodeAt(index);
  return difference === 0;
}

export function base64url(bytes: Uint8Array): string {
  return bytes.toBase64({ alphabet: 'base64url', omitPadding: true });
}

/** The letters of plain base64 are taken too. @throws SyntaxError for text that is neither */
export function fromBase64url(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.fromBase64(text.replaceAll('+', '-').replaceAll('/', '_'), { alphabet: 'base64url' });
}

export function bytesOf(text: string | Uint8Array): Uint8Array<ArrayBuffer> {
  return typeof text === 'string' ? new TextEncoder().encode(text) : new Uint8Array(text);
}
