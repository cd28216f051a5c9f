/**
 * A tenant's own HTTP server on a unix socket, and the cap on how much of it works at once. The peer is the tenant's
 * workerd: whatever arrives is untrusted, and is checked by the binding's protocol.ts.
 */

import { rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { BACKLOG } from '../shared/backlog.ts';

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** Head of a list call: prefix, cursor and start in JSON escapes, 6 bytes for each of 1024. */
const MAX_HEADER_BYTES = 64 * 1024;

/** Replies up to here do not count as held: all that are in flight together are little. */
const SMALL_REPLY = 64 * 1024;
/** Bytes of replies that a tenant has not read yet, from which on its next calls wait. */
const MAX_HELD_BYTES = 64 * 1024 * 1024;
/** Calls that may wait for each place, before further ones are refused. */
const WAITING_PER_PLACE = 16;
/** Connections of one socket; workerd keeps one for each call that it has under way. */
const MAX_CONNECTIONS = 8192;

interface Waiting {
  response: ServerResponse;
  work: () => void;
}

/**
 * Bounds what a tenant has under way in all its stores, in calls and in memory. Calls past that wait with their bodies
 * unread, as on Cloudflare, where a handler may begin a thousand at once.
 */
export class Gate {
  limit: number;
  #inFlight = 0;
  #held = 0;
  readonly #waiting = new Set<Waiting>();

  constructor(limit: number) {
    this.limit = limit;
  }

  /** Runs `work` once there is a place, which is kept until the response is closed; false where too many wait. */
  admit(response: ServerResponse, work: () => void): boolean {
    if (this.#waiting.size === 0 && this.#hasPlace()) {
      this.#start({ response, work });
      return true;
    }
    if (this.#waiting.size >= this.limit * WAITING_PER_PLACE) return false;
    const waiting = { response, work };
    this.#waiting.add(waiting);
    response.once('close', () => this.#waiting.delete(waiting));
    return true;
  }

  /** Counts a reply that is in memory until the tenant has read it. */
  hold(response: ServerResponse, bytes: number): void {
    if (bytes <= SMALL_REPLY) return;
    this.#held += bytes;
    response.once('close', () => {
      this.#held -= bytes;
      this.#next();
    });
  }

  #hasPlace(): boolean {
    return this.#inFlight < this.limit && this.#held <= MAX_HELD_BYTES;
  }

  #start({ response, work }: Waiting): void {
    this.#inFlight++;
    response.once('close', () => {
      this.#inFlight--;
      if (this.#waiting.size > 0) this.#next();
    });
    work();
  }

  #next(): void {
    for (const waiting of this.#waiting) {
      if (!this.#hasPlace()) return;
      this.#waiting.delete(waiting);
      this.#start(waiting);
    }
  }
}

/** Listens on `path`, replacing what an earlier process left there. */
export async function listen(path: string, handler: Handler): Promise<Server> {
  await rm(path, { force: true });
  const server = createServer(
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      requireHostHeader: false,
      // Keys and metadata travel in headers as UTF-8 and may hold DEL, which the strict parser refuses (Node 24).
      // Nothing is forwarded from here, and each socket has one peer, so there is no second reading to confuse.
      insecureHTTPParser: true,
      // workerd keeps connections and closes them itself; closing one here would race with its next request.
      keepAliveTimeout: 0,
      requestTimeout: 0,
      headersTimeout: 0,
    },
    handler,
  );
  server.timeout = 0;
  server.maxConnections = MAX_CONNECTIONS;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ path, backlog: BACKLOG }, () => {
      server.off('error', reject);
      resolve();
    });
  });
  return server;
}

/** Stops accepting, lets what is under way end for at most `graceMs`, then cuts the connections. */
export async function stopListening(server: Server, graceMs: number): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  server.closeIdleConnections();
  const timer = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearTimeout(timer);
}
