/**
 * The device flow of RFC 8628: a program shows a code, a person types it in a browser and confirms. The same with
 * another purpose hands an anonymous account over to a person. Real time: these are minutes of waiting people.
 */

import type { Database } from '../environment.ts';
import { Problem } from '../problem.ts';
import type { Accounts } from './accounts.ts';
import { newSecret, newUserCode, normalizeUserCode, sha256Hex } from './tokens.ts';

export const CODE_LIFE_MS = 600_000;
const INTERVAL_MS = 5_000;
const SLOWER_BY_MS = 5_000;

export interface DeviceCode {
  deviceCode: string;
  userCode: string;
  expiresInSeconds: number;
  intervalSeconds: number;
}

/** What the person is asked to confirm. */
export interface PendingCode {
  userCode: string;
  client: string;
  purpose: 'login' | 'claim';
  claimedAccount: string | null;
}

/** RFC 8628, 3.5. */
export type TokenError = 'authorization_pending' | 'slow_down' | 'access_denied' | 'expired_token' | 'invalid_grant';

interface CodeRow {
  state: 'pending' | 'approved' | 'denied' | 'used';
  purpose: 'login' | 'claim';
  client: string;
  humanId: string | null;
  intervalMs: number;
  polledAt: number | null;
  expiresAt: number;
}

export class DeviceFlow {
  readonly #db: Database;
  readonly #accounts: Accounts;

  constructor(db: Database, accounts: Accounts) {
    this.#db = db;
    this.#accounts = accounts;
  }

  /** @param claimedAccount the anonymous account to hand over; undefined for a sign-in of the program */
  async begin(client: string, claimedAccount?: string): Promise<DeviceCode> {
    const deviceCode = newSecret('tpd');
    const now = Date.now();
    // Two codes that live at the same time are never equal; of 25 billion a second try is next to never needed.
    for (let attempt = 0; attempt < 5; attempt++) {
      const userCode = newUserCode();
      const { meta } = await this.#db
        .prepare(
          `INSERT INTO device_codes
           (hash, user_code, client, purpose, claimed_account, state, interval_ms, created_at, expires_at)
           VALUES (?, ?, ?, ?, ?, 'pending', ?, ?, ?) ON CONFLICT (user_code) DO NOTHING`,
        )
        .bind(
          await sha256Hex(deviceCode),
          userCode,
          client,
          claimedAccount === undefined ? 'login' : 'claim',
          claimedAccount ?? null,
          INTERVAL_MS,
          now,
          now + CODE_LIFE_MS,
        )
        .run();
      if (meta.changes === 1) {
        const intervalSeconds = INTERVAL_MS / 1000;
        return { deviceCode, userCode, expiresInSeconds: CODE_LIFE_MS / 1000, intervalSeconds };
      }
    }
    throw new Error('no free user code');
  }

  /** The device asks whether the person has confirmed. The credential is issued once. */
  async poll(deviceCode: string): Promise<{ accountId: string; credential: string } | { error: TokenError }> {
    const progress = await this.progress(await sha256Hex(deviceCode), 'login');
    if ('error' in progress) return progress;
    const account = await this.#accounts.ofHuman(progress.humanId);
    const { credential } = await this.#accounts.issueCredential(account.id, progress.client);
    return { accountId: account.id, credential };
  }

  /** Who has confirmed a code; told once. @param hash of the device's code */
  async progress(
    hash: string,
    purpose: CodeRow['purpose'],
  ): Promise<{ humanId: string; client: string } | { error: TokenError }> {
    const row = await this.#db
      .prepare(
        `SELECT state, purpose, client, human_id AS humanId, interval_ms AS intervalMs, polled_at AS polledAt,
         expires_at AS expiresAt FROM device_codes WHERE hash = ?`,
      )
      .bind(hash)
      .first<CodeRow>();
    const now = Date.now();
    if (!row || row.state === 'used' || row.purpose !== purpose) return { error: 'invalid_grant' };
    if (row.state === 'denied') return { error: 'access_denied' };
    if (row.expiresAt <= now) return { error: 'expired_token' };
    const tooSoon = row.polledAt !== null && now - row.polledAt < row.intervalMs;
    await this.#db
      .prepare('UPDATE device_codes SET polled_at = ?, interval_ms = interval_ms + ? WHERE hash = ?')
      .bind(now, tooSoon ? SLOWER_BY_MS : 0, hash)
      .run();
    if (tooSoon) return { error: 'slow_down' };
    if (row.state === 'pending') return { error: 'authorization_pending' };
    const { meta } = await this.#db
      .prepare("UPDATE device_codes SET state = 'used' WHERE hash = ? AND state = 'approved'")
      .bind(hash)
      .run();
    if (meta.changes !== 1 || row.humanId === null) return { error: 'invalid_grant' };
    return { humanId: row.humanId, client: row.client };
  }

  /** What a code that a person typed stands for; undefined when there is none, or it is over. */
  async pending(userCode: string): Promise<PendingCode | undefined> {
    const row = await this.#db
      .prepare(
        `SELECT user_code AS userCode, client, purpose, claimed_account AS claimedAccount FROM device_codes
         WHERE user_code = ? AND state = 'pending' AND expires_at > ?`,
      )
      .bind(normalizeUserCode(userCode), Date.now())
      .first<PendingCode>();
    return row ?? undefined;
  }

  /**
   * The person's decision, once.
   * @throws Problem conflict when the code is over or was decided, or the account has an owner already
   */
  async decide(userCode: string, humanId: string, allow: boolean): Promise<PendingCode> {
    const code = await this.pending(userCode);
    const over = new Problem('conflict', 'The code is no longer valid; ask the program for a new one.');
    if (!code) throw over;
    const { meta } = await this.#db
      .prepare("UPDATE device_codes SET state = ?, human_id = ? WHERE user_code = ? AND state = 'pending'")
      .bind(allow ? 'approved' : 'denied', humanId, code.userCode)
      .run();
    if (meta.changes !== 1) throw over;
    if (allow && code.purpose === 'claim' && code.claimedAccount !== null) {
      if (!(await this.#accounts.claim(code.claimedAccount, humanId))) {
        throw new Problem('conflict', 'This account has an owner already.');
      }
    }
    return code;
  }

  async removeOld(): Promise<void> {
    await this.#db
      .prepare('DELETE FROM device_codes WHERE expires_at < ?')
      .bind(Date.now() - CODE_LIFE_MS)
      .run();
  }
}
