/**
 * The webhooks of accounts and what they are told: credit that is low, work that services have suspended, draws that
 * failed. Events are written by the transactions that they tell of (database/notices.ts), kept until they are
 * delivered or given up, and sent with one id however often.
 */
import { formatUsd } from '../../../kit/usd.ts';
import {
  CLAIM_MS,
  type DueEvent,
  deliverWebhooks,
  type Ended,
  isPrivate,
  newWebhookSecret,
  OF_ONE_ACCOUNT,
} from '../../../kit/webhooks.ts';
import { newId } from '../accounts/tokens.ts';
import type { Database, Statement } from '../environment.ts';
import { invalidField, Problem } from '../problem.ts';

const MOST_WEBHOOKS = 5;
const MOST_URL = 2_000;
const KEEP_EVENTS_MS = 30 * 86_400_000;
const MOST_LISTED = 50;

export type EventType =
  | 'balance_low'
  | 'account_suspended'
  | 'account_resumed'
  | 'topup_failed'
  | 'renewal_failed'
  | 'test';

export interface WebhookView {
  id: string;
  url: string;
  createdAt: string;
  lastEvent: EventView | null;
}

export interface EventView {
  id: string;
  webhookId: string;
  type: EventType;
  at: string;
  delivery: 'waiting' | 'delivered' | 'given_up';
  attempts: number;
}

/** What an account has asked to be told, and how it stands. */
export interface Notices {
  /** micro-USD; null: nobody asks. */
  lowBelow: number | null;
  isLow: boolean;
  isSuspended: boolean;
}

interface EventRow {
  id: string;
  webhook: string;
  type: EventType;
  data: string;
  at: number;
  delivery: EventView['delivery'];
  attempts: number;
}

interface Claimed extends EventRow {
  account: string;
  url: string;
  secret: string;
}

export class Webhooks {
  readonly #db: Database;
  readonly #now: () => number;

  /** @param now business time, ms */
  constructor(db: Database, now: () => number) {
    this.#db = db;
    this.#now = now;
  }

  /** @returns its secret, which is shown here alone. @throws Problem invalid_field, conflict */
  async add(account: string, url: unknown): Promise<{ id: string; url: string; secret: string }> {
    const checked = urlOf(url);
    if (await this.#isPrivate(checked)) throw invalidField('/url', 'that host is not public');
    const [id, secret] = [newId('whk'), newWebhookSecret()];
    const [, added] = await this.#db.batch([
      this.#watched(account),
      this.#db
        .prepare(
          `INSERT INTO webhooks (id, account, url, secret, created_at)
           SELECT ?1, ?2, ?3, ?4, ?5 WHERE (SELECT count(*) FROM webhooks WHERE account = ?2) < ${MOST_WEBHOOKS}`,
        )
        .bind(id, account, checked, secret, this.#now()),
    ]);
    if (added?.meta.changes !== 1)
      throw new Problem('conflict', `An account has at most ${MOST_WEBHOOKS} webhooks; remove one first.`);
    return { id, url: checked, secret };
  }

  /** What it was yet to be told is dropped. @returns false when the account has no such webhook */
  async remove(account: string, id: string): Promise<boolean> {
    const { meta } = await this.#db
      .prepare('DELETE FROM webhooks WHERE id = ? AND account = ?')
      .bind(id, account)
      .run();
    return meta.changes > 0;
  }

  async list(account: string): Promise<WebhookView[]> {
    const { results } = await this.#db
      .prepare('SELECT id, url, created_at AS createdAt FROM webhooks WHERE account = ? ORDER BY created_at, id')
      .bind(account)
      .all<{ id: string; url: string; createdAt: number }>();
    const events = await this.events(account);
    return results.map(({ createdAt, ...webhook }) => ({
      ...webhook,
      createdAt: new Date(createdAt).toISOString(),
      lastEvent: events.find(({ webhookId }) => webhookId === webhook.id) ?? null,
    }));
  }

