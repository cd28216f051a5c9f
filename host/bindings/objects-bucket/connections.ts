/**
 * Connections of one instance to the bucket: some are served, others wait unread until one of those has ended. workerd
 * opens one for each request that finds none free, such as 64 for each object whose log it shortens, and a write whose
 * connection is refused is not tried again: its object ends, and callers are told of an internal error.
 */
import type { Socket } from 'node:net';
import { CONNECTIONS, WAITING_CONNECTIONS, WAITING_CONNECTIONS_IN_ALL } from './limits.ts';

/** Of all instances. */
export interface WaitingInAll {
  count: number;
}

export class InstanceConnections {
  readonly #inAll: WaitingInAll;
  readonly #serve: (socket: Socket) => void;
  readonly #waiting = new Set<Socket>();
  #served = 0;

  /** @param serve is given each connection once, when it is its turn */
  constructor(inAll: WaitingInAll, serve: (socket: Socket) => void) {
    this.#inAll = inAll;
    this.#serve = serve;
  }

  /** Whether others wait: what is answered now should be the last on its connection. */
  get areAwaited(): boolean {
    return this.#waiting.size > 0;
  }

  /** @param socket paused: nothing of it was read */
  take(socket: Socket): void {
    socket.on('error', () => undefined);
    if (this.#served < CONNECTIONS) this.#begin(socket);
    else if (this.#waiting.size < WAITING_CONNECTIONS && this.#inAll.count < WAITING_CONNECTIONS_IN_ALL)
      this.#wait(socket);
    else socket.destroy();
  }

  #wait(socket: Socket): void {
    this.#waiting.add(socket);
    this.#inAll.count++;
    socket.once('close', () => this.#leave(socket));
  }

  /** @returns whether it still waited */
  #leave(socket: Socket): boolean {
    const waited = this.#waiting.delete(socket);
    if (waited) this.#inAll.count--;
    return waited;
  }

  #begin(socket: Socket): void {
    this.#served++;
    socket.once('close', () => {
      this.#served--;
      for (const next of this.#waiting) {
        this.#leave(next);
        this.#begin(next);
        return;
      }
    });
    this.#serve(socket);
  }
}
