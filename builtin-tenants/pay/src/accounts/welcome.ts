/**
 * The welcome bonus. On the local network it is test money, and everybody who signs up gets it. Elsewhere it is real:
 * it needs a confirmed e-mail address, is given once per mailbox, has an end, and all of them together have a limit.
 */

import { parseUsd } from '../../../kit/usd.ts';
import type { Ledger, NewGrant } from '../credit/ledger.ts';
import type { Database, Env } from '../environment.ts';
import { mailboxOf } from './email.ts';

const DAY_MS = 86_400_000;

export interface WelcomeTerms {
  /** micro-USD. */
  amount: number;
  /** Undefined on the local network. */
  real?: { lifeMs: number /** All bonuses together, micro-USD. */; most: number };
}

/** @returns undefined where no bonus is given: off the local network without a way to send e-mails */
export function welcomeTerms(env: Env): WelcomeTerms | undefined {
  const amount = parseUsd(env.WELCOME_BONUS_USD ?? '5.00') ?? 0;
  if (amount === 0) return undefined;
  if (env.PAY_NETWORK === 'local') return { amount };
  if (!env.MAILER_URL) return undefined;
  return {
    amount,
    real: { lifeMs: Number(env.WELCOME_DAYS ?? 30) * DAY_MS, most: parseUsd(env.WELCOME_TOTAL_USD ?? '0') ?? 0 },
  };
}

export class Welcome {
  readonly #db: Database;
  readonly #ledger: Ledger;
  readonly #now: () => number;
  readonly #terms: WelcomeTerms | undefined;

  /** @param now business time, ms */
  constructor(db: Database, ledger: Ledger, now: () => number, terms: WelcomeTerms | undefined) {
    this.#db = db;
    this.#ledger = ledger;
    this.#now = now;
    this.#terms = terms;
  }

  /** Whether the person has yet to confirm the address to get the bonus. */
  async needsConfirmation(humanId: string): Promise<boolean> {
    if (!this.#terms?.real) return false;
    const person = await this.#person(humanId);
    return person !== null && person.confirmedAt === null && !(await this.#barred(mailboxOf(person.email)));
  }

  /** Gives the person the bonus, if there is one and it was not given yet. Idempotent. */
  async give(humanId: string, account: string): Promise<void> {
    const terms = this.#terms;
    if (!terms) return;
    const grant: NewGrant = {
      key: `welcome:${humanId}`,
      account,
      amount: terms.amount,
      source: 'welcome',
      promotional: true,
      memo: 'Welcome bonus',
    };
    if (!terms.real) {
      await this.#ledger.grant(grant);
      return;
    }
    const person = await this.#person(humanId);
    if (!person || person.confirmedAt === null) return;
    const mailbox = mailboxOf(person.email);
    if (await this.#barred(mailbox)) return;
    // In one transaction with the grant: a second one for the mailbox, or one beyond the limit, fails as a whole.
    const once = this.#db
      .prepare(
        `INSERT INTO welcomed (mailbox, amount, total, most)
         SELECT ?1, ?2, COALESCE(SUM(amount), 0) + ?2, ?3 FROM welcomed`,
      )
      .bind(mailbox, terms.amount, terms.real.most);
    try {
      await this.#ledger.grant({ ...grant, expiresAt: this.#now() + terms.real.lifeMs }, [once]);
    } catch (error) {
      if (!(await this.#barred(mailbox))) throw error;
    }
  }

  #person(humanId: string) {
    return this.#db
      .prepare('SELECT email, confirmed_at AS confirmedAt FROM humans WHERE id = ?')
      .bind(humanId)
      .first<{ email: string; confirmedAt: number | null }>();
  }

  /** Whether the mailbox had its bonus, or there is no more to give. */
  async #barred(mailbox: string): Promise<boolean> {
    const row = await this.#db
      .prepare(
        `SELECT EXISTS (SELECT 1 FROM welcomed WHERE mailbox = ?1)
           OR (SELECT COALESCE(SUM(amount), 0) FROM welcomed) + ?2 > ?3 AS barred`,
      )
      .bind(mailbox, this.#terms?.amount ?? 0, this.#terms?.real?.most ?? 0)
      .first<{ barred: number }>();
    return row?.barred === 1;
  }
}