  /** The newest first. */
  async events(account: string): Promise<EventView[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT e.id, e.webhook, e.type, e.at, e.delivery, e.attempts FROM webhook_events e
         JOIN webhooks w ON w.id = e.webhook WHERE w.account = ? ORDER BY e.place DESC LIMIT ${MOST_LISTED}`,
      )
      .bind(account)
      .all<EventRow>();
    return results.map(({ id, webhook, type, at, delivery, attempts }) => ({
      id,
      webhookId: webhook,
      type,
      at: new Date(at).toISOString(),
      delivery,
      attempts,
    }));
  }

  async notices(account: string): Promise<Notices> {
    const row = await this.#db
      .prepare(
        'SELECT low_below AS lowBelow, is_low AS isLow, suspended_for AS price FROM account_notices WHERE account = ?',
      )
      .bind(account)
      .first<{ lowBelow: number | null; isLow: number; price: number | null }>();
    return { lowBelow: row?.lowBelow ?? null, isLow: row?.isLow === 1, isSuspended: (row?.price ?? null) !== null };
  }

  /** Credit that falls below it from now on is told once, until it was enough again. @param lowBelow micro-USD */
  async setLowBalance(account: string, lowBelow: number | null): Promise<void> {
    await this.#db.batch([
      this.#watched(account),
      this.#db
        .prepare('UPDATE account_notices SET low_below = ?2, is_low = coalesce(credit < ?2, 0) WHERE account = ?1')
        .bind(account, lowBelow),
    ]);
  }

  /**
   * A charge of a service was refused: what it does for the account stops. Told once, until there is credit for it;
   * not at all where credit has come meanwhile.
   * @param price micro-USD
   */
  async suspended(account: string, price: number): Promise<void> {
    await this.#db
      .prepare(
        `UPDATE account_notices SET at = ?3, suspended_for = min(coalesce(suspended_for, ?2), ?2)
         WHERE account = ?1 AND credit < ?2`,
      )
      .bind(account, price, this.#now())
      .run();
  }

  /** @returns the event's id, where the account has that webhook */
  async test(account: string, webhook: string): Promise<string | undefined> {
    const id = newId('evt');
    const { meta } = await this.#db
      .prepare(
        `INSERT INTO webhook_events (id, webhook, type, data, at, delivery, next_at)
         SELECT ?1, id, 'test', '{}', ?4, 'waiting', 0 FROM webhooks WHERE id = ?2 AND account = ?3`,
      )
      .bind(id, webhook, account, this.#now())
      .run();
    return meta.changes === 1 ? id : undefined;
  }

  /** Sends what is due. @returns how many events were tried */
  async deliver(): Promise<number> {
    const origins = await this.#origins();
    return deliverWebhooks<Claimed & DueEvent>({
      claim: (atMost, accounts) => this.#claim(atMost, accounts),
      mayCall: ({ webhook }) => !isPrivate(webhook, origins),
      finish: (event, ended) => this.#finish(event, ended),
    });
  }

  async forgetOld(): Promise<void> {
    await this.#db
      .prepare("DELETE FROM webhook_events WHERE at < ? AND delivery <> 'waiting'")
      .bind(this.#now() - KEEP_EVENTS_MS)
      .run();
  }

  /** The row that the ledger keeps up to date, as of now. */
  #watched(account: string): Statement {
    return this.#db
      .prepare(
        `INSERT INTO account_notices (account, credit, at)
         SELECT ?1, coalesce(sum(a.balance), 0), ?2 FROM ledger_accounts a
         WHERE a.owner = ?1 AND (a.id LIKE 'hold:%' OR a.id IN
           (SELECT 'grant:' || id FROM grants WHERE account = ?1 AND (expires_at IS NULL OR expires_at > ?2)))
         ON CONFLICT DO NOTHING`,
      )
      .bind(account, this.#now());
  }

  /** Of each webhook the oldest waiting event only: receivers are told in order. Accounts in turn. */
  async #claim(atMost: number, accounts: string[]): Promise<(Claimed & DueEvent)[]> {
    const now = Date.now();
    const { results } = await this.#db
      .prepare(
        `UPDATE webhook_events SET attempts = attempts + 1, next_at = ?1 + ${CLAIM_MS}
         WHERE id IN (
           SELECT id FROM (
             SELECT e.id, e.next_at, ROW_NUMBER() OVER (PARTITION BY w.account ORDER BY e.next_at)
               + (SELECT COUNT(*) FROM json_each(?2) WHERE value = w.account) AS turn
             FROM webhook_events e JOIN webhooks w ON w.id = e.webhook
             WHERE e.delivery = 'waiting' AND e.next_at <= ?1 AND NOT EXISTS (
               SELECT 1 FROM webhook_events f WHERE f.webhook = e.webhook AND f.delivery = 'waiting' AND f.place < e.place))
           WHERE turn <= ${OF_ONE_ACCOUNT} ORDER BY turn, next_at LIMIT ?3)
         RETURNING id, webhook, type, data, at, delivery, attempts,
           (SELECT account FROM webhooks w WHERE w.id = webhook) AS account,
           (SELECT url FROM webhooks w WHERE w.id = webhook) AS url,
           (SELECT secret FROM webhooks w WHERE w.id = webhook) AS secret`,
      )
      .bind(now, JSON.stringify(accounts), atMost)
      .all<Claimed>();
    return results.map((row) => ({ ...row, webhook: row.url, body: bodyOf(row) }));
  }

  async #finish({ id }: Claimed, ended: Ended): Promise<void> {
    if (ended === 'gone') {
      await this.#db
        .prepare('DELETE FROM webhooks WHERE id = (SELECT webhook FROM webhook_events WHERE id = ?)')
        .bind(id)
        .run();
    } else if (typeof ended === 'object') {
      await this.#db
        .prepare('UPDATE webhook_events SET next_at = ?2 WHERE id = ?1')
        .bind(id, Date.now() + ended.again)
        .run();
    } else {
      await this.#db
        .prepare('UPDATE webhook_events SET delivery = ?2, next_at = NULL WHERE id = ?1')
        .bind(id, ended)
        .run();
    }
  }

  async #isPrivate(url: string): Promise<boolean> {
    return isPrivate(url, await this.#origins());
  }

  /** What the operator may have opened to this platform: the origins of services. */
  async #origins(): Promise<{ url: string }[]> {
    const { results } = await this.#db
      .prepare("SELECT DISTINCT origin AS url FROM services WHERE origin NOT LIKE '{app_url}%'")
      .all<{ url: string }>();
    return results;
  }
}

/** Amounts are in USD, as everywhere in the account's API. */
function bodyOf({ id, type, at, account, data }: Claimed): string {
  const told = Object.entries(JSON.parse(data) as Record<string, number | string>).map(([name, value]) =>
    typeof value === 'number' ? [`${name}Usd`, formatUsd(value)] : [name, value],
  );
  return JSON.stringify({ id, type, at: new Date(at).toISOString(), accountId: account, ...Object.fromEntries(told) });
}

/** @throws Problem invalid_field */
function urlOf(value: unknown): string {
  const refused = invalidField(
    '/url',
    `an http(s) address without credentials, of at most ${MOST_URL} characters, is expected`,
  );
  if (typeof value !== 'string' || value.length > MOST_URL || !URL.canParse(value)) throw refused;
  const { protocol, username, password } = new URL(value);
  if (!/^https?:$/.test(protocol) || username !== '' || password !== '') throw refused;
  return value;
}
