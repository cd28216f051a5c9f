/**
 * A tenant's own HTTP server on a unix socket, and the cap on how much of it works at once. The peer is the tenant's
 * workerd: whatever arrives is untrusted, and is checked by the binding's protocol.ts.
 */

import { rm } from 'node:fs/promises';
import { createServer, type Server } from 'node:net';
import { BACKLOG } from '../../shared/backlog.ts';
import type { Call } from './calls/call.ts';
import { CallConnections } from './calls/connections.ts';

export type Handler = (call: Call) => void;

/** Head of a call of a cache: all fields that a caller of the handler has sent, and those of the edge. */
const MAX_HEADER_BYTES = 128 * 1024;

/** Replies up to here do not count as held: all that are in flight together are little. */
const SMALL_REPLY = 64 * 1024;
/** Bytes of replies that a tenant has not read yet, from which on its next calls wait. */
const MAX_HELD_BYTES = 64 * 1024 * 1024;
/** Calls that may wait for each place, before further ones are refused. */
const WAITING_PER_PLACE = 16;
/** Connections of one socket; workerd keeps one for each call that it has under way. */
const MAX_CONNECTIONS = 8192;

interface Waiting {
  call: Call;
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
  #turn: Promise<void> = Promise.resolve();
  #read: (() => void) | undefined;

  constructor(limit: number) {
    this.limit = limit;
  }

  /** Runs `work` once there is a place, which is kept until the call is closed; false where too many wait. */
  admit(call: Call, work: () => void): boolean {
    if (this.#waiting.size === 0 && this.#hasPlace()) {
      this.#start({ call, work });
      return true;
    }
    if (this.#waiting.size >= this.limit * WAITING_PER_PLACE) return false;
    const waiting = { call, work };
    this.#waiting.add(waiting);
    call.onClose(() => this.#waiting.delete(waiting));
    return true;
  }

  /** Counts a reply that is in memory until the tenant has read it. */
  hold(call: Call, bytes: number): void {
    if (bytes <= SMALL_REPLY) return;
    this.#held += bytes;
    call.onClose(() => {
      this.#held -= bytes;
      this.#read?.();
      this.#next();
    });
  }

  /** Makes replies that may be large, one after the other, each once enough of those before it were read. */
  alone(call: Call, work: () => Promise<void>): Promise<void> {
    const turn = this.#turn.then(async () => {
      while (this.#held > MAX_HELD_BYTES)
        await new Promise<void>((resolve) => {
          this.#read = resolve;
        });
      if (!call.closed) await work();
    });
    this.#turn = turn.catch(() => {});
    return turn;
  }

  #hasPlace(): boolean {
    return this.#inFlight < this.limit && this.#held <= MAX_HELD_BYTES;
  }

  #start({ call, work }: Waiting): void {
    this.#inFlight++;
    call.onClose(() => {
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

/** A tenant's calls of one binding, on one socket. */
export class CallServer {
  readonly #server: Server;
  readonly #connections: CallConnections;

  /** Listens on `path`, replacing what an earlier process left there. @param failed told of mistakes of ours */
  static async listen(path: string, handle: Handler, failed: (error: unknown) => void): Promise<CallServer> {
    await rm(path, { force: true });
    const connections = new CallConnections({ handle, failed, maxHeadBytes: MAX_HEADER_BYTES });
    const server = createServer({ pauseOnConnect: true }, (socket) => {
      if (connections.size < MAX_CONNECTIONS) connections.adopt(socket);
      else socket.destroy();
    });
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen({ path, backlog: BACKLOG }, () => {
        server.off('error', reject);
        resolve();
      });
    });
    return new CallServer(server, connections);
  }

  private constructor(server: Server, connections: CallConnections) {
    this.#server = server;
    this.#connections = connections;
  }

  /** Stops accepting, lets what is under way end for at most `graceMs`, then cuts the connections. */
  async stop(graceMs: number): Promise<void> {
    this.#server.close();
    await this.#connections.close(graceMs);
  }
}
