/**
 * Blobs in an S3 bucket, through the minio client. Only what every S3 has is used: PUT with a Content-Length, ranged
 * GET, DELETE, and listing of names; conditions and metadata are the index's work.
 */
import { createHash } from 'node:crypto';
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { pipeline, type Readable, Transform } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'minio';
import type { S3Settings } from '../../../shared/contracts.ts';
import type { BlobBackend, Bytes, ObjectBucket, SharedFile, SharedFiles } from './backend.ts';
import { boundedRequests, checkPart, s3Client } from './s3-transport.ts';
import { SealedBlobs } from './seals.ts';

const TRIES = 4;
/** A presigned address is used at once; this is how long its upload may take to begin. */
const PRESIGNED_SECONDS = 3600;
/** Longest silence on a connection to the S3 service, ms. */
const SILENCE_MS = 60_000;
/** A file that all of a start waits for: until it begins to come, ms, and bytes a second of it. */
const WHOLE_MS = 15_000;
const SLOWEST = 1_048_576;
/** Connections of one tenant: those that it keeps, by reading slowly, are missing to nobody else. */
const TENANT_CONNECTIONS = 64;

/** One bucket, of all tenants. */
export class S3Bucket implements ObjectBucket {
  readonly settings: S3Settings;
  readonly #silenceMs: number;

  /** @param silenceMs longest silence on a connection */
  constructor(settings: S3Settings, silenceMs = SILENCE_MS) {
    this.settings = settings;
    this.#silenceMs = silenceMs;
  }

  /** Makes sure that the bucket is there. */
  async prepare(): Promise<void> {
    const { bucket, region } = this.settings;
    const { client, agent } = this.#connect();
    try {
      if (!(await retry(() => client.bucketExists(bucket)))) await client.makeBucket(bucket, region);
    } finally {
      agent.destroy();
    }
  }

