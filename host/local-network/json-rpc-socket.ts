/**
 * A JSON-RPC client over anvil's unix socket, which answers one JSON document per line.
 * It hands errors of the chain through untouched, because the gateway's callers need their codes and revert data.
 */
import { connect, type Socket } from 'node:net';

export interface RpcError {
  code: number;
  message: string;
  data?: unknown;
}

export type RpcAnswer = { result: unknown } | { error: RpcError };

/** Thrown by `request` when the chain answered with an error. */
export class RpcFailure extends Error {
  readonly error: RpcError;

  constructor(method: string, error: RpcError) {
    super(`${method}: ${error.message}`);
    this.name = 'RpcFailure';
    this.error = error;
  }
}

/** Rejections for calls in flight when the socket goes away. */
export class RpcDisconnected extends Error {
  constructor() {
    super('the local chain is not running');
    this.name = 'RpcDisconnected';
  }
}

export class JsonRpcSocket {
  readonly #socket: Socket;
  readonly #waiting = new Map<number, { resolve(answer: RpcAnswer): void; reject(error: Error): void }>();
  #nextId = 1;
  #pieces: string[] = [];
  #closed = false;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8');
    socket.on('data', (piece: string) => this.#receive(piece));
    socket.on('error', () => this.close());
    socket.on('close', () => this.close());
  }

  /** Rejects when nobody listens at `path`. */
  static open(path: string): Promise<JsonRpcSocket> {
    return new Promise((resolve, reject) => {
      const socket = connect(path);
      socket.once('error', reject);
      socket.once('connect', () => {
        socket.off('error', reject);
        resolve(new JsonRpcSocket(socket));
      });
    });
  }

  /** Answers what the chain answered, an error included. Rejects with RpcDisconnected only. */
  call(method: string, params: unknown): Promise<RpcAnswer> {
    if (this.#closed) return Promise.reject(new RpcDisconnected());
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#socket.write(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);
    });
  }

  /** @throws RpcFailure when the chain answers with an error */
  async request<Result>(method: string, params: unknown[] = []): Promise<Result> {
    const answer = await this.call(method, params);
    if ('error' in answer) throw new RpcFailure(method, answer.error);
    return answer.result as Result;
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#socket.destroy();
    for (const waiter of this.#waiting.values()) waiter.reject(new RpcDisconnected());
    this.#waiting.clear();
  }

  #receive(piece: string): void {
    let rest = piece;
    for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
      this.#answer(this.#pieces.join('') + rest.slice(0, end));
      this.#pieces = [];
      rest = rest.slice(end + 1);
    }
    if (rest !== '') this.#pieces.push(rest);
  }

  #answer(line: string): void {
    const message = JSON.parse(line) as { id?: number; result?: unknown; error?: RpcError };
    const waiter = message.id === undefined ? undefined : this.#waiting.get(message.id);
    if (!waiter || message.id === undefined) return;
    this.#waiting.delete(message.id);
    waiter.resolve(message.error ? { error: message.error } : { result: message.result ?? null });
  }
}
