/** Sends events to webhooks, signed by the Standard Webhooks specification and with its schedule of retries. */
import { Webhook } from 'standardwebhooks';
import type { Database } from '../environment.ts';

/** Pauses after each failed attempt, s (standardwebhooks.com: over about three days). */
const PAUSES_S = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
const TIMEOUT_MS = 20_000;
const AT_ONCE = 50;

interface DueEvent {
  id: string;
  watch: string;
  body: string;
  attempts: number;
  secret: string;
  webhook: string;
  state: string;
}

/** Rounds of one run: a watch's events go out one after the other. */
const MOST_ROUNDS = 20;
/** A run ends after this long, ms of real time; the next one goes on. */
const LONGEST_RUN_MS = 30_000;

/**
 * Delivers what is due; in the order of each watch.
 * @param mayCall whether a webhook may be called
 * @returns how many were tried
 */
export async function deliverEvents(db: Database, now: number, mayCall: (webhook: string) => boolean): Promise<number> {
  const end = Date.now() + LONGEST_RUN_MS;
  let tried = 0;
  for (let round = 0; round < MOST_ROUNDS && Date.now() < end; round++) {
    const count = await deliverRound(db, now, mayCall);
    if (count === 0) break;
    tried += count;
  }
  return tried;
}

async function deliverRound(db: Database, now: number, mayCall: (webhook: string) => boolean): Promise<number> {
  // Of each watch the oldest waiting one only; claimed by moving its next attempt.
  const { results } = await db
    .prepare(
      `UPDATE watch_events SET attempts = attempts + 1, next_at = ?1 + 60000
       WHERE id IN (
         SELECT e.id FROM watch_events e WHERE e.delivery = 'waiting' AND e.next_at <= ?1
         AND NOT EXISTS (SELECT 1 FROM watch_events f WHERE f.watch = e.watch AND f.delivery = 'waiting' AND f.sequence < e.sequence)
         ORDER BY e.next_at LIMIT ${AT_ONCE})
       RETURNING id, watch, body, attempts,
         (SELECT webhook_secret FROM watches w WHERE w.id = watch) AS secret,
         (SELECT json_extract(delivery, '$.webhook') FROM watches w WHERE w.id = watch) AS webhook,
         (SELECT state FROM watches w WHERE w.id = watch) AS state`,
    )
    .bind(now)
    .all<DueEvent>();
  await Promise.all(results.map((event) => deliver(db, event, now, mayCall)));
  return results.length;
}

async function deliver(
  db: Database,
  event: DueEvent,
  now: number,
  mayCall: (webhook: string) => boolean,
): Promise<void> {
  const finish = (state: 'delivered' | 'given_up') =>
    db.prepare('UPDATE watch_events SET delivery = ?2, next_at = NULL WHERE id = ?1').bind(event.id, state).run();
  if (event.state === 'deleted' || !event.webhook || !mayCall(event.webhook)) {
    await finish('given_up');
    return;
  }
  const outcome = await post(event);
  if (outcome === 'taken') await finish('delivered');
  else if (outcome === 'gone') {
    // 410: the receiver wants nothing more. The feed still has the events.
    await db.batch([
      db
        .prepare(
          "UPDATE watch_events SET delivery = 'given_up', next_at = NULL WHERE watch = ? AND delivery = 'waiting'",
        )
        .bind(event.watch),
      db.prepare("UPDATE watches SET delivery = json_remove(delivery, '$.webhook') WHERE id = ?").bind(event.watch),
    ]);
  } else {
    const pause = PAUSES_S[event.attempts - 1];
    if (pause === undefined) await finish('given_up');
    else
      await db
        .prepare('UPDATE watch_events SET next_at = ?2 WHERE id = ?1')
        .bind(event.id, now + pause * 1_000)
        .run();
  }
}

async function post(event: DueEvent): Promise<'taken' | 'gone' | 'failed'> {
  const at = new Date();
  const signature = new Webhook(event.secret).sign(event.id, at, event.body);
  try {
    const answer = await fetch(event.webhook, {
      method: 'POST',
      redirect: 'manual',
      signal: AbortSignal.timeout(TIMEOUT_MS),
      headers: {
        'content-type': 'application/json',
        'webhook-id': event.id,
        'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
        'webhook-signature': signature,
      },
      body: event.body,
    });
    await answer.body?.cancel();
    return answer.status === 410 ? 'gone' : answer.ok ? 'taken' : 'failed';
  } catch {
    return 'failed';
  }
}
