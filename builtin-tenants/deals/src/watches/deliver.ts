/** The events of watches as webhooks are sent them; kit/webhooks.ts signs and repeats. */
import { CLAIM_MS, type DueEvent, deliverWebhooks, type Ended, OF_ONE_ACCOUNT } from '../../../kit/webhooks.ts';
import type { Database } from '../environment.ts';

interface WatchDelivery extends DueEvent {
  watch: string;
  state: string;
}

/**
 * Delivers what is due; in the order of each watch.
 * @param mayCall whether a webhook may be called
 * @returns how many were tried
 */
export function deliverEvents(db: Database, now: number, mayCall: (webhook: string) => boolean): Promise<number> {
  return deliverWebhooks<WatchDelivery>({
    claim: (atMost, accounts) => claim(db, now, atMost, accounts),
    mayCall: ({ state, webhook }) => state !== 'deleted' && mayCall(webhook),
    finish: (event, ended) => finish(db, event, ended, now),
  });
}

/** Of each watch the oldest waiting event only, accounts in turn. */
async function claim(db: Database, now: number, atMost: number, accounts: string[]): Promise<WatchDelivery[]> {
  const { results } = await db
    .prepare(
      `UPDATE watch_events SET attempts = attempts + 1, next_at = ?1 + ${CLAIM_MS}
       WHERE id IN (
         SELECT id FROM (
           SELECT e.id, e.next_at, ROW_NUMBER() OVER (PARTITION BY w.account ORDER BY e.next_at)
             + (SELECT COUNT(*) FROM json_each(?2) WHERE value = w.account) AS place
           FROM watch_events e JOIN watches w ON w.id = e.watch
           WHERE e.delivery = 'waiting' AND e.next_at <= ?1
           AND NOT EXISTS (SELECT 1 FROM watch_events f WHERE f.watch = e.watch AND f.delivery = 'waiting' AND f.sequence < e.sequence))
         WHERE place <= ${OF_ONE_ACCOUNT} ORDER BY place, next_at LIMIT ?3)
       RETURNING id, watch, body, attempts,
         (SELECT account FROM watches w WHERE w.id = watch) AS account,
         (SELECT webhook_secret FROM watches w WHERE w.id = watch) AS secret,
         (SELECT json_extract(delivery, '$.webhook') FROM watches w WHERE w.id = watch) AS webhook,
         (SELECT state FROM watches w WHERE w.id = watch) AS state`,
    )
    .bind(now, JSON.stringify(accounts), atMost)
    .all<WatchDelivery>();
  return results;
}

async function finish(db: Database, { id, watch }: WatchDelivery, ended: Ended, now: number): Promise<void> {
  if (ended === 'gone') {
    // The feed still has the events.
    await db.batch([
      db
        .prepare(
          "UPDATE watch_events SET delivery = 'given_up', next_at = NULL WHERE watch = ? AND delivery = 'waiting'",
        )
        .bind(watch),
      db.prepare("UPDATE watches SET delivery = json_remove(delivery, '$.webhook') WHERE id = ?").bind(watch),
    ]);
  } else if (typeof ended === 'object') {
    await db
      .prepare('UPDATE watch_events SET next_at = ?2 WHERE id = ?1')
      .bind(id, now + ended.again)
      .run();
  } else {
    await db.prepare('UPDATE watch_events SET delivery = ?2, next_at = NULL WHERE id = ?1').bind(id, ended).run();
  }
}
