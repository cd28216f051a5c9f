/**
 * A tenant's own HTTP server on a unix socket, and the cap on how much of it works at once. The peer is the tenant's
 * workerd: whatever arrives is untrusted, and is checked by the binding's protocol.ts.
 */

import { rm } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';

export type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** Head of a list call: prefix, cursor and start in JSON escapes, 6 bytes for each of 1024. */
const MAX_HEADER_BYTES = 64 * 1024;

/** Replies up to here do not count as held: all that are in flight together are little. */
const SMALL_REPLY = 64 * 1024;
/** Bytes of replies that a tenant has not read yet, from which on it gets no more. */
const MAX_HELD_BYTES = 64 * 1024 * 1024;
/** Connections of one socket; workerd keeps one for each call that it has under way. */
const MAX_CONNECTIONS = 1024;

/** Counts what a tenant has under way in all its stores, in calls and in memory. */
export class Gate {
  limit: number;
  inFlight = 0;
  #held = 0;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** Takes a place until the response is closed; false when there is none left. */
  enter(response: ServerResponse): boolean {
    if (this.inFlight >= this.limit || this.#held > MAX_HELD_BYTES) return false;
    this.inFlight++;
    response.once('close', () => {
      this.inFlight--;
    });
    return true;
  }

  /** Counts a reply that is in memory until the tenant has read it. */
  hold(response: ServerResponse, bytes: number): void {
    if (bytes <= SMALL_REPLY) return;
    this.#held += bytes;
    response.once('close', () => {
      this.#held -= bytes;
    });
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
    server.listen(path, () => {
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