  blobs(place: string): BlobBackend {
    return new SealedBlobs(new S3Blobs(this.settings, this.#connect(), `${place}/`, this.#silenceMs));
  }

  /** Files that all nodes have, below a folder of the bucket that belongs to no tenant. */
  files(folder: string): SharedFiles {
    return new S3Blobs(this.settings, this.#connect(), `${folder}/`, this.#silenceMs);
  }

  #connect(): Connection {
    const secure = new URL(this.settings.endpoint).protocol === 'https:';
    const options = { keepAlive: true, maxSockets: TENANT_CONNECTIONS };
    const agent = secure ? new HttpsAgent(options) : new HttpAgent(options);
    const client = s3Client(this.settings, {
      transportAgent: agent,
      transport: { request: boundedRequests(this.settings, this.#silenceMs) } as never,
    });
    return { client, agent, secure };
  }
}

interface Connection {
  client: Client;
  agent: HttpAgent | HttpsAgent;
  secure: boolean;
}

class S3Blobs implements BlobBackend, SharedFiles {
  readonly inlineBytes = 0;
  readonly directBytes = 0;
  readonly #bucket: string;
  readonly #connection: Connection;
  readonly #prefix: string;
  readonly #silenceMs: number;
  readonly #wholeMs: number;

  /** @param folder path below the bucket's prefix that belongs to one tenant, ending in `/` */
  constructor({ bucket, prefix }: S3Settings, connection: Connection, folder: string, silenceMs: number) {
    this.#silenceMs = silenceMs;
    this.#wholeMs = Math.min(WHOLE_MS, silenceMs);
    this.#bucket = bucket;
    this.#connection = connection;
    this.#prefix = `${prefix}${folder}`;
  }

  async write(name: string, bytes: Bytes): Promise<void> {
    const object = this.#prefix + name;
    if (bytes.length === undefined) throw new Error('S3 needs the length of an object before its bytes');
    if ('stream' in bytes) return this.#upload(object, bytes.length, bytes.stream);
    // A small body is at hand, so it can be sent again.
    await retry(() => this.#upload(object, bytes.length, bytes.chunks));
  }

  async read(name: string, offset: number, length: number, md5?: string): Promise<Readable> {
    const part = await this.#read(name, offset, length);
    return md5 === undefined ? part : checked(part, md5);
  }

  async whole<T>(
    name: string,
    mostBytes: number,
    take: (bytes: Readable, size: number) => Promise<T>,
  ): Promise<T | undefined> {
    const began = performance.now();
    const late = Promise.withResolvers<never>();
    const error = new Error(`the S3 service is too slow with ${name}`);
    let timer = setTimeout(() => late.reject(error), this.#wholeMs);
    try {
      const found = await Promise.race([this.stat(name), late.promise]);
      if (!found) return undefined;
      const { size } = found;
      if (!(size <= mostBytes)) throw new Error(`the S3 service gives ${size} bytes as the size of ${name}`);
      clearTimeout(timer);
      const endsAt = began + this.#wholeMs + (size / SLOWEST) * 1_000;
      timer = setTimeout(() => late.reject(error), endsAt - performance.now());
      const reading = this.#read(name, 0, size);
      // Also where it comes when nobody waits for it any more.
      late.promise.catch(() => reading.then((bytes) => bytes.destroy(error))).catch(() => undefined);
      return await Promise.race([reading.then((bytes) => take(bytes, size)), late.promise]);
    } finally {
      clearTimeout(timer);
    }
  }

  #read(name: string, offset: number, length: number): Promise<Readable> {
    const { client } = this.#connection;
    return retry(async () => {
      const part = await client.getPartialObject(this.#bucket, this.#prefix + name, offset, length);
      try {
        checkPart(part, offset, length);
      } catch (error) {
        part.destroy();
        throw error;
      }
      return part;
    });
  }

  async remove(name: string): Promise<void> {
    const { client } = this.#connection;
    await retry(() => client.removeObject(this.#bucket, this.#prefix + name));
  }

  async *names(): AsyncIterable<string> {
    for await (const { name } of this.entries()) yield name;
  }

  async *entries(below = ''): AsyncIterable<SharedFile> {
    const { client } = this.#connection;
    const prefix = this.#prefix + below;
    // Of a circle of names one is met again: the one that is kept, which is each time further on.
    let kept: string | undefined;
    let count = 0;
    for await (const item of client.listObjectsV2(this.#bucket, prefix, true)) {
      const { name, size, lastModified } = item as { name?: string; size: number; lastModified: Date };
      if (!name) continue;
      if (!name.startsWith(prefix)) throw new Error('the S3 service listed names that were not asked for');
      if (name === kept) throw new Error('the S3 service lists the same names again and again');
      count++;
      if (Number.isInteger(Math.log2(count))) kept = name;
      yield { name: name.slice(this.#prefix.length), size, changedAt: Number(lastModified) };
    }
  }

  async stat(name: string): Promise<SharedFile | undefined> {
    const { client } = this.#connection;
    try {
      const { size, lastModified } = await retry(() => client.statObject(this.#bucket, this.#prefix + name));
      return { name, size, changedAt: Number(lastModified) };
    } catch (error) {
      if (/^(NotFound|NoSuchKey)$/.test((error as { code?: string }).code ?? '')) return undefined;
      throw error;
    }
  }

  async destroy(below = ''): Promise<void> {
    const { client } = this.#connection;
    let batch: string[] = [];
    const flush = async () => {
      if (batch.length === 0) return;
      const names = batch;
      batch = [];
      const failed = await retry(() => client.removeObjects(this.#bucket, names));
      const errors = failed.filter((item) => item && 'Error' in item && item.Error);
      if (errors.length > 0) throw new Error(`the S3 service kept ${errors.length} objects of a purged tenant`);
    };
    for await (const { name } of this.entries(below)) {
      batch.push(this.#prefix + name);
      if (batch.length === 500) await flush();
    }
    await flush();
  }

  close(): void {
    this.#connection.agent.destroy();
  }

  /**
   * minio's putObject would buffer whole objects or cut them into 528 MB parts (seen in 8.0.7), so the body goes to an
   * address signed by it, with its exact length and no copy in memory.
   */
  async #upload(object: string, length: number, body: Iterable<Buffer> | AsyncIterable<Buffer>): Promise<void> {
    const { client, agent, secure } = this.#connection;
    const address = await client.presignedPutObject(this.#bucket, object, PRESIGNED_SECONDS);
    const send = secure ? httpsRequest : httpRequest;
    const request = send(address, { method: 'PUT', agent, headers: { 'Content-Length': length } });
    request.setTimeout(this.#silenceMs, () => request.destroy(new Error('the S3 service fell silent')));
    const answer = new Promise<void>((resolve, reject) => {
      request.once('error', reject);
      request.once('response', (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          if (text.length < 2048) text += chunk;
        });
        response.once('error', reject);
        response.once('end', () => {
          // Each S3 says what it has by an ETag; something else in its place does not.
          const isS3 = response.headers.etag !== undefined || text.includes('<Error>');
          if (response.statusCode === 200 && !isS3) reject(new Error('something else than an S3 service answered 200'));
          else if (response.statusCode === 200 && !text.includes('<Error>')) resolve();
          else reject(new S3Failure(response.statusCode ?? 0, text));
        });
      });
    });
    // The answer may come before the body was sent; it is awaited below.
    let answered = false;
    const settle = () => {
      answered = true;
    };
    answer.then(settle, settle);
    let sent = 0;
    try {
      for await (const chunk of body) {
        if (request.destroyed || answered) break;
        sent += chunk.length;
        if (!request.write(chunk)) await Promise.race([drained(request), answer]);
      }
      // The last byte may be answered before the body says that it was the last.
      const early = answered && sent < length;
      if (!early) request.end();
      const timer = setTimeout(() => request.destroy(new Error('the S3 service fell silent')), this.#silenceMs);
      await answer.finally(() => clearTimeout(timer));
      if (early) throw new Error('the S3 service took an object before it had all of it');
    } catch (error) {
      request.destroy();
      throw error;
    }
  }
}

class S3Failure extends Error {
  readonly status: number;

  constructor(status: number, text: string) {
    const code = /<Code>([\w.]{1,64})<\/Code>/.exec(text)?.[1] ?? 'no code';
    super(`the S3 service answered ${status} (${code})`);
    this.name = 'S3Failure';
    this.status = status;
  }
}

/** A reader learns that it is something else before the end, so takes none of it as whole. */
function checked(part: Readable, md5: string): Readable {
  const digest = createHash('md5');
  const check = new Transform({
    transform(piece: Buffer, _encoding, done) {
      digest.update(piece);
      done(null, piece);
    },
    flush(done) {
      const isSame = digest.digest('hex') === md5;
      done(isSame ? null : new Error('the S3 service answered something else than was kept there'));
    },
  });
  // Errors are its reader's.
  pipeline(part, check, () => undefined);
  return check;
}

function drained(request: NodeJS.EventEmitter): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      request.off('drain', done);
      request.off('close', done);
      resolve();
    };
    request.on('drain', done);
    request.on('close', done);
  });
}

/** Tries again after faults that pass: lost connections, 5xx, 429. */
async function retry<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch (error) {
      if (attempt === TRIES || !passes(error)) throw error;
      await delay(50 * 2 ** attempt * (0.5 + Math.random()));
    }
  }
}

const PASSING_CODES = new Set([
  'SlowDown',
  'ServiceUnavailable',
  'InternalError',
  'RequestTimeout',
  'XMinioServerNotInitialized',
]);

function passes(error: unknown): boolean {
  if (error instanceof S3Failure) return error.status >= 500 || error.status === 429;
  const { code } = error as { code?: string };
  if (!code) return true;
  return /^(E[A-Z]+|UND_ERR_\w+)$/.test(code) || PASSING_CODES.has(code);
}
