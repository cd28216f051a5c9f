/**
 * One connection on which a caller's workerd calls methods of an entrypoint: Cap'n Proto over a CONNECT tunnel, joined to
 * the callee's instance. The caller keeps it for all its calls. It is ended where nobody could call any more: the caller
 * opens the next one for its next call, and that leads to whatever runs then.
 */
import { connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { Problem } from '../../shared/problem.ts';
import type { Visit } from './directory.ts';
import { RPC_HOST } from './names.ts';
import { abortMessage, RpcMessages } from './rpc-messages.ts';

export interface RpcConnectionOptions {
  caller: Duplex;
  /** What the caller sent behind its CONNECT. */
  received: Buffer;
  /** Starts the callee. @throws Problem */
  visit(): Promise<{ visit: Visit; socket: string }>;
  /** Rejects where the caller may not call any more. */
  check(): Promise<unknown>;
  /** How often that is asked, ms. */
  checkMs: number;
  /** A call begins. */
  onCall(): void;
  /** The connection was ended for this reason, one sentence for the caller's owner. */
  onRefused(detail: string): void;
}

/** A call is three questions of the protocol. */
const MOST_OPEN = 3 * 256;
/** How long a caller has to read why it was refused, ms. */
const REFUSAL_MS = 1_000;
const ESTABLISHED = 'HTTP/1.1 200 OK\r\n\r\n';

export class RpcConnection {
  readonly #options: RpcConnectionOptions;
  readonly #calls: RpcMessages;
  readonly #callbacks: RpcMessages;
  #callee: Socket | undefined;
  #visit: Visit | undefined;
  #busy: PromiseWithResolvers<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  readonly #closed = Promise.withResolvers<void>();
  #over = false;

  constructor(options: RpcConnectionOptions) {
    this.#options = options;
    [this.#calls, this.#callbacks] = RpcMessages.pair(options.onCall);
    const { caller } = options;
    caller.on('error', () => this.close());
    caller.on('close', () => this.close());
    void this.#open();
  }

  /** Resolves when it is over. */
  get closed(): Promise<void> {
    return this.#closed.promise;
  }

  close(): void {
    if (this.#over) return;
    this.#over = true;
    clearInterval(this.#timer);
    this.#options.caller.destroy();
    this.#callee?.destroy();
    this.#busy?.resolve();
    this.#closed.resolve();
  }

  async #open(): Promise<void> {
    const { caller, visit: start, onRefused } = this.#options;
    try {
      const { visit, socket } = await start();
      if (this.#over) return;
      this.#visit = visit;
      this.#hold();
      this.#callee = await tunnel(socket);
      if (this.#over) return void this.#callee.destroy();
      this.#join(this.#callee);
    } catch (error) {
      const detail = error instanceof Problem ? error.message : 'The service did not answer; try again.';
      onRefused(detail);
      if (this.#over) return;
      // An answer other than 200 would be an "internal error" to the caller's code.
      caller.write(ESTABLISHED);
      caller.end(abortMessage(detail));
      setTimeout(() => this.close(), REFUSAL_MS).unref();
    }
  }

  #join(callee: Socket): void {
    const { caller, received, check, checkMs } = this.#options;
    callee.on('error', () => this.close());
    callee.on('close', () => this.close());
    const pass = (from: Duplex, to: Duplex, messages: RpcMessages): ((chunk: Buffer) => void) => {
      to.on('drain', () => from.resume());
      return (chunk) => {
        try {
          messages.read(chunk);
        } catch {
          return this.#end('Its calls are in a form that this host does not know.');
        }
        if (this.#calls.open > MOST_OPEN)
          return this.#end(
            `It had more than ${MOST_OPEN / 3} calls under way at once; do deployments call each other in a circle?`,
          );
        if (!to.write(chunk)) from.pause();
        this.#changed();
      };
    };
    caller.write(ESTABLISHED);
    const up = pass(caller, callee, this.#calls);
    if (received.length > 0) up(received);
    if (this.#over) return;
    caller.on('data', up);
    callee.on('data', pass(callee, caller, this.#callbacks));
    this.#visit?.leaving.addEventListener('abort', () => this.#changed(), { once: true });
    this.#timer = setInterval(() => {
      check().catch((error) => this.#end(error instanceof Problem ? error.message : 'The service is gone.'));
    }, checkMs).unref();
    this.#changed();
  }

  /** Holds the instance while there are calls, and leaves one that is about to end when there are none. */
  #changed(): void {
    if (this.#calls.open + this.#callbacks.open > 0) {
      this.#hold();
      return;
    }
    this.#busy?.resolve();
    this.#busy = undefined;
    if (this.#visit?.leaving.aborted) this.close();
  }

  #hold(): void {
    if (this.#busy || this.#over) return;
    const busy = Promise.withResolvers<void>();
    this.#busy = busy;
    void this.#visit?.during(() => busy.promise);
  }

  #end(detail: string): void {
    if (this.#over) return;
    this.#options.onRefused(detail);
    this.close();
  }
}

/** @throws Problem where the instance does not take it */
async function tunnel(path: string): Promise<Socket> {
  const socket = connect(path);
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const failed = () => reject(new Problem('upstream_failed', 'The service ended the connection; call it again.'));
  let head = '';
  const read = () => {
    for (let byte = socket.read(1); byte !== null; byte = socket.read(1)) {
      head += byte.toString('latin1');
      if (!head.endsWith('\r\n\r\n')) continue;
      socket.off('readable', read);
      if (/^HTTP\/1\.1 200 /.test(head)) return resolve(socket);
      return failed();
    }
  };
  socket.on('error', failed).on('close', failed).on('readable', read);
  socket.write(`CONNECT ${RPC_HOST} HTTP/1.1\r\n\r\n`);
  try {
    return await promise;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    socket.off('error', failed).off('close', failed);
  }
}
