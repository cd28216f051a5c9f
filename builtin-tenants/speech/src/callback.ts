/**
 * Delivers answers to `callback` URLs, once the host says that the call was charged: a payer can cancel a payment while
 * the work is done. The first attempt is made then, others after growing pauses while the instance lives, and from then
 * on by the cron trigger for a day. An undelivered answer is in STORE, so it survives restarts; it may arrive twice.
 */
import type { Visit } from './context.ts';
import { SpeechFailure } from './failure.ts';
import type { Callback } from './options/callback.ts';
import { invalid } from './options/query.ts';
import { checkUrl } from './remote.ts';
import type { PaymentsBinding, Settings, Store } from './settings.ts';

export interface Delivery {
  callback: Callback;
  requestId: string;
  contentType: string;
  body: Uint8Array;
}

/** The payment of a call, and which of its attempts this call is. */
interface Payment {
  id: string;
  attempt: number;
}

type Outcome = 'open' | 'charged' | 'unpaid';

interface StoredDelivery {
  payment: Payment;
  url: string;
  method: 'POST' | 'PUT';
  requestId: string;
  contentType: string;
  /** Base64. */
  body: string;
  /** Milliseconds since the epoch, before which the cron trigger leaves it to the instance that made it. */
  notBefore: number;
}

const PREFIX = 'callback:';
const PAUSES_MS = [0, 2_000, 10_000, 60_000];
/** The toll takes the money after this service has answered: from milliseconds to as long as a chain takes. */
const OUTCOME_PAUSES_MS = [20, 100, 250, 500, 1_000, 2_000, 4_000, 8_000];
const KEEP_SECONDS = 24 * 60 * 60;
const ATTEMPT_MS = 30_000;
/** Answers that one run of the cron trigger tries to deliver, and how many of them at the same time. */
const MOST_AT_ONCE = 100;
const LANES = 10;

/**
 * Before any work is done: what cannot be delivered would be work for nothing.
 * @throws SpeechFailure INVALID_QUERY_PARAMETER for a URL that is not public, UNPROCESSABLE_OPTION where nobody can say
 * whether the call was paid, or nothing can be kept until then
 */
export function checkCallback(callback: Callback | undefined, visit: Visit): void {
  if (callback === undefined) return;
  const { privateHosts } = visit.settings;
  try {
    checkUrl(callback.url, privateHosts);
  } catch {
    throw invalid('callback', 'expected the address of a public host, without credentials');
  }
  if (visit.store === undefined || visit.payments === undefined || paymentOf(visit.request) === undefined) {
    throw new SpeechFailure('UNPROCESSABLE_OPTION', 'There are no callbacks here; leave callback out.');
  }
}

/** As the host's toll says; callers cannot. */
function paymentOf({ headers }: Request): Payment | undefined {
  const id = headers.get('x-payment-id');
  const attempt = Number(headers.get('x-payment-attempt'));
  return id !== null && Number.isSafeInteger(attempt) && attempt > 0 ? { id, attempt } : undefined;
}

/** Answers when the delivery is stored; goes on in the background, when the answer is charged. */
export async function deliver(visit: Visit, delivery: Delivery): Promise<void> {
  const { store, payments, settings } = visit;
  const payment = paymentOf(visit.request);
  if (store === undefined || payments === undefined || payment === undefined) throw new Error('no payment to wait for');
  const key = `${PREFIX}${delivery.requestId}`;
  const stored: StoredDelivery = {
    ...delivery.callback,
    payment,
    requestId: delivery.requestId,
    contentType: delivery.contentType,
    body: toBase64(delivery.body),
    notBefore: Date.now() + total(OUTCOME_PAUSES_MS) + PAUSES_MS.reduce((sum, pause) => sum + pause + ATTEMPT_MS, 0),
  };
  await store.put(key, JSON.stringify(stored), { expirationTtl: KEEP_SECONDS });
  visit.waitUntil(
    finalOutcome(payments, payment).then(async (outcome) => {
      if (outcome === 'open') return;
      if (outcome === 'unpaid' || (await attempts(stored, settings))) await store.delete(key);
    }),
  );
}

function total(pauses: readonly number[]): number {
  return pauses.reduce((sum, pause) => sum + pause, 0);
}

async function finalOutcome(payments: PaymentsBinding, payment: Payment): Promise<Outcome> {
  for (const pause of OUTCOME_PAUSES_MS) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    const outcome = await outcomeOf(payments, payment);
    if (outcome !== 'open') return outcome;
  }
  return 'open';
}

/** What cannot be learnt is open: nothing is delivered for it, and nothing is dropped. */
async function outcomeOf(payments: PaymentsBinding, { id, attempt }: Payment): Promise<Outcome> {
  try {
    const response = await payments.fetch('http://payments/outcome', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ payment: id, attempt }),
    });
    const { outcome } = (await response.json()) as { outcome?: unknown };
    return response.ok && (outcome === 'charged' || outcome === 'unpaid') ? outcome : 'open';
  } catch {
    return 'open';
  }
}

/**
 * For the cron trigger: one attempt for each answer that is still here, up to a limit. Where there are more, it begins
 * at another one each time, so that those whose receivers are gone keep no other from being delivered.
 */
export async function deliverStored(
  store: Store,
  payments: PaymentsBinding | undefined,
  settings: Settings,
): Promise<void> {
  if (payments === undefined) return;
  const names: string[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await store.list({ prefix: PREFIX, ...(cursor === undefined ? {} : { cursor }) });
    names.push(...page.keys.map(({ name }) => name));
    cursor = page.cursor;
    if (!cursor) break;
  }
  const first = Math.floor(Math.random() * names.length);
  const due = [...names.slice(first), ...names.slice(0, first)].slice(0, MOST_AT_ONCE);
  const lane = async () => {
    for (let name = due.shift(); name !== undefined; name = due.shift()) {
      await deliverOne(store, payments, name, settings);
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

async function deliverOne(store: Store, payments: PaymentsBinding, name: string, settings: Settings): Promise<void> {
  const text = await store.get(name);
  if (text === null) return;
  const stored = JSON.parse(text) as StoredDelivery;
  if (stored.notBefore > Date.now()) return;
  const outcome = await outcomeOf(payments, stored.payment);
  if (outcome === 'open') return;
  if (outcome === 'unpaid' || (await attempt(stored, settings))) await store.delete(name);
}

async function attempts(stored: StoredDelivery, settings: Settings): Promise<boolean> {
  for (const pause of PAUSES_MS) {
    if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause));
    if (await attempt(stored, settings)) return true;
  }
  return false;
}

/** Redirects are not followed: they would lead around the check of the address. */
async function attempt(stored: StoredDelivery, settings: Settings): Promise<boolean> {
  try {
    const response = await fetch(checkUrl(stored.url, settings.privateHosts), {
      method: stored.method,
      headers: { 'content-type': stored.contentType, 'dg-request-id': stored.requestId },
      body: fromBase64(stored.body),
      redirect: 'manual',
      signal: AbortSignal.timeout(ATTEMPT_MS),
    });
    await response.body?.cancel();
    return response.status >= 200 && response.status < 300;
  } catch {
    return false;
  }
}

export function toBase64(bytes: Uint8Array): string {
  let binary = '';
  // spread in pieces: an argument list has a limit
  for (let at = 0; at < bytes.length; at += 0x8000) binary += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(binary);
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
