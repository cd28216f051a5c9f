/** Watches and their events in the database. Every step that money depends on is one conditional statement. */
import { newWebhookSecret } from '../../../kit/webhooks.ts';
import type { Database, Statement } from '../environment.ts';
import { newId } from '../ids.ts';
import { emptyMemory, type Memory, type WatchEvent } from './evaluate.ts';
import { CLAIM_MS, PERIOD_MS, wholeSecond } from './periods.ts';
import { iso, type WatchInput, type WatchRow, watchView } from './watch.ts';

const COLUMNS =
  'id, account, state, query, "trigger", every_s, delivery, created_at, updated_at, paid_through, suspended_at, paused_at, next_at';

/** Events stay readable for this long. */
const KEEP_EVENTS_MS = 90 * PERIOD_MS;

export interface DueWatch extends WatchRow {
  memory: string;
  evaluation: number;
  next_sequence: number;
}

/** A period of a watch that one run has taken, to charge it. */
export interface Claim {
  id: string;
  account: string;
  /** Of the period, ms. */
  start: number;
  run: string;
}

/** `unfunded`: the credit did not cover it. */
export type ClaimOutcome = 'paid' | 'unfunded' | 'not_charged';

export class Watches {
  readonly #db: Database;
  readonly #clock: () => number;

  /** @param clock real time, ms, by which claims end; all other times are business time */
  constructor(db: Database, clock: () => number = Date.now) {
    this.#db = db;
    this.#clock = clock;
  }

  /**
   * Makes a watch for a paid request; the same request makes it once.
   * @returns the watch, and the webhook's secret, which is shown here alone
   */
  async create(
    account: string,
    requestId: string,
    input: WatchInput,
    now: number,
  ): Promise<{ watch: ReturnType<typeof watchView>; secret?: string }> {
    const secret = input.delivery.webhook ? newWebhookSecret() : null;
    await this.#db
      .prepare(
        `INSERT INTO watches (id, account, request, state, query, "trigger", every_s, delivery, webhook_secret, created_at, updated_at, paid_through, next_at, memory)
         VALUES (?1, ?2, ?3, 'running', ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10, ?9, ?11) ON CONFLICT (request) DO NOTHING`,
      )
      .bind(
        newId('wat'),
        account,
        requestId,
        JSON.stringify(input.query),
        JSON.stringify(input.trigger),
        input.every_s,
        JSON.stringify(input.delivery),
        secret,
        now,
        wholeSecond(now) + PERIOD_MS,
        JSON.stringify(emptyMemory()),
      )
      .run();
    const row = await this.#db
      .prepare(`SELECT ${COLUMNS}, webhook_secret FROM watches WHERE request = ?`)
      .bind(requestId)
      .first<WatchRow & { webhook_secret: string | null }>();
    if (!row) throw new Error('the watch was not stored');
    return { watch: watchView(row), ...(row.webhook_secret ? { secret: row.webhook_secret } : {}) };
  }

  async list(account: string, after: string | undefined, limit: number): Promise<WatchRow[]> {
    const { results } = await this.#db
      .prepare(`SELECT ${COLUMNS} FROM watches WHERE account = ? AND state <> 'deleted' AND id > ? ORDER BY id LIMIT ?`)
      .bind(account, after ?? '', limit)
      .all<WatchRow>();
    return results;
  }

  /** Final and idempotent. @returns whether the account has, or had, such a watch */
  async delete(account: string, id: string, now: number): Promise<boolean> {
    await this.#db
      .prepare(
        `UPDATE watches SET state = 'deleted', updated_at = ?3, period_start = NULL, claimed_by = NULL, claimed_until = NULL
         WHERE id = ?1 AND account = ?2 AND state <> 'deleted'`,
      )
      .bind(id, account, now)
      .run();
    return (
      (await this.#db
        .prepare('SELECT 1 AS one FROM watches WHERE id = ? AND account = ?')
        .bind(id, account)
        .first()) !== null
    );
  }

