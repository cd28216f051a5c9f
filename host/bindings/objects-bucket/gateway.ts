/**
 * The bucket of objects, as workerd's cluster mode asks for it in the words of S3: HTTP on connections that come from one
 * tenant's sandbox each. The connection says whose prefix may be meant, and the signature that workerd itself asks.
 */
import {
  createServer,
  type IncomingMessage,
  type OutgoingHttpHeaders,
  type Server,
  type ServerResponse,
} from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Logger } from 'pino';
import { z } from 'zod';
import { FairPlaces, NoPlace } from '../../shared/fair-places.ts';
import { endAnswer, readBounded } from '../tenant-socket.ts';
import { InstanceConnections, type WaitingInAll } from './connections.ts';
import { type Credentials, isSignedBy } from './credentials.ts';
import {
  IDLE_MS,
  IN_ALL,
  INLINE_BYTES,
  INSTANCES_BYTES,
  LEASE_BYTES,
  PER_TENANT,
  ROW_BYTES,
  SILENCE_MS,
  WAIT_MS,
  WAITING_PER_TENANT,
} from './limits.ts';
import { commonPrefixes, listXml } from './listing.ts';
import { Reach } from './reach.ts';
import type { BucketRecords, Incoming, PutResult } from './records.ts';
import { type BucketCall, type Refusal, readCall } from './request.ts';

export interface GatewayOptions {
  records: BucketRecords;
  log: Logger;
  /** ms */
  now?(): number;
  /** After so long without an answer of the database it counts as away. Default: long before instances end. */
  awayMs?: number;
}

/** The instance of a tenant that the connections belong to. */
export interface BucketTenant {
  tenant: string;
  credentials: Credentials;
  /** Of all its objects together. */
  quotaBytes: number;
  /** Told when something else is asked than what each instance asks every second for as long as it runs. */
  onWork?(): void;
  /** Told when it has given its objects back, and its lease. */
  onLeft?(): void;
}

/** Where workerd (1.20261117.1) keeps the lease of each instance, and how many are looked at. */
const NODES = 'v1/nodes/';
const MOST_NODES = 100;
const leaseShape = z.object({ address: z.string(), expires_ms: z.number(), write: z.number() });

/** Leases and owners are small, and what is late with them ends an instance: they never wait behind snapshots. */
const LEASES = 0;
const OTHERS = 1;
/** Uploads take as long as their sender does. */
const LARGE = 2;
/** Bytes of a tenant are counted again after this long, ms; between, what it writes is added. */
const COUNT_MS = 10_000;
/** How often blobs are removed that no row names, ms. */
const COLLECT_MS = 60_000;
const MISSING: Refusal = { status: 404, code: 'NoSuchKey' };

interface Instance {
  of: BucketTenant;
  connections: InstanceConnections;
}

interface Reply {
  status: number;
  headers: OutgoingHttpHeaders;
  body?: Buffer | Readable;
}

const REFUSED: Record<Exclude<PutResult, object>, Refusal> = {
  exists: { status: 412, code: 'PreconditionFailed' },
  changed: { status: 412, code: 'PreconditionFailed' },
  missing: MISSING,
};
const WAITING = { waitingPerParty: WAITING_PER_TENANT, waitMs: WAIT_MS };
const DENIED: Refusal = { status: 403, code: 'AccessDenied' };
const BUSY: Refusal = { status: 503, code: 'SlowDown' };
const UNAVAILABLE: Refusal = { status: 503, code: 'ServiceUnavailable' };

