/**
 * Webhooks by the Standard Webhooks specification: secrets, signed attempts and its schedule of retries, and which
 * addresses may be called. What is told to whom, and how it is kept, is each tenant's own.
 */
import { Webhook } from 'standardwebhooks';

/** Pauses after each failed attempt, s (standardwebhooks.com: over about three days). */
const PAUSES_S = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400];
const TIMEOUT_MS = 20_000;
/** Attempts under way, in all and of one account: webhooks that hang do not hold up other people's. */
const AT_ONCE = 50;
export const OF_ONE_ACCOUNT = 10;
/** A run begins nothing new after this long, ms of real time; the next one goes on. */
const LONGEST_RUN_MS = 30_000;
/** Attempts of one run. */
const MOST_ATTEMPTS = 1_000;
/** A claimed event is tried again after this long, ms, where its attempt never ended: longer than an attempt takes. */
export const CLAIM_MS = 60_000;

/** An event that an attempt has claimed. */
export interface DueEvent {
  /** The same in every attempt: receivers tell repetitions by it. */
  id: string;
  account: string;
  body: string;
  /** With this one. */
  attempts: number;
  secret: string;
  /** Undefined: nobody is to be told any more. */
  webhook: string | undefined;
}

/** `gone`: the receiver wants nothing more (410). `again`: the next attempt is in so many ms. */
export type Ended = 'delivered' | 'given_up' | 'gone' | { again: number };

/** Where events wait. */
export interface Outbox<E extends DueEvent> {
  /**
   * Claims due events by moving their next attempt by `CLAIM_MS`.
   * @param accounts of the attempts under way, one entry each: an account has at most `OF_ONE_ACCOUNT`
   */
  claim(atMost: number, accounts: string[]): Promise<E[]>;
  mayCall(event: E & { webhook: string }): boolean;
  finish(event: E, ended: Ended): Promise<void>;
}

/** Delivers what is due. @returns how many events were tried */
export async function deliverWebhooks<E extends DueEvent>(outbox: Outbox<E>): Promise<number> {
  const end = Date.now() + LONGEST_RUN_MS;
  const underWay = new Map<E, Promise<void>>();
  let tried = 0;
  let failure: { error: unknown } | undefined;
  while (!failure && tried < MOST_ATTEMPTS && Date.now() < end) {
    const accounts = [...underWay.keys()].map(({ account }) => account);
    const atMost = Math.min(AT_ONCE - underWay.size, MOST_ATTEMPTS - tried);
    const due = atMost > 0 ? await outbox.claim(atMost, accounts) : [];
    tried += due.length;
    for (const event of due) {
      const attempt = attemptOf(outbox, event)
        .then((ended) => outbox.finish(event, ended))
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

async function attemptOf<E extends DueEvent>(outbox: Outbox<E>, event: E): Promise<Ended> {
  const { webhook } = event;
  if (!webhook || !outbox.mayCall({ ...event, webhook })) return 'given_up';
  const outcome = await post(event, webhook);
  if (outcome !== 'failed') return outcome;
  const pause = PAUSES_S[event.attempts - 1];
  return pause === undefined ? 'given_up' : { again: pause * 1_000 };
}

/** Redirects are not followed: they would lead around the check of the address. */
async function post(event: DueEvent, webhook: string): Promise<'delivered' | 'gone' | 'failed'> {
  const at = new Date();
  const signature = new Webhook(event.secret).sign(event.id, at, event.body);
  try {
    const answer = await fetch(webhook, {
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
    return answer.status === 410 ? 'gone' : answer.ok ? 'delivered' : 'failed';
  } catch {
    return 'failed';
  }
}

/** As receivers' libraries take it: `whsec_…`. */
export function newWebhookSecret(): string {
  return `whsec_${btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(24))))}`;
}

/**
 * Whether an address leads to one of the tenant's own, or to a socket: the operator may have opened those for this
 * tenant alone, so what others ask it to call must not lead there. The host's way out refuses what is not public.
 */
export function isPrivate(address: string, own: readonly { url: string }[]): boolean {
  const asked = placeOf(address);
  return asked.name.endsWith('.internal') || own.some(({ url }) => placeOf(url).origin === asked.origin);
}

/** Name and port as the host's way out sees them: names with and without the final dot are one. */
function placeOf(address: string): { name: string; origin: string } {
  const { hostname, port, protocol } = new URL(address);
  const name = hostname.replace(/\.$/, '');
  return { name, origin: `${name}:${port || (protocol === 'https:' ? 443 : 80)}` };
}
