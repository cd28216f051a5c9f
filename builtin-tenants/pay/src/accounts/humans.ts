/** People: sign-up with e-mail address and password, and the sessions of their browsers. */
import { Buffer } from 'node:buffer';
import { scrypt, timingSafeEqual } from 'node:crypto';
import type { Database } from '../environment.ts';
import { Problem } from '../problem.ts';
import { limitCaller } from '../rate-limit.ts';
import { canonicalEmail, emailToFind } from './email.ts';
import { newId, newSecret, sha256Hex } from './tokens.ts';

const SESSION_MS = 30 * 24 * 3_600_000;
const HOUR_MS = 3_600_000;
const SIGN_UPS_PER_HOUR = 5;
const SIGN_INS_PER_HOUR = 30;
const MIN_PASSWORD = 10;
const MAX_PASSWORD = 200;
/** RFC 7914 parameters: 16 MB and about 60 ms a try. */
const SCRYPT = { N: 16_384, r: 8, p: 1 };

export interface Human {
  id: string;
  email: string;
}

export class Humans {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /** @throws Problem invalid_field, conflict for an address that is taken, rate_limited */
  async signUp(emailText: string, password: string, clientIp: string | undefined): Promise<Human> {
    const email = canonicalEmail(emailText);
    requireLength(password);
    await limitCaller(this.#db, 'sign-up', clientIp, SIGN_UPS_PER_HOUR, HOUR_MS);
    const id = newId('hum');
    const { salt, hash } = await this.derivePassword(password);
    const { meta } = await this.#db
      .prepare(
        `INSERT INTO humans (id, email, password_salt, password_hash, created_at) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (email) DO NOTHING`,
      )
      .bind(id, email, salt, hash, Date.now())
      .run();
    if (meta.changes !== 1) throw new Problem('conflict', 'This address has an account already; sign in instead.');
    return { id, email };
  }

  /** What is kept of a new password. @throws Problem invalid_field */
  async derivePassword(password: string): Promise<{ salt: string; hash: string }> {
    requireLength(password);
    const salt = crypto.getRandomValues(new Uint8Array(16));
    const hash = (await derive(password, salt)).toString('base64url');
    return { salt: Buffer.from(salt).toString('base64url'), hash };
  }

  /**
   * Limits the caller, not the account: a limit of wrong passwords by account would let strangers lock a person out.
   * @throws Problem unauthorized (the same for an unknown address and a wrong password), rate_limited
   */
  async signIn(emailText: string, password: string, clientIp: string | undefined): Promise<Human> {
    await limitCaller(this.#db, 'sign-in', clientIp, SIGN_INS_PER_HOUR, HOUR_MS);
    const row = await this.#db
      .prepare('SELECT id, email, password_salt AS salt, password_hash AS hash FROM humans WHERE email = ?')
      .bind(emailToFind(emailText))
      .first<Human & { salt: string; hash: string }>();
    // An unknown address takes as long as a known one.
    const derived = await derive(
      password.slice(0, MAX_PASSWORD),
      row ? Buffer.from(row.salt, 'base64url') : new Uint8Array(16),
    );
    if (!row || !timingSafeEqual(derived, Buffer.from(row.hash, 'base64url'))) {
      throw new Problem('unauthorized', 'The address or the password is wrong.');
    }
    return { id: row.id, email: row.email };
  }

  /** Answers the session's secret, for a cookie. */
  async startSession(humanId: string): Promise<{ secret: string; maxAgeSeconds: number }> {
    const secret = newSecret('tps');
    const now = Date.now();
    await this.#db
      .prepare('INSERT INTO sessions (hash, human_id, created_at, expires_at) VALUES (?, ?, ?, ?)')
      .bind(await sha256Hex(secret), humanId, now, now + SESSION_MS)
      .run();
    return { secret, maxAgeSeconds: SESSION_MS / 1000 };
  }

  async bySession(secret: string): Promise<Human | undefined> {
    const row = await this.#db
      .prepare(
        `SELECT h.id, h.email FROM sessions s JOIN humans h ON h.id = s.human_id WHERE s.hash = ? AND s.expires_at > ?`,
      )
      .bind(await sha256Hex(secret), Date.now())
      .first<Human>();
    return row ?? undefined;
  }

  async endSession(secret: string): Promise<void> {
    await this.#db
      .prepare('DELETE FROM sessions WHERE hash = ?')
      .bind(await sha256Hex(secret))
      .run();
  }

  async removeOld(): Promise<void> {
    const now = Date.now();
    await this.#db.batch([
      this.#db.prepare('DELETE FROM sessions WHERE expires_at < ?').bind(now),
      this.#db.prepare('DELETE FROM email_codes WHERE expires_at < ?').bind(now),
      this.#db.prepare('DELETE FROM password_resets WHERE expires_at < ?').bind(now),
      this.#db.prepare('DELETE FROM rate_limits WHERE window_ends < ?').bind(now),
    ]);
  }
}

/** @throws Problem invalid_field */
function requireLength({ length }: string): void {
  if (length >= MIN_PASSWORD && length <= MAX_PASSWORD) return;
  throw new Problem('invalid_field', `The password needs ${MIN_PASSWORD} to ${MAX_PASSWORD} characters.`);
}

function derive(password: string, salt: Uint8Array): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    scrypt(password.normalize('NFKC'), salt, 32, SCRYPT, (error, key) => {
      if (error) reject(error);
      else resolve(key);
    });
  });
}
