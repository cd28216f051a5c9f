/**
 * KV over HTTP as workerd speaks it (workerd src/workerd/api/kv.c++): the boundary where a tenant's bytes become calls
 * of the store. Every path, header and body here is untrusted and is checked before use.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Bytes } from '../blobs/backend.ts';
import { RequestBody } from '../body.ts';
import type { Gate, Handler } from '../listener.ts';
import type { Operations } from '../metrics.ts';
import type { Lease } from '../open-stores.ts';
import { BodyCut } from '../refusal.ts';
import { KvError, kvErrors } from './errors.ts';
import { MAX_BULK_BYTES, MAX_BULK_KEYS, MAX_BULK_REQUEST_BYTES, MAX_VALUE_BYTES } from './limits.ts';
import type { Entry, KvStore } from './store.ts';
import {
  checkCacheTtl,
  checkedExpiration,
  checkedKey,
  checkedListOptions,
  checkedMetadata,
  encodeCursor,
  keyOfPath,
} from './validate.ts';

/** Up to here a value is gathered in memory before it is stored. */
const GATHER_BYTES = 256 * 1024;

export interface KvHandlerOptions {
  /** The tenant's store, open until `release`. */
  acquire: () => Lease<KvStore>;
  release: (lease: Lease<KvStore>) => void;
  gate: Gate;
  operations: Operations;
  log: Logger;
}

/** Serves one tenant's store. */
export function kvHandler(options: KvHandlerOptions): Handler {
  return (request, response) => {
    response.sendDate = false;
    const admitted = options.gate.admit(response, () => handle(options, request, response));
    if (!admitted) void refuse(request, response, kvErrors.tooManyRequests());
  };
}

function handle(options: KvHandlerOptions, request: IncomingMessage, response: ServerResponse): void {
  const operation = operationOf(request);
  options.operations.count('kv', operation);
  serve(options, operation, request, response).catch((error) => {
    if (error instanceof BodyCut || response.destroyed) {
      response.destroy();
      return;
    }
    if (!(error instanceof KvError)) {
      options.operations.fail('kv', operation);
      options.log.error({ err: error, operation }, 'a KV call failed');
    }
    return refuse(request, response, error instanceof KvError ? error : kvErrors.internal());
  });
}

type Operation = 'get' | 'getMany' | 'put' | 'list' | 'delete' | 'unknown';

function operationOf({ method, url = '/' }: IncomingMessage): Operation {
  switch (method) {
    case 'GET':
      return url === '/' || url.startsWith('/?') ? 'list' : 'get';
    case 'PUT':
      return 'put';
    case 'DELETE':
      return 'delete';
    case 'POST':
      return url === '/bulk/get' || url.startsWith('/bulk/get?') ? 'getMany' : 'unknown';
    default:
      return 'unknown';
  }
}

async function serve(
  options: KvHandlerOptions,
  operation: Operation,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  if (operation === 'unknown') throw kvErrors.methodNotAllowed();
  const lease = options.acquire();
  try {
    await CALLS[operation](lease.store, request, response, options.gate);
  } finally {
    options.release(lease);
  }
}

type Call = (store: KvStore, request: IncomingMessage, response: ServerResponse, gate: Gate) => Promise<void>;

const CALLS: Record<Exclude<Operation, 'unknown'>, Call> = { get, getMany, put, list, delete: remove };

/** Splits a call's address. Nearly all have exactly this query, which then needs no parsing. */
function parse({ url = '/' }: IncomingMessage): { key: string; query: URLSearchParams | undefined } {
  const mark = url.indexOf('?');
  if (mark < 0) return { key: keyOfPath(url, false), query: undefined };
  const path = url.slice(0, mark);
  const text = url.slice(mark + 1);
  if (text === 'urlencoded=true') return { key: keyOfPath(path, true), query: undefined };
  const query = new URLSearchParams(text);
  return { key: keyOfPath(path, query.get('urlencoded')?.toLowerCase() === 'true'), query };
}

async function get(store: KvStore, request: IncomingMessage, response: ServerResponse, gate: Gate): Promise<void> {
  const { key, query } = parse(request);
  const bytes = checkedKey(key);
  if (query) checkCacheTtl(query.get('cache_ttl'));
  const entry = store.get(bytes);
  if (!entry) throw kvErrors.notFound();
  const value = entry.value ?? store.read(entry);
  if (Buffer.isBuffer(value)) {
    gate.hold(response, value.length);
    response.writeHead(200, headersOf(entry));
    response.end(value);
    return;
  }
  await send(response, await value, headersOf(entry));
}