  /**
   * A paused watch is one that is suspended and stays so, whatever credit there is. A day that is being charged meanwhile
   * is paid all the same.
   * @returns undefined where the account has no such watch
   */
  pause(account: string, id: string, now: number): Promise<WatchRow | undefined> {
    return this.#changed(
      `UPDATE watches SET state = 'suspended', paused_at = ?3, suspended_at = coalesce(suspended_at, ?3), updated_at = ?3
       WHERE id = ?1 AND account = ?2 AND state <> 'deleted' AND paused_at IS NULL`,
      account,
      id,
      now,
    );
  }

  /** What is left of the paid time is used; after that it waits for its next day to be charged. @returns as `pause` */
  unpause(account: string, id: string, now: number): Promise<WatchRow | undefined> {
    return this.#changed(
      `UPDATE watches SET paused_at = NULL, updated_at = ?3,
         state = CASE WHEN paid_through > ?3 THEN 'running' ELSE state END,
         suspended_at = CASE WHEN paid_through > ?3 THEN NULL ELSE suspended_at END
       WHERE id = ?1 AND account = ?2 AND state = 'suspended' AND paused_at IS NOT NULL`,
      account,
      id,
      now,
    );
  }

  async #changed(update: string, account: string, id: string, now: number): Promise<WatchRow | undefined> {
    await this.#db.prepare(update).bind(id, account, now).run();
    const row = await this.#db
      .prepare(`SELECT ${COLUMNS} FROM watches WHERE id = ? AND account = ? AND state <> 'deleted'`)
      .bind(id, account)
      .first<WatchRow>();
    return row ?? undefined;
  }

  /** Running watches whose paid time is over, in a fixed order; `after` is the last one of the page before. */
  async unpaid(now: number, after: WatchRow | undefined, limit: number): Promise<WatchRow[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT ${COLUMNS} FROM watches WHERE state = 'running' AND paid_through <= ?1 AND (paid_through, id) > (?2, ?3)
         ORDER BY paid_through, id LIMIT ?4`,
      )
      .bind(now, after?.paid_through ?? -1, after?.id ?? '', limit)
      .all<WatchRow>();
    return results;
  }

  /** Suspended watches of an account, oldest first; `after` is the last one of the page before. */
  async suspended(account: string, after: WatchRow | undefined, limit: number): Promise<WatchRow[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT ${COLUMNS} FROM watches WHERE state = 'suspended' AND paused_at IS NULL AND account = ?1
         AND (created_at, id) > (?2, ?3) ORDER BY created_at, id LIMIT ?4`,
      )
      .bind(account, after?.created_at ?? -1, after?.id ?? '', limit)
      .all<WatchRow>();
    return results;
  }

  /** The oldest suspended watch of each account that has any; `after` is the last one of the page before. */
  async oldestSuspended(after: WatchRow | undefined, limit: number): Promise<WatchRow[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT ${COLUMNS} FROM watches w WHERE state = 'suspended' AND paused_at IS NULL AND account > ?1 AND NOT EXISTS (
           SELECT 1 FROM watches x WHERE x.account = w.account AND x.state = 'suspended' AND x.paused_at IS NULL AND (x.created_at, x.id) < (w.created_at, w.id))
         ORDER BY account LIMIT ?2`,
      )
      .bind(after?.account ?? '', limit)
      .all<WatchRow>();
    return results;
  }

  /**
   * Takes the next period of watches for one run alone, all in one transaction: until the run says what became of it,
   * or its time is over, no other run charges them. Suspended watches of an account are taken in their order: none while
   * another run has an older one.
   * @returns those that were free
   */
  async claim(wanted: { row: WatchRow; start: number }[]): Promise<Claim[]> {
    if (wanted.length === 0) return [];
    const run = newId('run');
    const statements = wanted.map(({ row, start }) =>
      this.#db
        .prepare(
          `UPDATE watches AS w SET period_start = ?3, claimed_by = ?4, claimed_until = ?5
           WHERE id = ?1 AND paid_through = ?2 AND state = ?6 AND paused_at IS NULL AND period_start IS NULL
             AND (state = 'running' OR NOT EXISTS (
               SELECT 1 FROM watches o WHERE o.account = w.account AND o.state = 'suspended'
               AND (o.created_at, o.id) < (w.created_at, w.id) AND o.claimed_by <> ?4))`,
        )
        .bind(row.id, row.paid_through, start, run, this.#clock() + CLAIM_MS, row.state),
    );
    const results = await this.#db.batch(statements);
    return wanted.flatMap(({ row, start }, index) =>
      results[index]?.meta.changes ? [{ id: row.id, account: row.account, start, run }] : [],
    );
  }

  /** Periods that a run took and did not account for in its time: it was cut off. `after` is the last one of the page before. */
  async leftBehind(after: Claim | undefined, limit: number): Promise<Claim[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT id, account, period_start AS start, coalesce(claimed_by, '') AS run FROM watches
         WHERE period_start IS NOT NULL AND coalesce(claimed_until, 0) <= ?1 AND id > ?2 ORDER BY id LIMIT ?3`,
      )
      .bind(this.#clock(), after?.id ?? '', limit)
      .all<Claim>();
    return results;
  }

  /** What became of claims, all in one transaction. */
  async settle(outcomes: { claim: Claim; outcome: ClaimOutcome }[], now: number): Promise<void> {
    if (outcomes.length === 0) return;
    await this.#db.batch(outcomes.map(({ claim, outcome }) => this.#settled(claim, outcome, now)));
  }

  #settled({ id, start, run }: Claim, outcome: ClaimOutcome, now: number): Statement {
    const free = 'period_start = NULL, claimed_by = NULL, claimed_until = NULL';
    const held = "id = ?1 AND period_start = ?2 AND coalesce(claimed_by, '') = ?3 AND state <> 'deleted'";
    switch (outcome) {
      case 'paid':
        // A day that was charged counts, whoever holds the claim now.
        return this.#db
          .prepare(
            `UPDATE watches SET ${free}, paid_through = ?2 + ${PERIOD_MS}, updated_at = ?3,
               next_at = CASE WHEN state = 'suspended' THEN ?3 ELSE next_at END,
               suspended_at = CASE WHEN paused_at IS NULL THEN NULL ELSE suspended_at END,
               state = CASE WHEN paused_at IS NULL THEN 'running' ELSE state END
             WHERE id = ?1 AND paid_through <= ?2 AND state <> 'deleted'`,
          )
          .bind(id, start, now);
      case 'unfunded':
        return this.#db
          .prepare(
            `UPDATE watches SET ${free}, state = 'suspended', suspended_at = coalesce(suspended_at, paid_through), updated_at = ?4
             WHERE ${held}`,
          )
          .bind(id, start, run, now);
      case 'not_charged':
        return this.#db.prepare(`UPDATE watches SET ${free} WHERE ${held}`).bind(id, start, run);
    }
  }

  /** Paid watches whose evaluation is due; claimed by moving the next one. */
  async takeDue(now: number, limit: number): Promise<DueWatch[]> {
    const { results } = await this.#db
      .prepare(
        `UPDATE watches SET next_at = ?1 + every_s * 1000, evaluation = evaluation + 1
         WHERE id IN (SELECT id FROM watches WHERE state = 'running' AND next_at <= ?1 AND paid_through > ?1 ORDER BY next_at LIMIT ?2)
         RETURNING ${COLUMNS}, memory, evaluation, next_sequence`,
      )
      .bind(now, limit)
      .all<DueWatch>();
    return results;
  }

  /** Memory and events of one evaluation together, unless another evaluation, or a deletion, came in between. */
  async saveEvaluation(watch: DueWatch, memory: Memory, events: WatchEvent[], now: number): Promise<boolean> {
    const { webhook } = JSON.parse(watch.delivery) as { webhook?: string };
    const guard = `EXISTS (SELECT 1 FROM watches WHERE id = ?1 AND evaluation = ${watch.evaluation} AND state = 'running')`;
    const statements: Statement[] = events.map((event, index) => {
      const id = newId('evt');
      const sequence = watch.next_sequence + index;
      const body = {
        id,
        type: event.type,
        watch_id: watch.id,
        sequence,
        at: iso(now),
        deal: event.deal,
        ...(event.previous_minor === undefined ? {} : { previous_minor: event.previous_minor }),
      };
      return this.#db
        .prepare(
          `INSERT INTO watch_events (id, watch, sequence, type, body, created_at, delivery, next_at)
           SELECT ?2, ?1, ?3, ?4, ?5, ?6, ?7, ?8 WHERE ${guard}`,
        )
        .bind(
          watch.id,
          id,
          sequence,
          event.type,
          JSON.stringify(body),
          now,
          webhook ? 'waiting' : 'none',
          webhook ? now : null,
        );
    });
    const last = this.#db
      .prepare(
        `UPDATE watches SET memory = ?2, next_sequence = next_sequence + ?3 WHERE id = ?1 AND evaluation = ${watch.evaluation} AND state = 'running'`,
      )
      .bind(watch.id, JSON.stringify(memory), events.length);
    const results = await this.#db.batch([...statements, last]);
    return (results.at(-1)?.meta.changes ?? 0) > 0;
  }

  /** Events of an account's watches with a higher place than `after`. Places are given as events are committed, so none is passed over. */
  async events(account: string, after: number, limit: number): Promise<{ body: string; place: number }[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT e.body AS body, e.place AS place FROM watch_events e JOIN watches w ON w.id = e.watch
         WHERE w.account = ? AND e.place > ? ORDER BY e.place LIMIT ?`,
      )
      .bind(account, after, limit)
      .all<{ body: string; place: number }>();
    return results;
  }

  /** Events that were told longer ago than they are kept. */
  async forgetEvents(now: number): Promise<void> {
    await this.#db
      .prepare("DELETE FROM watch_events WHERE created_at < ? AND delivery <> 'waiting'")
      .bind(now - KEEP_EVENTS_MS)
      .run();
  }
}