export class BucketGateway {
  readonly #options: GatewayOptions;
  readonly #server: Server;
  readonly #instances = new WeakMap<Socket, Instance>();
  readonly #waiting: WaitingInAll = { count: 0 };
  readonly #counts = new Map<string, { bytes: number; at: number }>();
  readonly #places = new FairPlaces(2 * IN_ALL, [
    { places: IN_ALL / 2, perParty: 4, ...WAITING },
    { places: IN_ALL, perParty: PER_TENANT, ...WAITING },
    { places: IN_ALL / 2, perParty: 4, ...WAITING },
  ]);
  readonly #reach: Reach;
  readonly #collecting: NodeJS.Timeout;

  constructor(options: GatewayOptions) {
    this.#options = options;
    this.#reach = new Reach(() => options.records.ping(), options.awayMs);
    this.#server = createServer(
      { keepAliveTimeout: IDLE_MS, maxHeaderSize: 8_192 },
      (request, response) => void this.#answer(request, response),
    );
    this.#collecting = setInterval(() => {
      options.records
        .collect()
        .catch((error) => options.log.warn({ err: error }, 'blobs of objects are removed later'));
    }, COLLECT_MS).unref();
    // A server that does not listen: it is handed its connections.
    this.#server.on('clientError', (_error, socket) => socket.destroy());
  }

  /** @returns takes connections, paused ones, that come from the sandbox of this instance */
  entrance(of: BucketTenant): (socket: Socket) => void {
    const connections = new InstanceConnections(this.#waiting, (socket) => {
      socket.on('timeout', () => socket.destroy());
      socket.setNoDelay(true);
      this.#instances.set(socket, instance);
      this.#server.emit('connection', socket);
      socket.resume();
    });
    const instance: Instance = { of, connections };
    return (socket) => connections.take(socket);
  }

  /**
   * Ends the lease of an instance whose process is gone, as it does itself when it is told to stop. What it still had on
   * the way is of an owner's epoch that ends with it.
   */
  async ended(tenant: string, address: string): Promise<void> {
    const { records } = this.#options;
    for (const { key } of await records.list(tenant, NODES, '', MOST_NODES)) {
      const record = key.endsWith('.json') ? await records.get(tenant, key) : undefined;
      if (!record || !Buffer.isBuffer(record.body)) continue;
      const lease = leaseOf(record.body);
      if (lease?.address !== address || lease.expires_ms === 0) continue;
      const body = Buffer.from(
        record.body
          .toString()
          .replace(/"expires_ms":\d+/, '"expires_ms":0')
          .replace(/"draining":false/, '"draining":true')
          .replace(/"write":\d+/, `"write":${lease.write + 1}`),
      );
      await records.put(tenant, key, { kind: 'etag', etag: record.etag }, { length: body.length, stream: [body] });
    }
  }

  /** The next alarm of a tenant's objects: real time, ms. */
  nextAlarm(tenant: string): Promise<number | undefined> {
    return this.#options.records.nextAlarm(tenant);
  }

  /** The database has not answered for a while. */
  get away(): boolean {
    return this.#reach.away;
  }

  /** @param listener called when that changes */
  watch(listener: () => void): void {
    this.#reach.watch(listener);
  }

  close(): void {
    clearInterval(this.#collecting);
    this.#reach.close();
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { of, connections } = this.#instances.get(request.socket) as Instance;
    const { method = '', url: target = '', headers } = request;
    request.socket.setTimeout(SILENCE_MS);
    response.once('close', () => request.socket.setTimeout(0));
    if (!isSignedBy(of.credentials, { method, target, headers }, this.#options.now?.() ?? Date.now()))
      return refuse(request, response, DENIED);
    const call = readCall(of.tenant, method, target, headers);
    if ('status' in call) return refuse(request, response, call);
    if (!isLease(call)) of.onWork?.();
    try {
      // A place is held while the database and the S3 work, not while somebody sends or reads slowly.
      const small =
        call.kind === 'put' && call.bytes <= INLINE_BYTES ? await readBounded(request, call.bytes) : undefined;
      const leave = await this.#places.take({ lane: laneOf(call), party: of.tenant, member: memberOf(call) });
      const reply = await this.#do(of, call, small ? [small] : request).finally(leave);
      this.#reach.answered();
      if (reply.status === 200 && isLeaseEnd(call, small)) of.onLeft?.();
      if (connections.areAwaited) response.setHeader('connection', 'close');
      if ('code' in reply) refuse(request, response, reply);
      else await send(response, reply);
    } catch (error) {
      const busy = error instanceof NoPlace;
      if (!busy && !request.socket.destroyed) {
        this.#reach.failed();
        this.#options.log.warn({ err: error, tenant: of.tenant, call: call.kind }, 'the bucket did not answer');
      }
      if (response.headersSent) request.socket.destroy();
      else refuse(request, response, busy ? BUSY : UNAVAILABLE);
    }
  }

  async #do(of: BucketTenant, call: BucketCall, stream: Incoming['stream']): Promise<Reply | Refusal> {
    const { records } = this.#options;
    const { tenant } = of;
    switch (call.kind) {
      case 'get': {
        const record = await records.get(tenant, call.key);
        if (!record) return MISSING;
        const { etag, at, bytes, body } = record;
        const headers = { etag: `"${etag}"`, 'last-modified': at.toUTCString(), 'content-length': bytes };
        return { status: 200, headers, body };
      }
      case 'put': {
        if (!(await this.#fits(of, call))) return { status: 507, code: 'QuotaExceeded' };
        const result = await records.put(tenant, call.key, call.condition, { length: call.bytes, stream });
        if (typeof result === 'string') return REFUSED[result];
        return { status: 200, headers: { etag: `"${result.etag}"`, 'content-length': 0 } };
      }
      case 'delete':
        await records.remove(tenant, call.key);
        return { status: 204, headers: {} };
      case 'list': {
        const { prefix, after, most, delimited } = call;
        const page = delimited
          ? await commonPrefixes(records, tenant, prefix, after, most)
          : { keys: await records.list(tenant, prefix, after, most + 1), prefixes: [] };
        const body = Buffer.from(listXml(`${tenant}/`, page, most));
        return { status: 200, headers: { 'content-type': 'application/xml', 'content-length': body.length }, body };
      }
    }
  }

  /** Whether there is room for what is put, which is then counted. */
  async #fits({ tenant, quotaBytes: quota }: BucketTenant, put: Put): Promise<boolean> {
    // It is there, and its instance would end.
    if (isLease(put) && put.condition.kind === 'etag') return true;
    const quotaBytes = quota + (isLease(put) && isOfInstance(put) ? INSTANCES_BYTES : 0);
    const more = put.bytes + ROW_BYTES;
    const known = this.#counts.get(tenant);
    const isFresh = known && performance.now() - known.at <= COUNT_MS;
    // What is written in place of something else was added all the same: they are counted anew before a refusal.
    const count = isFresh && known.bytes + more <= quotaBytes ? known : await this.#counted(tenant);
    if (count.bytes + more > quotaBytes) return false;
    count.bytes += more;
    return true;
  }

  async #counted(tenant: string): Promise<{ bytes: number; at: number }> {
    const count = { bytes: await this.#options.records.bytesOf(tenant), at: performance.now() };
    this.#counts.set(tenant, count);
    return count;
  }
}

type Put = Extract<BucketCall, { kind: 'put' }>;

const nameOf = (call: BucketCall) => (call.kind === 'list' ? call.prefix : call.key);

/** Of an instance, or of an object's owner. What is larger is none, whatever its name. */
function isLease(call: BucketCall): boolean {
  if (call.kind === 'put' && call.bytes > LEASE_BYTES) return false;
  return isOfInstance(call) || nameOf(call).endsWith('/own.json');
}

const isOfInstance = (call: BucketCall) => nameOf(call).startsWith(NODES);

/** An instance that stops ends its lease when it has given its objects back. */
function isLeaseEnd(call: BucketCall, body: Buffer | undefined): boolean {
  return call.kind === 'put' && isOfInstance(call) && body !== undefined && leaseOf(body)?.expires_ms === 0;
}

function leaseOf(body: Buffer): z.infer<typeof leaseShape> | undefined {
  try {
    // Its id of an instance is a number that JavaScript does not have.
    return leaseShape.safeParse(JSON.parse(body.toString().replace(/:(\d{16,})/g, ':"$1"'))).data;
  } catch {
    return undefined;
  }
}

/** A thousand new objects are a thousand owners, which the lease of the instance does not wait for: it ends without. */
const memberOf = (call: BucketCall) => (isOfInstance(call) ? 'instance' : 'objects');

function laneOf(call: BucketCall): number {
  if (isLease(call)) return LEASES;
  return call.kind === 'put' && call.bytes > INLINE_BYTES ? LARGE : OTHERS;
}

async function send(response: ServerResponse, { status, headers, body }: Reply): Promise<void> {
  response.writeHead(status, headers);
  if (body === undefined || Buffer.isBuffer(body)) response.end(body);
  else await pipeline(body, response);
}

function refuse(request: IncomingMessage, response: ServerResponse, { status, code }: Refusal): void {
  if (response.destroyed) return;
  const text = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`;
  const length = Buffer.byteLength(text);
  const close = request.complete ? {} : { connection: 'close' };
  response.writeHead(status, { 'content-type': 'application/xml', 'content-length': length, ...close });
  endAnswer(request, response, text);
}