function headersOf(entry: Entry): string[] {
  const headers = ['Content-Length', String(entry.size)];
  if (entry.metadata !== null) headers.push('CF-KV-Metadata', headerText(entry.metadata));
  if (entry.expiration !== null) headers.push('CF-Expiration', String(entry.expiration));
  return headers;
}

/** One character per byte, as Node sends header values. JSON leaves DEL as it is, which no header may hold. */
function headerText(json: Buffer): string {
  return json.toString('latin1').replaceAll('\x7f', '\\u007f');
}

async function send(response: ServerResponse, stream: Readable, headers: string[]): Promise<void> {
  response.writeHead(200, headers);
  await pipeline(stream, response).catch((error) => {
    response.destroy();
    if (!(error as NodeJS.ErrnoException).code?.startsWith('ERR_STREAM_PREMATURE')) throw error;
  });
}

async function put(store: KvStore, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { key, query } = parse(request);
  const bytes = checkedKey(key);
  const expiration = checkedExpiration(
    query?.get('expiration') ?? null,
    query?.get('expiration_ttl') ?? null,
    store.seconds(),
  );
  const metadata = checkedMetadata(request.headers['cf-kv-metadata'] as string | undefined);
  const body = RequestBody.of(request);
  const value = await incomingValue(body);
  await store.put(bytes, value, expiration, metadata);
  answerEmpty(response);
}

/** Small values whole, large ones as a stream; with its length where that is known. */
async function incomingValue(body: RequestBody): Promise<Bytes> {
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

async function remove(store: KvStore, request: IncomingMessage, response: ServerResponse): Promise<void> {
  await store.delete(checkedKey(parse(request).key));
  answerEmpty(response);
}

async function list(
  store: KvStore,
  { url = '/' }: IncomingMessage,
  response: ServerResponse,
  gate: Gate,
): Promise<void> {
  const mark = url.indexOf('?');
  const options = checkedListOptions(new URLSearchParams(mark < 0 ? '' : url.slice(mark + 1)));
  const found = store.list(options);
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
    response,
    JSON.stringify({ keys, list_complete: !more, ...(more && last ? { cursor: encodeCursor(last.key) } : {}) }),
  );
}

const bulkRequest = z.object({
  keys: z.array(z.string()),
  type: z.string().optional(),
  withMetadata: z.boolean().optional(),
  cacheTtl: z.union([z.string(), z.number()]).optional(),
});

async function getMany(store: KvStore, request: IncomingMessage, response: ServerResponse, gate: Gate): Promise<void> {
  const chunks = await RequestBody.of(request).all(MAX_BULK_REQUEST_BYTES);
  const { keys, type = 'text', withMetadata = false, cacheTtl } = parseBulk(chunks);
  if (type !== 'text' && type !== 'json') throw kvErrors.bulkType(type);
  if (keys.length > MAX_BULK_KEYS) throw kvErrors.bulkTooMany();
  if (keys.length < 1) throw kvErrors.bulkTooFew();
  let total = 0;
  const members: string[] = [];
  for (const key of new Set(keys)) {
    const bytes = checkedKey(key);
    checkCacheTtl(cacheTtl === undefined ? undefined : String(cacheTtl));
    const entry = store.get(bytes);
    if (entry) total += entry.size;
    if (total > MAX_BULK_BYTES) throw kvErrors.bulkTooLarge();
    // Built as text, because an object would lose the key `__proto__` and reorder keys that are numbers.
    members.push(`${JSON.stringify(key)}:${entry ? await bulkValue(store, entry, type, withMetadata) : 'null'}`);
  }
  answerJson(gate, response, `{${members.join(',')}}`);
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

function answerEmpty(response: ServerResponse): void {
  response.writeHead(200, ['Content-Length', '0']);
  response.end();
}

function answerJson(gate: Gate, response: ServerResponse, json: string): void {
  gate.hold(response, json.length);
  response.writeHead(200, ['Content-Type', 'application/json', 'Content-Length', String(Buffer.byteLength(json))]);
  response.end(json);
}

async function refuse(request: IncomingMessage, response: ServerResponse, error: KvError): Promise<void> {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  if (!request.complete) await RequestBody.of(request).drain();
  // A reason phrase is printable ASCII.
  response.writeHead(error.status, error.message.replace(/[^\x20-\x7e]/g, '?').slice(0, 512), ['Content-Length', '0']);
  response.end();
}
