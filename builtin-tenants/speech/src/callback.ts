/**
 * Delivers answers to `callback` URLs: at once, again after growing pauses while the instance lives, and from then on by
 * the cron trigger for a day. An undelivered answer is in STORE, so it survives restarts; it may arrive twice.
 */
import type { Visit } from './context.ts';
import type { Callback } from './options/callback.ts';
import { invalid } from './options/query.ts';
import { checkUrl } from './remote.ts';
import type { Settings, Store } from './settings.ts';

export interface Delivery {
  callback: Callback;
  requestId: string;
  contentType: string;
  body: Uint8Array;
}

interface StoredDelivery {
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
const KEEP_SECONDS = 24 * 60 * 60;
const ATTEMPT_MS = 30_000;
/** Answers that one run of the cron trigger tries to deliver, and how many of them at the same time. */
const MOST_AT_ONCE = 100;
const LANES = 10;

/**
 * Before any work is done: what cannot be delivered would be work for nothing.
 * @throws SpeechFailure INVALID_QUERY_PARAMETER for a URL that is not public
 */
export function checkCallback(callback: Callback | undefined, { privateHosts }: Settings): void {
  if (callback === undefined) return;
  try {
    checkUrl(callback.url, privateHosts);
  } catch {
    throw invalid('callback', 'expected the address of a public host, without credentials');
  }
}

/** Answers when the delivery is stored; goes on in the background. */
export async function deliver(visit: Visit, delivery: Delivery): Promise<void> {
  const { store, settings } = visit;
  const key = `${PREFIX}${delivery.requestId}`;
  const stored: StoredDelivery = {
    ...delivery.callback,
    requestId: delivery.requestId,
    contentType: delivery.contentType,
    body: toBase64(delivery.body),
    notBefore: Date.now() + PAUSES_MS.reduce((sum, pause) => sum + pause + ATTEMPT_MS, 0),
  };
  await store?.put(key, JSON.stringify(stored), { expirationTtl: KEEP_SECONDS });
  visit.waitUntil(
    attempts(stored, settings).then(async (delivered) => {
      if (delivered) await store?.delete(key);
    }),
  );
}

/**
 * For the cron trigger: one attempt for each answer that is still here, up to a limit. Where there are more, it begins
 * at another one each time, so that those whose receivers are gone keep no other from being delivered.
 */
export async function deliverStored(store: Store, settings: Settings): Promise<void> {
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
    for (let name = due.shift(); name !== undefined; name = due.shift()) await deliverOne(store, name, settings);
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

async function deliverOne(store: Store, name: string, settings: Settings): Promise<void> {
  const text = await store.get(name);
  if (text === null) return;
  const stored = JSON.parse(text) as StoredDelivery;
  if (stored.notBefore > Date.now()) return;
  if (await attempt(stored, settings)) await store.delete(name);
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
