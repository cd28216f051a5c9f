/**
 * A lean HTTP/1.1 client for servers of our own on unix sockets (instances, control): kept-alive connections,
 * streaming in both directions with back-pressure, WebSocket handshakes. Knows nothing of the edge's routes.
 */

import { type ReadMemory, readMemory } from '../message/blocks.ts';
import type { Classifier } from '../message/fields.ts';
import type { Framing } from '../message/framing.ts';
import {
  type BulkTurns,
  type ConnectionOwner,
  type UpstreamCall,
  UpstreamConnection,
  type UpstreamHandler,
} from './connection.ts';

export { UpstreamCall, UpstreamError, type UpstreamFailure, type UpstreamHandler } from './connection.ts';

export interface UpstreamOptions {
  socketPath: string;
  classify: Classifier;
  /** Largest head of an answer, bytes. */
  maxHeadBytes?: number;
  /**
   * Connections idle for longer are not used again, ms. workerd closes them after 5 s (kj `pipelineTimeout`),
   * and so does Node's server (`keepAliveTimeout`): the client has to be first.
   */
  idleMs?: number;
  maxIdle?: number;
  /** What sockets read into; may be shared by all pools of a process. */
  memory?: ReadMemory;
  /** Whose turns large answers wait for; undefined: they are read at once. */
  bulk?: BulkTurns | undefined;
}

/**
 * - `pooled`: a kept-alive connection where there is one
 * - `fresh`: a new connection, for what must not meet one that the server is just closing
 * - `upgrade`: a new connection that may become a WebSocket's
 */
export type ConnectionMode = 'pooled' | 'fresh' | 'upgrade';

export class UpstreamPool implements ConnectionOwner {
  readonly options: Required<UpstreamOptions>;
  readonly #idle: UpstreamConnection[] = [];
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: UpstreamOptions) {
    this.options = {
      maxHeadBytes: 131_072,
      idleMs: 4_000,
      maxIdle: 256,
      ...options,
      memory: options.memory ?? readMemory(),
      bulk: options.bulk,
    };
  }

  /**
   * Starts a request.
   * @param head whole request head in latin1 with framing and empty line, from checked parts only
   * @param framing what that head says of the body
   */
  start(
    method: string,
    head: string,
    framing: Framing,
    handler: UpstreamHandler,
    mode: ConnectionMode = 'pooled',
  ): UpstreamCall {
    const connection =
      (mode === 'pooled' ? this.#takeIdle() : undefined) ?? new UpstreamConnection(this, mode === 'upgrade');
    return connection.begin(method, head, framing, handler);
  }

  /** Ends idle connections, and each busy one after its answer. */
  close(): void {
    this.#closed = true;
    clearInterval(this.#timer);
    for (const connection of this.#idle.splice(0)) connection.socket.destroy();
  }

  /** @internal */
  release(connection: UpstreamConnection): void {
    if (this.#closed || this.#idle.length >= this.options.maxIdle) {
      connection.socket.destroy();
      return;
    }
    connection.idleSince = performance.now();
    this.#idle.push(connection);
    this.#timer ??= setInterval(() => this.#sweep(), this.options.idleMs / 4).unref();
  }

  /** @internal */
  forget(connection: UpstreamConnection): void {
    const index = this.#idle.indexOf(connection);
    if (index >= 0) this.#idle.splice(index, 1);
  }

  /** By the clock: the timer of a process that waits for a core is late, and a request may not be sent twice. */
  #takeIdle(): UpstreamConnection | undefined {
    const newest = this.#idle.at(-1);
    if (!newest || performance.now() - newest.idleSince > this.options.idleMs) return undefined;
    return this.#idle.pop();
  }

  /** The oldest are first. */
  #sweep(): void {
    const before = performance.now() - this.options.idleMs;
    let expired = 0;
    while (expired < this.#idle.length) {
      const connection = this.#idle[expired] as UpstreamConnection;
      if (connection.idleSince > before) break;
      connection.socket.destroy();
      expired += 1;
    }
    if (expired > 0) this.#idle.splice(0, expired);
    if (this.#idle.length > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}
