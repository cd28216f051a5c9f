/** Tells origins that credit arrived: an outbox, so that it is told also when an origin is away for a while. */

import { bytesOf, newId } from '../accounts/tokens.ts';
import type { Catalog } from '../catalog.ts';
import type { Database, Statement } from '../environment.ts';
import { callOrigin, type Ways } from '../gateway/origin.ts';

const LIFE_MS = 24 * 3_600_000;
const FIRST_PAUSE_MS = 5_000;
const LONGEST_PAUSE_MS = 3_600_000;
const AT_ONCE = 20;

export class OriginEvents {
  readonly #db: Database;
  readonly #catalog: Catalog;
  readonly #ways: Ways;

  constructor(db: Database, catalog: Catalog, ways: Ways) {
    this.#db = db;
    this.#catalog = catalog;
    this.#ways = ways;
  }

  /** To be part of the transaction that books the credit. `at` is business time. */
  creditGranted(service: string, account: string, at: number): Statement {
    const id = newId('evt');
    const body = JSON.stringify({ id, type: 'credit_granted', accountId: account, at: new Date(at).toISOString() });
    const now = Date.now();
    return this.#db
      .prepare('INSERT INTO origin_events (id, service, account, body, next_at, created_at) VALUES (?, ?, ?, ?, ?, ?)')
      .bind(id, service, account, body, now, now);
  }

  /** Sends what is due. Answers how many were taken. */
  async deliver(balanceOf: (account: string) => Promise<number>): Promise<number> {
    const now = Date.now();
    // Claimed by moving the next attempt, so that two deliveries at once do not send the same.
    const { results } = await this.#db
      .prepare(
        `UPDATE origin_events SET attempts = attempts + 1, next_at = ?1 + min(${LONGEST_PAUSE_MS}, ${FIRST_PAUSE_MS} << min(attempts, 12))
         WHERE id IN (SELECT id FROM origin_events WHERE next_at <= ?1 ORDER BY next_at LIMIT ${AT_ONCE})
         RETURNING id, service, account, body, created_at AS createdAt`,
      )
      .bind(now)
      .all<{ id: string; service: string; account: string; body: string; createdAt: number }>();
    const sent = await Promise.all(
      results.map(async (event) => {
        const taken = await this.#send(event, await balanceOf(event.account)).catch(() => false);
        if (taken || now - event.createdAt > LIFE_MS) {
          await this.#db.prepare('DELETE FROM origin_events WHERE id = ?').bind(event.id).run();
        }
        return taken;
      }),
    );
    return sent.filter(Boolean).length;
  }

  async #send(
    event: { id: string; service: string; account: string; body: string },
    balance: number,
  ): Promise<boolean> {
    const service = await this.#catalog.service(event.service);
    // Without an origin nobody waits for it.
    if (!service) return true;
    const body = JSON.stringify({ ...(JSON.parse(event.body) as object), balanceMicroUsd: String(balance) });
    const answer = await callOrigin(
      {
        method: 'POST',
        url: `${service.origin}/internal/pay-events`,
        headers: new Headers({ 'content-type': 'application/json' }),
        body: bytesOf(body),
        account: event.account,
        requestId: event.id,
        usage: 'none',
      },
      this.#ways,
    );
    await answer.body?.cancel();
    return answer.ok;
  }
}
