/**
 * KV over HTTP as workerd speaks it (workerd src/workerd/api/kv.c++): the boundary where a tenant's bytes become calls
 * of the store. Every path, header and body here is untrusted and is checked before use.
 */

import { setImmediate as nextTurn } from 'node:timers/promises';
import { z } from 'zod';
import { fullDisk } from '../../shared/full-disk.ts';
import type { Bytes } from '../store-process/blobs/backend.ts';
import type { CallBody } from '../store-process/calls/body.ts';
import type { Call, Fields } from '../store-process/calls/call.ts';
import type { HandlerOptions } from '../store-process/kind.ts';
import type { Gate, Handler } from '../store-process/listener.ts';
import { BodyCut } from '../store-process/refusal.ts';
import { KvError, kvErrors } from './errors.ts';
import { MAX_BULK_BYTES, MAX_BULK_KEYS, MAX_BULK_REQUEST_BYTES, MAX_VALUE_BYTES } from './limits.ts';
import type { Entry, KvStore } from './store.ts';
import {
  checkedCacheTtl,
  checkedExpiration,
  checkedKey,
  checkedListOptions,
  checkedMetadata,
  encodeCursor,
  keyOfPath,
} from './validate.ts';

/** Up to here a value is gathered in memory before it is stored. */
const GATHER_BYTES = 256 * 1024;
/** A value of a bulk get from which on the next one waits for the next turn of the event loop. */
const YIELD_BYTES = 64 * 1024;

type KvHandlerOptions = HandlerOptions<KvStore>;

/** Serves one tenant's store. */
export function kvHandler(options: KvHandlerOptions): Handler {
  return (call) => {
    const admitted = options.gate.admit(call, () => handle(options, call));
    if (!admitted) void refuse(call, kvErrors.tooManyRequests());
  };
}

function handle(options: KvHandlerOptions, call: Call): void {
  const operation = operationOf(call);
  options.operations.count('kv', operation);
  serve(options, operation, call).catch((error) => {
    if (error instanceof BodyCut || call.closed) {
      call.cut();
      return;
    }
    if (!(error instanceof KvError)) {
      options.operations.fail('kv', operation);
      options.log.error({ err: error, operation }, 'a KV call failed');
    }
    return refuse(call, error instanceof KvError ? error : fullDisk(error) ? kvErrors.diskFull() : kvErrors.internal());
  });
}

type Operation = 'get' | 'getMany' | 'put' | 'list' | 'delete' | 'unknown';

function operationOf({ method, target }: Call): Operation {
  switch (method) {
    case 'GET':
      return target === '/' || target.startsWith('/?') ? 'list' : 'get';
    case 'PUT':
      return 'put';
    case 'DELETE':
      return 'delete';
    case 'POST':
      return target === '/bulk/get' || target.startsWith('/bulk/get?') ? 'getMany' : 'unknown';
    default:
      return 'unknown';
  }
}

async function serve(options: KvHandlerOptions, operation: Operation, call: Call): Promise<void> {
  if (operation === 'unknown') throw kvErrors.methodNotAllowed();
  const lease = options.acquire();
  try {
    await WORK[operation](lease.store, call, options.gate);
  } finally {
    call.body.release();
    options.release(lease);
  }
}

type Work = (store: KvStore, call: Call, gate: Gate) => Promise<void>;

const WORK: Record<Exclude<Operation, 'unknown'>, Work> = { get, getMany, put, list, delete: remove };

/** Splits a call's address. Nearly all have exactly this query, which then needs no parsing. */
function parse({ target }: Call): { key: string; query: URLSearchParams | undefined } {
  const mark = target.indexOf('?');
  if (mark < 0) return { key: keyOfPath(target, false), query: undefined };
  const path = target.slice(0, mark);
  const text = target.slice(mark + 1);
  if (text === 'urlencoded=true') return { key: keyOfPath(path, true), query: undefined };
  const query = new URLSearchParams(text);
  return { key: keyOfPath(path, query.get('urlencoded')?.toLowerCase() === 'true'), query };
}

async function get(store: KvStore, call: Call, gate: Gate): Promise<void> {
  const { key, query } = parse(call);
  const bytes = checkedKey(key);
  const found = store.get(bytes, query && checkedCacheTtl(query.get('cache_ttl')));
  const entry = found instanceof Promise ? await found : found;
  if (!entry) throw kvErrors.notFound();
  const value = entry.value ?? store.read(entry);
  if (Buffer.isBuffer(value)) {
    gate.hold(call, value.length);
    call.answer(200, fieldsOf(entry), [value]);
    return;
  }
  await call.send(200, fieldsOf(entry), entry.size, await value);
}

function fieldsOf(entry: Entry): Fields {
  const fields: string[] = [];
  if (entry.metadata !== null) fields.push('CF-KV-Metadata', fieldText(entry.metadata));
  if (entry.expiration !== null) fields.push('CF-Expiration', String(entry.expiration));
  return fields;
}

/** One character per byte. JSON leaves DEL as it is, which no field may hold. */
function fieldText(json: Buffer): string {
  return json.toString('latin1').replaceAll('\x7f', '\\u007f');
}

async function put(store: KvStore, call: Call): Promise<void> {
  const { key, query } = parse(call);
  const bytes = checkedKey(key);
  const expiration = checkedExpiration(
    query?.get('expiration') ?? null,
    query?.get('expiration_ttl') ?? null,
    store.seconds(),
  );
  const metadata = checkedMetadata(call.field('cf-kv-metadata'));
  const value = await incomingValue(call.body);
  await store.put(bytes, value, expiration, metadata);
  call.answer(200, []);
}

