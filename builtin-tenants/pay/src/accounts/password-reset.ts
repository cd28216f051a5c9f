/** A new password for who has forgotten it: a link that is good once goes to the address of the account. */

import type { Database } from '../environment.ts';
import { Problem } from '../problem.ts';
import { limit, limitCaller } from '../rate-limit.ts';
import { emailToFind, mailboxOf } from './email.ts';
import type { Human, Humans } from './humans.ts';
import type { Mail } from './mail.ts';
import { newSecret, sha256Hex } from './tokens.ts';

const HOUR_MS = 3_600_000;
const LINK_LIFE_MS = HOUR_MS / 2;
const ASKS_PER_HOUR = 5;
const LINKS_PER_HOUR = 3;
const TRIES_PER_HOUR = 30;

export interface ResetLink {
  url: string;
  /** ms. */
  expiresAt: number;
}

export class PasswordReset {
  readonly #db: Database;
  readonly #humans: Humans;
  readonly #mail: Mail;
  readonly #pagesUrl: string;
  readonly #waitUntil: (work: Promise<unknown>) => void;

  constructor(db: Database, humans: Humans, mail: Mail, pagesUrl: string, waitUntil: (work: Promise<unknown>) => void) {
    this.#db = db;
    this.#humans = humans;
    this.#mail = mail;
    this.#pagesUrl = pagesUrl;
    this.#waitUntil = waitUntil;
  }

  get isOn(): boolean {
    return this.#mail.isOn;
  }

  /**
   * Sends a link where the address has an account. Nobody learns whether it has: not by the answer, nor by its time.
   * @throws Problem rate_limited for a caller who asks too often
   */
  async send(emailText: string, clientIp: string | undefined): Promise<void> {
    await limitCaller(this.#db, 'reset', clientIp, ASKS_PER_HOUR, HOUR_MS);
    this.#waitUntil(this.#send(emailText));
  }

  async #send(emailText: string): Promise<void> {
    const human = await this.#find(emailText);
    if (!human) return;
    await limit(this.#db, `reset:${mailboxOf(human.email)}`, LINKS_PER_HOUR, HOUR_MS);
    const { url } = await this.#link(human);
    await this.#mail.send({
      to: human.email,
      subject: `A new password for ${this.#mail.host}`,
      text: `Choose a new password here, within half an hour:\n${url}\n\nIf you did not ask for it, ignore this e-mail.\n`,
    });
  }

  /** For the operator of a host that sends no e-mails. @throws Problem not_found */
  async link(emailText: string): Promise<ResetLink> {
    const human = await this.#find(emailText);
    if (!human) throw new Problem('not_found', 'No account has this address.');
    return this.#link(human);
  }

  /** @throws Problem not_found for a link that was used or is too old, rate_limited */
  async check(token: string, clientIp: string | undefined): Promise<void> {
    await limitCaller(this.#db, 'reset-try', clientIp, TRIES_PER_HOUR, HOUR_MS);
    const found = await this.#db
      .prepare('SELECT 1 AS one FROM password_resets WHERE hash = ? AND expires_at > ?')
      .bind(await sha256Hex(token), Date.now())
      .first();
    if (!found) throw over();
  }

  /**
   * All sessions of the person end. Where nobody had confirmed the address before, somebody else may have signed up with
   * it, and waits for its owner to buy credit: then whatever can spend that, or hears of it, ends too.
   * @returns whether that was so
   * @throws Problem invalid_field, not_found, rate_limited
   */
  async use(token: string, password: string, clientIp: string | undefined): Promise<boolean> {
    await this.check(token, clientIp);
    const { salt, hash } = await this.#humans.derivePassword(password);
    const owner = '(SELECT human_id FROM password_resets WHERE hash = ?1 AND expires_at > ?2)';
    const unconfirmed = `(SELECT id FROM humans WHERE id = ${owner} AND confirmed_at IS NULL)`;
    const theirs = `(SELECT id FROM accounts WHERE human_id = ${unconfirmed})`;
    const statement = (sql: string, ...more: (string | number)[]) => this.#db.prepare(sql).bind(...more);
    const [key, now] = [await sha256Hex(token), Date.now()];
    const [first, , , , changed] = await this.#db.batch<{ isFirst: number }>([
      statement(`SELECT ${unconfirmed} IS NOT NULL AS isFirst`, key, now),
      statement(
        `UPDATE credentials SET revoked_at = ?2 WHERE revoked_at IS NULL AND account_id IN ${theirs}`,
        ...[key, now],
      ),
      statement(`UPDATE renewals SET ended_at = ?2 WHERE ended_at IS NULL AND account IN ${theirs}`, key, now),
      statement(`DELETE FROM webhooks WHERE account IN ${theirs}`, key, now),
      // The link was sent to the mailbox, so it also confirms the address.
      statement(
        `UPDATE humans SET password_salt = ?3, password_hash = ?4, confirmed_at = COALESCE(confirmed_at, ?2) WHERE id = ${owner}`,
        ...[key, now, salt, hash],
      ),
      statement(`DELETE FROM sessions WHERE human_id = ${owner}`, key, now),
      // Programs that were allowed, and have not asked for their credential yet.
      statement(`DELETE FROM device_codes WHERE human_id = ${owner}`, key, now),
      statement(`DELETE FROM password_resets WHERE human_id = ${owner}`, key, now),
    ]);
    if (changed?.meta.changes !== 1) throw over();
    return first?.results[0]?.isFirst === 1;
  }

  async #find(emailText: string): Promise<Human | undefined> {
    const row = await this.#db
      .prepare('SELECT id, email FROM humans WHERE email = ?')
      .bind(emailToFind(emailText))
      .first<Human>();
    return row ?? undefined;
  }

  async #link({ id }: Human): Promise<ResetLink> {
    const token = newSecret('tpr');
    const expiresAt = Date.now() + LINK_LIFE_MS;
    await this.#db
      .prepare('INSERT INTO password_resets (hash, human_id, expires_at) VALUES (?, ?, ?)')
      .bind(await sha256Hex(token), id, expiresAt)
      .run();
    return { url: `${this.#pagesUrl}/reset/new?token=${token}`, expiresAt };
  }
}

function over(): Problem {
  return new Problem('not_found', 'This link was used, or is older than half an hour; ask for a new one.');
}
