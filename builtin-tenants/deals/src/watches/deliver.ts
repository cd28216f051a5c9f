/** Sends events to webhooks, signed by the Standard Webhooks specification and with its schedule of retries. */
import { Webhook } from 'standardwebhooks';
import type { Database } from '../environment.ts';

/** Pauses after each failed attempt, s (standardwebhooks.com: over about three days). */
const PAUSES_S = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
const TIMEOUT_MS = 20_000;
/** Attempts under way, in all and of one account: webhooks that hang do not hold up other people's. */
const AT_ONCE = 50;
const OF_ONE_ACCOUNT = 10;
/** A run begins nothing new after this long, ms of real time; the next one goes on. */
const LONGEST_RUN_MS = 30_000;
/** Attempts of one run. */
const MOST_ATTEMPTS = 1_000;

interface DueEvent {
  id: string;
  watch: string;
  account: string;
  body: string;
  attempts: number;
  secret: string;
  webhook: string;
  state: string;
}

/**
 * Delivers what is due; in the order of each watch.
 * @param mayCall whether a webhook may be called
 * @returns how many were tried
 */
export async function deliverEvents(db: Database, now: number, mayCall: (webhook: string) => boolean): Promise<number> {
  const end = Date.now() + LONGEST_RUN_MS;
  const underWay = new Map<DueEvent, Promise<void>>();
  let tried = 0;
  let failure: { error: unknown } | undefined;
  while (!failure && tried < MOST_ATTEMPTS && Date.now() < end) {
    const accounts = [...underWay.keys()].map(({ account }) => account);
    const due = await claim(db, now, Math.min(AT_ONCE - underWay.size, MOST_ATTEMPTS - tried), accounts);
    tried += due.length;
    for (const event of due) {
      const attempt = deliver(db, event, now, mayCall)
        .catch((error: unknown) => {
          failure = { error };
        })
        .finally(() => underWay.delete(event));
      underWay.set(event, attempt);
    }
    if (underWay.size === 0) break;
    await Promise.race(underWay.values());
  }
  await Promise.all(underWay.values());
  if (failure) throw failure.error;
  return tried;
}

/**
 * Claims events by moving their next attempt: of each watch the oldest waiting one only, accounts in turn.
 * @param accounts of the attempts under way, one entry each
 */
async function claim(db: Database, now: number, atMost: number, accounts: string[]): Promise<DueEvent[]> {
  if (atMost <= 0) return [];
  const { results } = await db
    .prepare(
      `UPDATE watch_events SET attempts = attempts + 1, next_at = ?1 + 60000
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
    .all<DueEvent>();
  return results;
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