/** Small values whole, large ones as a stream; with its length where that is known. */
async function incomingValue(body: CallBody): Promise<Bytes> {
  if (body.length !== undefined) {
    if (body.length > MAX_VALUE_BYTES) {
      await body.drain();
      throw kvErrors.valueTooLong(body.length);
    }
    if (body.length > GATHER_BYTES) return { length: body.length, stream: body };
  }
  const chunks = await body.all(GATHER_BYTES);
  if (chunks) return { length: chunks.reduce((sum, chunk) => sum + chunk.length, 0), chunks };
  return { length: undefined, stream: body };
}

async function remove(store: KvStore, call: Call): Promise<void> {
  await store.delete(checkedKey(parse(call).key));
  call.answer(200, []);
}

async function list(store: KvStore, call: Call, gate: Gate): Promise<void> {
  const { target } = call;
  const mark = target.indexOf('?');
  const options = checkedListOptions(new URLSearchParams(mark < 0 ? '' : target.slice(mark + 1)));
  const found = await store.list(options);
  const more = found.length > options.limit;
  const page = more ? found.slice(0, options.limit) : found;
  const keys = page.map(({ key, expiration, metadata }) => ({
    name: key.toString(),
    ...(expiration === null ? {} : { expiration }),
    // workerd wants the metadata as a string that holds JSON.
    ...(metadata === null ? {} : { metadata: metadata.toString() }),
  }));
  const last = page.at(-1);
  answerJson(
    gate,
    call,
    JSON.stringify({ keys, list_complete: !more, ...(more && last ? { cursor: encodeCursor(last.key) } : {}) }),
  );
}

const bulkRequest = z.object({
  keys: z.array(z.string()),
  type: z.string().optional(),
  withMetadata: z.boolean().optional(),
  cacheTtl: z.union([z.string(), z.number()]).optional(),
});

async function getMany(store: KvStore, call: Call, gate: Gate): Promise<void> {
  const chunks = await call.body.all(MAX_BULK_REQUEST_BYTES);
  const { keys, type = 'text', withMetadata = false, cacheTtl } = parseBulk(chunks);
  if (type !== 'text' && type !== 'json') throw kvErrors.bulkType(type);
  if (keys.length > MAX_BULK_KEYS) throw kvErrors.bulkTooMany();
  if (keys.length < 1) throw kvErrors.bulkTooFew();
  await gate.alone(call, () => answerMany(store, call, gate, { keys, type, withMetadata, cacheTtl }));
}

interface Many {
  keys: string[];
  type: 'text' | 'json';
  withMetadata: boolean;
  cacheTtl: string | number | undefined;
}

async function answerMany(store: KvStore, call: Call, gate: Gate, many: Many): Promise<void> {
  const { keys, type, withMetadata, cacheTtl } = many;
  let total = 0;
  let length = 0;
  const pieces: Buffer[] = [];
  for (const key of new Set(keys)) {
    const bytes = checkedKey(key);
    const maxAge = checkedCacheTtl(cacheTtl === undefined ? undefined : String(cacheTtl));
    const entry = await store.get(bytes, maxAge);
    if (entry) total += entry.size;
    if (total > MAX_BULK_BYTES) throw kvErrors.bulkTooLarge();
    // Built as text, because an object would lose the key `__proto__` and reorder keys that are numbers.
    const value = entry ? await bulkValue(store, entry, type, withMetadata) : 'null';
    const piece = Buffer.from(`${pieces.length === 0 ? '{' : ','}${JSON.stringify(key)}:${value}`);
    pieces.push(piece);
    length += piece.length;
    // Other tenants are served meanwhile.
    if (piece.length > YIELD_BYTES) await nextTurn();
  }
  pieces.push(Buffer.from('}'));
  gate.hold(call, length);
  call.answer(200, ['Content-Type', 'application/json'], pieces);
}

function parseBulk(chunks: Buffer[] | undefined): z.infer<typeof bulkRequest> {
  try {
    return bulkRequest.parse(JSON.parse(Buffer.concat(chunks ?? []).toString()));
  } catch {
    throw kvErrors.badBulkBody();
  }
}

async function bulkValue(store: KvStore, entry: Entry, type: 'text' | 'json', withMetadata: boolean): Promise<string> {
  const source = entry.value ?? store.read(entry);
  const bytes = Buffer.isBuffer(source) ? source : Buffer.concat(await (await source).toArray());
  const text = bytes.toString();
  const value = type === 'json' ? jsonText(text) : JSON.stringify(text);
  return withMetadata ? `{"value":${value},"metadata":${entry.metadata?.toString() ?? 'null'}}` : value;
}

function jsonText(text: string): string {
  try {
    JSON.parse(text);
    return text;
  } catch {
    throw kvErrors.bulkNotType('json');
  }
}

function answerJson(gate: Gate, call: Call, json: string): void {
  const bytes = Buffer.from(json);
  gate.hold(call, bytes.length);
  call.answer(200, ['Content-Type', 'application/json'], [bytes]);
}

async function refuse(call: Call, error: KvError): Promise<void> {
  if (call.answered) return call.cut();
  await call.body.drain();
  // A reason phrase is printable ASCII.
  call.answer(error.status, [], [], error.message.replace(/[^\x20-\x7e]/g, '?').slice(0, 512));
}
