/**
 * Calls between the supervisor and its child processes over Node's IPC channel.
 * Both sides are trusted (our own code); tenants never reach it. Problems keep their code across the channel.
 */
import type { ChildProcess, SendHandle } from 'node:child_process';
import { asProblem, type FieldError, Problem, type ProblemCode } from './problem.ts';

/** Method name -> function of one argument. `handle` is a socket or server passed along. */
export type Methods = { [name: string]: (argument: never, handle?: SendHandle) => unknown };

type Argument<M extends Methods, K extends keyof M> = Parameters<M[K]>[0];
type Result<M extends Methods, K extends keyof M> = Awaited<ReturnType<M[K]>>;

type Message =
  | { kind: 'call'; id: number; method: string; argument: unknown }
  | { kind: 'done'; id: number; result: unknown }
  | { kind: 'failed'; id: number; code: ProblemCode; detail: string; errors?: FieldError[]; extensions: object }
  | { kind: 'note'; method: string; argument: unknown };

/** What both `process` and a `ChildProcess` offer. */
interface Port {
  send?: ChildProcess['send'];
  connected?: boolean;
  on(event: 'message', listener: (message: unknown, handle: SendHandle) => void): unknown;
  on(event: 'disconnect', listener: () => void): unknown;
}

interface Waiter {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

export class Channel<Remote extends Methods> {
  readonly #port: Port;
  readonly #waiting = new Map<number, Waiter>();
  #nextId = 1;
  #closed = false;

  /**
   * @param port `process` in a child, the ChildProcess in the parent; fork with `serialization: 'advanced'`
   * @param local the methods that the other side may call
   */
  constructor(port: Port, local: Methods) {
    this.#port = port;
    port.on('message', (message, handle) => this.#receive(message as Message, handle, local));
    port.on('disconnect', () => this.close());
  }

  /** Calls a method of the other side. Rejects with its Problem, or `not_ready` when the other side is gone. */
  call<K extends keyof Remote & string>(
    method: K,
    argument: Argument<Remote, K>,
    handle?: SendHandle,
  ): Promise<Result<Remote, K>> {
    if (this.#closed) return Promise.reject(gone());
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve: resolve as (value: unknown) => void, reject });
      this.#send({ kind: 'call', id, method, argument }, handle);
    });
  }

  /** Tells the other side something; no answer, no error. */
  notify<K extends keyof Remote & string>(method: K, argument: Argument<Remote, K>): void {
    if (!this.#closed) this.#send({ kind: 'note', method, argument });
  }

  close(): void {
    this.#closed = true;
    for (const waiter of this.#waiting.values()) waiter.reject(gone());
    this.#waiting.clear();
  }

  #send(message: Message, handle?: SendHandle): void {
    this.#port.send?.(message, handle, undefined, (error) => {
      if (error) this.close();
    });
  }

  async #receive(message: Message, handle: SendHandle, local: Methods): Promise<void> {
    switch (message.kind) {
      case 'done':
        this.#take(message.id)?.resolve(message.result);
        return;
      case 'failed': {
        const { code, detail, errors, extensions } = message;
        this.#take(message.id)?.reject(
          new Problem(code, detail, { ...(errors ? { errors } : {}), extensions: { ...extensions } }),
        );
        return;
      }
      case 'note':
        await local[message.method]?.(message.argument as never, handle);
        return;
      case 'call':
        try {
          const method = local[message.method];
          if (!method) throw new Problem('not_implemented', `unknown method ${message.method}`);
          this.#send({ kind: 'done', id: message.id, result: await method(message.argument as never, handle) });
        } catch (error) {
          const problem = asProblem(error);
          const { code, message: detail, errors, extensions } = problem;
          if (problem.isFault) console.error(error);
          this.#send({ kind: 'failed', id: message.id, code, detail, ...(errors ? { errors } : {}), extensions });
        }
    }
  }

  #take(id: number): Waiter | undefined {
    const waiter = this.#waiting.get(id);
    this.#waiting.delete(id);
    return waiter;
  }
}

function gone(): Problem {
  return new Problem('not_ready', 'A process of the host is restarting; try again in a second.', {
    headers: { 'retry-after': '1' },
  });
}
