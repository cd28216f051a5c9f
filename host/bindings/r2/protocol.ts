import { fullDisk } from '../../shared/full-disk.ts';
import type { KnownBytes } from '../store-process/blobs/backend.ts';
import type { CallBody } from '../store-process/calls/body.ts';
import type { Call, Fields } from '../store-process/calls/call.ts';
import type { HandlerOptions } from '../store-process/kind.ts';
import type { Gate, Handler } from '../store-process/listener.ts';
import { BodyCut } from '../store-process/refusal.ts';
import { R2Error, r2Errors } from './errors.ts';
import { GATHER_BYTES, MAX_FIELD_BYTES, MAX_REQUEST_METADATA_BYTES } from './limits.ts';
import { list } from './listing.ts';
import { objectJson } from './objects.ts';
import { type GetRequest, parseReadRequest, parseWholeGet, parseWriteRequest, type WriteRequest } from './requests.ts';
import type { R2Store } from './store.ts';

type R2HandlerOptions = HandlerOptions<R2Store>;

/** Serves one tenant's bucket. */
export function r2Handler(options: R2HandlerOptions): Handler {
  return (call) => {
    const admitted = options.gate.admit(call, () => handle(options, call));
    if (!admitted) void refuse(call, r2Errors.tooManyRequests());
  };
}

function handle(options: R2HandlerOptions, call: Call): void {
  serve(options, call).catch((error) => {
    if (error instanceof BodyCut || call.closed) {
      call.cut();
      return;
    }
    if (!(error instanceof R2Error)) {
      options.operations.fail('r2', call.method);
      options.log.error({ err: error, method: call.method }, 'an R2 call failed');
    }
    return refuse(call, error instanceof R2Error ? error : fullDisk(error) ? r2Errors.diskFull() : r2Errors.internal());
  });
}

async function serve(options: R2HandlerOptions, call: Call): Promise<void> {
  const work = call.method === 'GET' ? read : call.method === 'PUT' ? write : undefined;
  if (!work) throw r2Errors.badRequest();
  const lease = options.acquire();
  try {
    await work(options, lease.store, call);
  } finally {
    call.body.release();
    options.release(lease);
  }
}

async function read(options: R2HandlerOptions, store: R2Store, call: Call): Promise<void> {
  const field = call.field('cf-r2-request');
  const request = field === undefined ? parseWholeGet(call.target) : parseReadRequest(field);
  options.operations.count('r2', request.method);
  switch (request.method) {
    case 'head': {
      const row = await store.head(request.object);
      if (request.ssec !== undefined) throw r2Errors.ssec();
      const range = { offset: 0, length: row.size };
      return answerJson(options.gate, call, objectJson(row, { http: true, custom: true, range }));
    }
    case 'get':
      return get(options.gate, store, request, call, field === undefined ? metadataInField : metadataInFront);
    case 'list':
      return answerJson(options.gate, call, await store.database.read(() => list(store.index, request), 'snapshot'));
  }
}

async function get(gate: Gate, store: R2Store, request: GetRequest, call: Call, form: Form): Promise<void> {
  const found = store.get(request);
  const { row, range, segments } = found instanceof Promise ? await found : found;
  const { fields, front } = form(objectJson(row, { http: true, custom: true, range }));
  const source = store.read(row, range, segments);
  const bytes = Buffer.isBuffer(source) ? source : await source;
  if (Buffer.isBuffer(bytes)) {
    gate.hold(call, bytes.length);
    call.answer(200, fields, [...front, bytes]);
    return;
  }
  const length = front.reduce((sum, piece) => sum + piece.length, range.length);
  await call.send(200, fields, length, behind(front, bytes));
}

/** Where an answer has an object's metadata. `front`: what comes before the bytes of the object. */
type Form = (json: string) => { fields: Fields; front: Buffer[] };

/** For workerd's own binding: in front of the bytes. */
const metadataInFront: Form = (json) => {
  const metadata = Buffer.from(json);
  return { fields: ['CF-R2-Metadata-Size', String(metadata.length)], front: [metadata] };
};

/** For host/bindings/r2/bucket-binding.js: in a field, which holds ASCII alone. It asks in the other form after a refusal. */
const metadataInField: Form = (json) => {
  const metadata = asciiJson(json);
  if (metadata.length > MAX_FIELD_BYTES) throw r2Errors.metadataTooLarge();
  return { fields: ['x-turnpike-object', metadata], front: [] };
};

function asciiJson(json: string): string {
  return json.replace(/[^\0-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

async function* behind(front: Buffer[], bytes: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield* front;
  yield* bytes;
}

async function write(options: R2HandlerOptions, store: R2Store, call: Call): Promise<void> {
  const field = call.field('cf-r2-metadata-size');
  const size = field !== undefined && /^\d{1,9}$/.test(field) ? Number(field) : Number.NaN;
  if (!(size <= MAX_REQUEST_METADATA_BYTES)) throw r2Errors.badRequest();
  const { body } = call;
  if (body.length === undefined) throw r2Errors.lengthMissing();
  if (body.length < size) throw r2Errors.badRequest();
  const request = parseWriteRequest(await body.take(size));
  options.operations.count('r2', request.method);
  answerJson(options.gate, call, await perform(store, request, body, body.length - size));
}

/** Answers the reply's JSON. */
async function perform(store: R2Store, call: WriteRequest, body: CallBody, length: number): Promise<string> {
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
async function bytesOf(body: CallBody, length: number): Promise<KnownBytes> {
  if (length > GATHER_BYTES) return { length, stream: body };
  const chunks = await body.all(GATHER_BYTES);
  const received = chunks?.reduce((sum, chunk) => sum + chunk.length, 0);
  // A body may be chunked beside its Content-Length, and then has another length.
  if (!chunks || received !== length) throw r2Errors.badRequest();
  return { length, chunks };
}

function answerJson(gate: Gate, call: Call, json: string): void {
  const bytes = Buffer.from(json);
  gate.hold(call, bytes.length);
  call.answer(200, ['CF-R2-Metadata-Size', String(bytes.length), 'Content-Type', 'application/json'], [bytes]);
}

async function refuse(call: Call, error: R2Error): Promise<void> {
  if (call.answered) return call.cut();
  await call.body.drain();
  const header = Buffer.from(JSON.stringify({ version: 1, v4code: error.v4code, message: error.message }));
  const fields = ['CF-R2-Error', header.toString('latin1')];
  if (!error.object) return call.answer(error.status, fields);
  // A get whose condition failed answers the object without its body.
  const { object } = error;
  const json = Buffer.from(objectJson(object, { http: true, custom: true, range: { offset: 0, length: object.size } }));
  call.answer(error.status, [...fields, 'CF-R2-Metadata-Size', String(json.length)], [json]);
}
