/**
 * R2 over HTTP as workerd speaks it (workerd src/workerd/api/r2-rpc.c++): calls that read come in a header of a GET,
 * calls that write as JSON in front of the body of a PUT. All of it is untrusted and checked in requests.ts.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import type { Logger } from 'pino';
import type { KnownBytes } from '../blobs/backend.ts';
import { RequestBody } from '../body.ts';
import type { Gate, Handler } from '../listener.ts';
import type { Operations } from '../metrics.ts';
import type { Lease } from '../open-stores.ts';
import { BodyCut } from '../refusal.ts';
import { R2Error, r2Errors } from './errors.ts';
import { GATHER_BYTES, MAX_REQUEST_METADATA_BYTES } from './limits.ts';
import { list } from './listing.ts';
import { objectJson } from './objects.ts';
import { type GetRequest, parseReadRequest, parseWriteRequest, type WriteRequest } from './requests.ts';
import type { R2Store } from './store.ts';

export interface R2HandlerOptions {
  /** The tenant's store, open until `release`. */
  acquire: () => Lease<R2Store>;
  release: (lease: Lease<R2Store>) => void;
  gate: Gate;
  operations: Operations;
  log: Logger;
}

/** Serves one tenant's bucket. */
export function r2Handler(options: R2HandlerOptions): Handler {
  return (request, response) => {
    response.sendDate = false;
    const admitted = options.gate.admit(response, () => handle(options, request, response));
    if (!admitted) void refuse(request, response, r2Errors.tooManyRequests());
  };
}

function handle(options: R2HandlerOptions, request: IncomingMessage, response: ServerResponse): void {
  serve(options, request, response).catch((error) => {
    if (error instanceof BodyCut || response.destroyed) {
      response.destroy();
      return;
    }
    if (!(error instanceof R2Error)) {
      options.operations.fail('r2', request.method ?? '');
      options.log.error({ err: error, method: request.method }, 'an R2 call failed');
    }
    return refuse(request, response, error instanceof R2Error ? error : r2Errors.internal());
  });
}

async function serve(options: R2HandlerOptions, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const call = request.method === 'GET' ? read : request.method === 'PUT' ? write : undefined;
  if (!call) throw r2Errors.badRequest();
  const lease = options.acquire();
  try {
    await call(options, lease.store, request, response);
  } finally {
    options.release(lease);
  }
}

async function read(
  options: R2HandlerOptions,
  store: R2Store,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const call = parseReadRequest(request.headers['cf-r2-request'] as string | undefined);
  options.operations.count('r2', call.method);
  switch (call.method) {
    case 'head': {
      const row = store.head(call.object);
      if (call.ssec !== undefined) throw r2Errors.ssec();
      const range = { offset: 0, length: row.size };
      return answerJson(options.gate, response, objectJson(row, { http: true, custom: true, range }));
    }
    case 'get':
      return get(options.gate, store, call, response);
    case 'list':
      return answerJson(options.gate, response, list(store.index, call));
  }
}

async function get(gate: Gate, store: R2Store, call: GetRequest, response: ServerResponse): Promise<void> {
  const { row, range } = store.get(call);
  const source = store.read(row, range);
  const bytes = Buffer.isBuffer(source) ? source : await source;
  const metadata = objectJson(row, { http: true, custom: true, range });
  const metadataBytes = Buffer.byteLength(metadata);
  response.writeHead(200, [
    'CF-R2-Metadata-Size',
    String(metadataBytes),
    'Content-Length',
    String(metadataBytes + range.length),
  ]);
  if (Buffer.isBuffer(bytes)) {
    gate.hold(response, bytes.length);
    response.write(metadata);
    response.end(bytes);
    return;
  }
  response.write(metadata);
  await pipeline(bytes, response).catch((error) => {
    response.destroy();
    if (!(error as NodeJS.ErrnoException).code?.startsWith('ERR_STREAM_PREMATURE')) throw error;
  });
}

async function write(
  options: R2HandlerOptions,
  store: R2Store,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const header = request.headers['cf-r2-metadata-size'];
  const size = typeof header === 'string' && /^\d{1,9}$/.test(header) ? Number(header) : Number.NaN;
  if (!(size <= MAX_REQUEST_METADATA_BYTES)) throw r2Errors.badRequest();
  const body = RequestBody.of(request);
  if (body.length === undefined) throw r2Errors.lengthMissing();
  if (body.length < size) throw r2Errors.badRequest();
  const call = parseWriteRequest(await body.take(size));
  options.operations.count('r2', call.method);
  answerJson(options.gate, response, await perform(store, call, body, body.length - size));
}

/** Answers the reply's JSON. */
async function perform(store: R2Store, call: WriteRequest, body: RequestBody, length: number): Promise<string> {
  switch (call.method) {
    case 'put':
      return objectJson(await store.put(call, await bytesOf(body, length)), { http: true, custom: true });
    case 'uploadPart':
      return JSON.stringify({ etag: await store.uploads.putPart(call, await bytesOf(body, length)) });
    case 'createMultipartUpload':
      return JSON.stringify({ uploadId: await store.uploads.create(call) });
    case 'completeMultipartUpload':
      return objectJson(await store.uploads.complete(call), { http: true, custom: true });
    case 'abortMultipartUpload':
      await store.uploads.abort(call);
      return '{}';
    case 'delete':
      if (call.object === undefined && call.objects === undefined) throw r2Errors.badRequest();
      await store.delete(call.objects ?? [call.object ?? '']);
      return '{}';
  }
}

/** Small bodies in one piece, which costs least; large ones as a stream, which needs least. */
async function bytesOf(body: RequestBody, length: number): Promise<KnownBytes> {
  if (length > GATHER_BYTES) return { length, stream: body };
  const chunks = await body.all(GATHER_BYTES);
  const received = chunks?.reduce((sum, chunk) => sum + chunk.length, 0);
  // A body may be chunked beside its Content-Length, and then has another length.
  if (!chunks || received !== length) throw r2Errors.badRequest();
  return { length, chunks };
}

function answerJson(gate: Gate, response: ServerResponse, json: string): void {
  gate.hold(response, json.length);
  const size = String(Buffer.byteLength(json));
  response.writeHead(200, ['CF-R2-Metadata-Size', size, 'Content-Type', 'application/json', 'Content-Length', size]);
  response.end(json);
}

async function refuse(request: IncomingMessage, response: ServerResponse, error: R2Error): Promise<void> {
  if (response.headersSent) {
    response.destroy();
    return;
  }
  if (!request.complete) await RequestBody.of(request).drain();
  const header = Buffer.from(JSON.stringify({ version: 1, v4code: error.v4code, message: error.message }));
  const headers = ['CF-R2-Error', header.toString('latin1')];
  if (!error.object) {
    response.writeHead(error.status, [...headers, 'Content-Length', '0']);
    response.end();
    return;
  }
  // A get whose condition failed answers the object without its body.
  const { object } = error;
  const json = objectJson(object, { http: true, custom: true, range: { offset: 0, length: object.size } });
  const size = String(Buffer.byteLength(json));
  response.writeHead(error.status, [...headers, 'CF-R2-Metadata-Size', size, 'Content-Length', size]);
  response.end(json);
}
