/**
 * The Cache API as workerd speaks it (workerd src/workerd/api/cache.c++): GET with the URL is a match, PUT brings an answer
 * as its body, PURGE deletes; `cf-cache-namespace` names a cache that was opened by name. Whatever arrives is untrusted.
 *
 * A cache may forget at any time: what goes wrong with a match is a miss, and with a put an answer that is not kept.
 */
import { hash } from 'node:crypto';
import type { Bytes } from '../store-process/blobs/backend.ts';
import type { CallBody } from '../store-process/calls/body.ts';
import type { Call } from '../store-process/calls/call.ts';
import type { HandlerOptions } from '../store-process/kind.ts';
import type { Gate, Handler } from '../store-process/listener.ts';
import { BodyCut } from '../store-process/refusal.ts';
import { keptHead, parseAnswerHead } from './freshness.ts';
import { MAX_HEAD_BYTES } from './limits.ts';
import { replyTo } from './reply.ts';
import { type CacheStore, NoRoom } from './store.ts';

/** Up to here an answer is gathered in memory before it is stored. */
const GATHER_BYTES = 256 * 1024;
const EMPTY_LINE = '\r\n\r\n';

type Operation = 'match' | 'put' | 'delete' | 'unknown';
const OPERATIONS: Readonly<Record<string, Operation>> = { GET: 'match', PUT: 'put', PURGE: 'delete' };

type CacheHandlerOptions = HandlerOptions<CacheStore>;
/** @returns false: there is no answer but a refusal */
type Work = (store: CacheStore, call: Call, gate: Gate) => Promise<boolean>;
const WORK: Readonly<Record<Operation, Work>> = { match, put, delete: remove, unknown: async () => false };

/** Serves one tenant's caches. */
export function cacheHandler(options: CacheHandlerOptions): Handler {
  return (call) => {
    const operation = OPERATIONS[call.method] ?? 'unknown';
    const admitted = options.gate.admit(call, () => handle(options, operation, call));
    // workerd tells a handler whose delete() gets it that there are too many subrequests.
    if (!admitted) void refuse(operation, call, 429);
  };
}

function handle(options: CacheHandlerOptions, operation: Operation, call: Call): void {
  options.operations.count('cache', operation);
  serve(options, operation, call).catch((error) => {
    if (error instanceof BodyCut || call.closed) return call.cut();
    if (!(error instanceof NoRoom)) {
      options.operations.fail('cache', operation);
      options.log.error({ err: error, operation }, 'a call of a cache failed');
    }
    return refuse(operation, call, 500);
  });
}

async function serve(options: CacheHandlerOptions, operation: Operation, call: Call): Promise<void> {
  const lease = options.acquire();
  try {
    const done = await WORK[operation](lease.store, call, options.gate);
    if (!done) await refuse(operation, call, 404);
  } finally {
    call.body.release();
    options.release(lease);
  }
}

/** Two spellings of a URL are one key. Its digest is kept: a key is as long as a handler likes. */
export function keyOf(cache: string | undefined, url: string): Buffer {
  const parsed = URL.parse(url);
  if (parsed?.hash) parsed.hash = '';
  return hash('sha256', `${cache === undefined ? '' : `=${cache}`}\n${parsed?.href ?? url}`, 'buffer');
}

function keyOfCall(call: Call): Buffer {
  return keyOf(call.field('cf-cache-namespace'), (call.origin ?? `http://${call.field('host')}`) + call.target);
}

async function match(store: CacheStore, call: Call, gate: Gate): Promise<boolean> {
  const entry = store.match(keyOfCall(call));
  if (!entry) return false;
  const { status, fields, from, length } = replyTo(entry, {
    ifNoneMatch: call.field('if-none-match'),
    ifModifiedSince: call.field('if-modified-since'),
    ifRange: call.field('if-range'),
    range: call.field('range'),
  });
  const age = Math.max(0, Math.floor((store.now() - entry.born) / 1_000));
  const all = [...entry.fields, ...fields, 'Age', String(age), 'CF-Cache-Status', 'HIT'];
  const bytes = store.body(entry, from, length);
  if (Buffer.isBuffer(bytes)) {
    gate.hold(call, bytes.length);
    call.answer(status, all, [bytes]);
  } else await call.send(status, all, length, await bytes);
  return true;
}

async function put(store: CacheStore, call: Call): Promise<boolean> {
  const key = keyOfCall(call);
  const answer = await incomingAnswer(call.body);
  const head = answer && parseAnswerHead(answer.head);
  const kept = head && keptHead(head, call.field('authorization') !== undefined, store.now());
  if (!answer || !kept) return false;
  if (kept.until > store.now()) await store.put(key, kept, answer.body);
  else {
    await call.body.drain();
    await store.delete(key);
  }
  call.answer(204, []);
  return true;
}

async function remove(store: CacheStore, call: Call): Promise<boolean> {
  const existed = await store.delete(keyOfCall(call));
  if (existed) call.answer(200, []);
  return existed;
}

/** The answer in the body of a put; undefined: its head is too large. */
async function incomingAnswer(body: CallBody): Promise<{ head: string; body: Bytes } | undefined> {
  const chunks = await body.all(GATHER_BYTES);
  const pieces = body[Symbol.asyncIterator]();
  let bytes = chunks?.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks ?? []);
  let end = bytes.indexOf(EMPTY_LINE);
  while (end < 0 && bytes.length <= MAX_HEAD_BYTES) {
    const { value, done } = await pieces.next();
    if (done) return undefined;
    bytes = Buffer.concat([bytes, value]);
    end = bytes.indexOf(EMPTY_LINE);
  }
  if (end < 0 || end > MAX_HEAD_BYTES) return undefined;
  const head = bytes.toString('latin1', 0, end);
  const start = end + EMPTY_LINE.length;
  const rest = bytes.subarray(start);
  if (chunks) return { head, body: { length: rest.length, chunks: [rest] } };
  const stream = following(rest, pieces);
  return {
    head,
    body: body.length === undefined ? { length: undefined, stream } : { length: body.length - start, stream },
  };
}

async function* following(first: Buffer, rest: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield* rest;
}

/** @param status for a delete, which must not look as if it were done */
async function refuse(operation: Operation, call: Call, status: number): Promise<void> {
  if (call.answered) return call.cut();
  if (operation === 'match') return call.answer(504, ['CF-Cache-Status', 'MISS']);
  await call.body.drain();
  call.answer(operation === 'put' ? 413 : status, []);
}
