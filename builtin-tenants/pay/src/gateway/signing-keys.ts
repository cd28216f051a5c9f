/**
 * The Ed25519 keys that sign what the gateway forwards. They rotate with overlap: a key is in the directory an hour
 * before it signs and an hour after it signed last, so that no origin meets a key it could not know. Real time.
 */

import { base64url, bytesOf, fromBase64url, sha256Base64 } from '../accounts/tokens.ts';
import type { Database } from '../environment.ts';

const HOUR_MS = 3_600_000;
const SIGNS_MS = 7 * 24 * HOUR_MS;
/** In the directory before its first and after its last signature. */
const MARGIN_MS = HOUR_MS;
/** The next key is made this long before the present one ends: more than the margin, with room for missed runs. */
const MAKE_BEFORE_MS = 6 * HOUR_MS;

/** What WebCrypto calls a CryptoKey; Node's types have it as a value only. */
type CryptoKey = Awaited<ReturnType<typeof crypto.subtle.importKey>>;

export interface SigningKey {
  kid: string;
  key: CryptoKey;
}

interface KeyRow {
  kid: string;
  publicX: string;
  sealedPrivate: string;
  signsFrom: number;
  signsUntil: number;
}

export class SigningKeys {
  readonly #db: Database;
  readonly #secret: string;
  #present: { row: KeyRow; key: CryptoKey } | undefined;

  constructor(db: Database, secret: string) {
    this.#db = db;
    this.#secret = secret;
  }

  /** The key that signs now; made if there is none. */
  async present(): Promise<SigningKey> {
    const now = Date.now();
    const known = this.#present;
    if (known && known.row.signsFrom <= now && now < known.row.signsUntil)
      return { kid: known.row.kid, key: known.key };
    let row = await this.#signing(now);
    if (!row) {
      await this.#make(now);
      row = await this.#signing(now);
    }
    if (!row) throw new Error('no signing key');
    const key = await crypto.subtle.importKey('pkcs8', await this.#unseal(row), 'Ed25519', false, ['sign']);
    this.#present = { row, key };
    return { kid: row.kid, key };
  }

  /** Makes the next key in time, and removes those nobody needs. Call often; it does nothing most of the time. */
  async rotate(now = Date.now()): Promise<void> {
    // A key that is to sign later than that was made while the clock was ahead: no key waits for its time.
    const last = await this.#db
      .prepare(`SELECT max(signs_until) AS until FROM signing_keys WHERE signs_from <= ?`)
      .bind(now + MAKE_BEFORE_MS)
      .first<{ until: number | null }>();
    const until = last?.until ?? 0;
    if (until - now < MAKE_BEFORE_MS) await this.#make(Math.max(now, until));
    await this.#db.prepare('DELETE FROM signing_keys WHERE signs_until + ? < ?').bind(MARGIN_MS, now).run();
  }

  /** JWKS of every key that has signed lately, signs now, or soon will. */
  async directory(now = Date.now()): Promise<{ keys: Record<string, string | number>[] }> {
    if (!(await this.#signing(now))) await this.present();
    const { results } = await this.#db
      .prepare(
        `SELECT kid, public_x AS publicX, signs_from AS signsFrom, signs_until AS signsUntil FROM signing_keys
         WHERE signs_from - ?1 <= ?2 AND signs_until + ?1 >= ?2 ORDER BY signs_from`,
      )
      .bind(MAKE_BEFORE_MS, now)
      .all<KeyRow>();
    const seconds = (ms: number) => Math.floor(ms / 1000);
    return {
      keys: results.map(({ kid, publicX, signsFrom, signsUntil }) => ({
        kty: 'OKP',
        crv: 'Ed25519',
        kid,
        x: publicX,
        use: 'sig',
        nbf: seconds(signsFrom),
        exp: seconds(signsUntil + MARGIN_MS),
      })),
    };
  }

  async #signing(now: number): Promise<KeyRow | undefined> {
    const row = await this.#db
      .prepare(
        `SELECT kid, public_x AS publicX, sealed_private AS sealedPrivate, signs_from AS signsFrom, signs_until AS signsUntil
         FROM signing_keys WHERE signs_from <= ?1 AND signs_until > ?1 ORDER BY signs_from LIMIT 1`,
      )
      .bind(now)
      .first<KeyRow>();
    return row ?? undefined;
  }

  async #make(from: number): Promise<void> {
    const pair = (await crypto.subtle.generateKey('Ed25519', true, ['sign', 'verify'])) as {
      publicKey: CryptoKey;
      privateKey: CryptoKey;
    };
    const x = base64url(new Uint8Array(await crypto.subtle.exportKey('raw', pair.publicKey)));
    // RFC 7638: the thumbprint of the key's required members in this very order.
    const thumbprint = await sha256Base64(`{"crv":"Ed25519","kty":"OKP","x":"${x}"}`);
    const kid = thumbprint.replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
    const sealed = await this.#seal(new Uint8Array(await crypto.subtle.exportKey('pkcs8', pair.privateKey)), kid);
    // Of two isolates that make one at the same moment only the first does.
    await this.#db
      .prepare(
        `INSERT INTO signing_keys (kid, public_x, sealed_private, signs_from, signs_until)
         SELECT ?1, ?2, ?3, ?4, ?5 WHERE NOT EXISTS (SELECT 1 FROM signing_keys WHERE signs_until > ?4 AND signs_from <= ?6)`,
      )
      .bind(kid, x, sealed, from, from + SIGNS_MS, from + MAKE_BEFORE_MS)
      .run();
  }

  async #seal(bytes: Uint8Array<ArrayBuffer>, kid: string): Promise<string> {
    const iv = crypto.getRandomValues(new Uint8Array(12));
    const parameters = { name: 'AES-GCM', iv, additionalData: bytesOf(kid) };
    const sealed = new Uint8Array(await crypto.subtle.encrypt(parameters, await this.#wrappingKey(), bytes));
    return `${base64url(iv)}.${base64url(sealed)}`;
  }

  async #unseal({ sealedPrivate, kid }: KeyRow): Promise<ArrayBuffer> {
    const [iv = '', sealed = ''] = sealedPrivate.split('.');
    const parameters = { name: 'AES-GCM', iv: fromBase64url(iv), additionalData: bytesOf(kid) };
    return crypto.subtle.decrypt(parameters, await this.#wrappingKey(), fromBase64url(sealed));
  }

  async #wrappingKey(): Promise<CryptoKey> {
    const raw = await crypto.subtle.digest('SHA-256', bytesOf(`pay signing keys\n${this.#secret}`));
    return crypto.subtle.importKey('raw', raw, 'AES-GCM', false, ['encrypt', 'decrypt']);
  }
}
