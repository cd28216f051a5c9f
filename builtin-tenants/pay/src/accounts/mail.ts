/** E-mails to people, by the host's mailer. */
import type { Env } from '../environment.ts';
import { Problem } from '../problem.ts';

export class Mail {
  /** Where people are told to look. */
  readonly host: string;
  readonly #mailerUrl: string | undefined;

  constructor({ MAILER_URL, PAGES_URL }: Pick<Env, 'MAILER_URL' | 'PAGES_URL'>) {
    this.#mailerUrl = MAILER_URL;
    this.host = new URL(PAGES_URL).host;
  }

  /** Whether the operator named an SMTP server. */
  get isOn(): boolean {
    return this.#mailerUrl !== undefined;
  }

  /** @throws Problem not_found without a mailer, upstream_failed when the e-mail was not taken */
  async send(message: { to: string; subject: string; text: string }): Promise<void> {
    if (this.#mailerUrl === undefined) throw new Problem('not_found', 'This host sends no e-mails.');
    const answer = await fetch(this.#mailerUrl, { method: 'POST', body: JSON.stringify(message) });
    if (!answer.ok) throw new Problem('upstream_failed', 'The e-mail could not be sent; try again later.');
  }
}
