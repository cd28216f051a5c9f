/** Shows that an e-mail address is its owner's: a code is sent to it, and typed in by the person. */

import type { Database } from '../environment.ts';
import { Problem } from '../problem.ts';
import { limit } from '../rate-limit.ts';
import { mailboxOf } from './email.ts';
import type { Mail } from './mail.ts';
import { sameText, sha256Hex } from './tokens.ts';

const HOUR_MS = 3_600_000;
const CODE_LIFE_MS = HOUR_MS / 2;
const CODES_PER_HOUR = 5;
/** Of eight digits: a code lives half an hour. */
const TRIES_PER_HOUR = 10;

export class Confirmation {
  readonly #db: Database;
  readonly #mail: Mail;

  constructor(db: Database, mail: Mail) {
    this.#db = db;
    this.#mail = mail;
  }

  /**
   * Sends a code; an earlier one is void.
   * @throws Problem rate_limited, upstream_failed when the e-mail was not taken
   */
  async send({ id, email }: { id: string; email: string }): Promise<void> {
    if (!this.#mail.isOn) throw new Problem('not_found', 'This host sends no e-mails.');
    // Counted by mailbox: many sign-ups must not flood one person with e-mails.
    await limit(this.#db, `email-code:${mailboxOf(email)}`, CODES_PER_HOUR, HOUR_MS);
    const [random = 0] = crypto.getRandomValues(new Uint32Array(1));
    const code = String(random % 100_000_000).padStart(8, '0');
    await this.#db
      .prepare('INSERT OR REPLACE INTO email_codes (human_id, hash, expires_at) VALUES (?, ?, ?)')
      .bind(id, await digest(id, code), Date.now() + CODE_LIFE_MS)
      .run();
    const { host } = this.#mail;
    await this.#mail.send({
      to: email,
      subject: `Your code for ${host}`,
      text: `Your code is ${code}. Enter it on ${host} within half an hour.\n\nIf you did not ask for it, ignore this e-mail.\n`,
    });
  }

  /** @throws Problem rate_limited, invalid_field for a code that is wrong or too old */
  async confirm(humanId: string, code: string): Promise<void> {
    await limit(this.#db, `email-code-try:${humanId}`, TRIES_PER_HOUR, HOUR_MS);
    const row = await this.#db
      .prepare('SELECT hash FROM email_codes WHERE human_id = ? AND expires_at > ?')
      .bind(humanId, Date.now())
      .first<{ hash: string }>();
    if (!row || !sameText(row.hash, await digest(humanId, code.replace(/\D/g, '')))) {
      throw new Problem('invalid_field', 'The code is wrong or too old; ask for a new one.');
    }
    await this.#db.batch([
      this.#db.prepare('UPDATE humans SET confirmed_at = ? WHERE id = ?').bind(Date.now(), humanId),
      this.#db.prepare('DELETE FROM email_codes WHERE human_id = ?').bind(humanId),
    ]);
  }
}

function digest(humanId: string, code: string): Promise<string> {
  return sha256Hex(`${humanId} ${code}`);
}
