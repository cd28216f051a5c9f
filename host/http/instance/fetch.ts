/**
 * Calls an instance from control, as the toll does for a paid request: a `fetch` over the instance's socket that
 * streams both ways, and a joined socket for a paid WebSocket. The handler sees what it would see from the edge.
 */
import { STATUS_CODES } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { EdgeContext } from '../../shared/contracts.ts';
import { Problem } from '../../shared/problem.ts';
import {
  type ConnectionMode,
  type UpstreamCall,
  type UpstreamError,
  type UpstreamHandler,
  UpstreamPool,
} from '../client/pool.ts';
import { OWNED } from '../message/blocks.ts';
import { blockPairs, plainAnswerField } from '../message/fields.ts';
import type { Framing } from '../message/framing.ts';
import { HOST, type ResponseHead } from '../message/head.ts';
import { fieldLine, instanceFields, instanceHead } from './request.ts';
import { joinSockets } from './tunnel.ts';

export interface InstanceCall {
  method: string;
  /** Raw path and query as the handler sees it (`EdgeContext.tenantPath`). */
  path: string;
  /** The caller's headers as control got them; those that only the host may set are left out here. */
  headers: Iterable<[string, string]>;
  body?: ReadableStream<Uint8Array> | Uint8Array | null;
  signal?: AbortSignal | undefined;
  /** Longest wait for a byte of the answer, ms; time in which nobody reads the body does not count. */
  idleTimeoutMs?: number;
  /** Headers of control's own, such as `x-payer`. */
  extra?: Record<string, string>;
  /** Told of the answer, once its head is there. */
  watch?: AnswerWatch;
}

export interface AnswerWatch {
  bytes(count: number): void;
  /** It has ended, failed or been given up. */
  end(): void;
}

const IDLE_TIMEOUT_MS = 300_000;
const RETRIED = new Set(['GET', 'HEAD', 'OPTIONS']);
const NO_FRAMING: Framing = { kind: 'none' };

/** Connections to one instance, for `fetchInstance` and `openInstanceSocket`. Close it when the instance goes. */
export function instancePool(socketPath: string): UpstreamPool {
  return new UpstreamPool({ socketPath, classify: plainAnswerField });
}

/**
 * @returns the handler's answer with all its headers (`x-charge` too) but those of the hop; the body streams
 * @throws Problem upstream_failed, upstream_timeout; what `signal` was aborted with
 */
export async function fetchInstance(pool: UpstreamPool, call: InstanceCall, context: EdgeContext): Promise<Response> {
  const fixed = call.body instanceof Uint8Array ? call.body : undefined;
  const stream = call.body instanceof Uint8Array ? null : (call.body ?? null);
  const framing = framingOf(call, fixed, stream !== null);
  const head = headOf(call, framing, false, context);
  // A connection of its own for what must not run twice: a kept-alive one might be closing at the other end.
  const fresh = !RETRIED.has(call.method) || stream !== null;
  const attempt = async (own: boolean): Promise<Response> => {
    const answer = await new FetchHandler(pool, call, head, framing, own ? 'fresh' : 'pooled').start(fixed, stream);
    if (answer instanceof Response) return answer;
    answer.abandon();
    throw new Problem('upstream_failed', 'The handler opened a WebSocket that nobody asked for.');
  };
  return await attempt(fresh).catch((error: unknown) => {
    if (!fresh && error instanceof StaleConnection) return attempt(true);
    throw error;
  });
}

/** A WebSocket that the handler opened, and whose caller has not heard of it yet. Nothing of it is read meanwhile. */
export interface InstanceSocket {
  /** The handler's fields of the 101 (`x-charge` too) but those of the hop. */
  headers: Headers;
  /**
   * Completes the caller's handshake with these fields and joins both sides.
   * @param received what the caller sent after its handshake
   * @returns resolves when both sides are closed
   */
  join(caller: Duplex, received: Buffer, headers: Headers): Promise<void>;
  /** Ends the handler's side. */
  abandon(): void;
}

/**
 * Asks the handler for a WebSocket with a handshake that control received.
 * @returns the socket, or the handler's answer where it opens none
 * @throws as `fetchInstance`
 */
export async function openInstanceSocket(
  pool: UpstreamPool,
  call: Omit<InstanceCall, 'body' | 'method'>,
  context: EdgeContext,
): Promise<InstanceSocket | Response> {
  const request = { ...call, method: 'GET' };
  const head = headOf(request, NO_FRAMING, true, context);
  return await new FetchHandler(pool, request, head, NO_FRAMING, 'upgrade').start(undefined, null);
}

function instanceSocket(answer: ResponseHead, socket: Socket, rest: Buffer): InstanceSocket {
  // Its end is seen when it is joined; until then it must not be the end of the process.
  const ignore = () => {};
  socket.on('error', ignore);
  return {
    headers: headersOf(answer),
    join: (caller, received, headers) =>
      new Promise((resolve) => {
        let fields = '';
        for (const [name, value] of headers) fields += fieldLine(name, value);
        caller.write(
          `HTTP/1.1 101 Switching Protocols\r\n${fields}connection: Upgrade\r\nupgrade: websocket\r\n\r\n`,
          'latin1',
        );
        joinSockets(caller, received, socket, rest, { in: () => {}, out: () => {}, closed: resolve });
        socket.off('error', ignore);
      }),
    abandon: () => socket.destroy(),
  };
}

function headersOf(head: ResponseHead): Headers {
  const headers = new Headers();
  for (const [name, value] of blockPairs(head.fields)) headers.append(name, value);
  return headers;
}

class StaleConnection extends Problem {}

class FetchHandler implements UpstreamHandler {
  readonly #pool: UpstreamPool;
  readonly #request: InstanceCall;
  readonly #head: string;
  readonly #framing: Framing;
  readonly #mode: ConnectionMode;
  readonly #idleTimeoutMs: number;
  readonly #idle: NodeJS.Timeout;
  #call: UpstreamCall | undefined;
  #resolve: (answer: Response | InstanceSocket) => void = () => {};
  #reject: (error: unknown) => void = () => {};
  #body: ReadableStreamDefaultController<Uint8Array> | undefined;
  #drained: (() => void) | undefined;
  #answered = false;
  /** Nobody reads the body for now, so that the handler has no way to send: this is not its silence. */
  #held = false;
  #over = false;
  readonly #onAbort = () => this.#fail(this.#request.signal?.reason);

  constructor(pool: UpstreamPool, request: InstanceCall, head: string, framing: Framing, mode: ConnectionMode) {
    this.#pool = pool;
    this.#request = request;
    this.#head = head;
    this.#framing = framing;
    this.#mode = mode;
    this.#idleTimeoutMs = request.idleTimeoutMs ?? IDLE_TIMEOUT_MS;
    this.#idle = setTimeout(() => this.#timedOut(), this.#idleTimeoutMs);
  }

  start(fixed: Uint8Array | undefined, stream: ReadableStream<Uint8Array> | null): Promise<Response | InstanceSocket> {
    const { signal, method } = this.#request;
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
      if (signal?.aborted) return this.#fail(signal.reason);
      signal?.addEventListener('abort', this.#onAbort, { once: true });
      this.#call = this.#pool.start(method, this.#head, this.#framing, this, this.#mode);
      if (fixed && fixed.length > 0)
        this.#call.write(Buffer.from(fixed.buffer, fixed.byteOffset, fixed.byteLength), OWNED);
      if (stream) void this.#upload(stream);
      else this.#call.end();
    });
  }

  informational(): void {
    this.#idle.refresh();
  }

  head(head: ResponseHead): void {
    this.#idle.refresh();
    this.#answered = true;
    const headers = headersOf(head);
    if (head.framing.kind === 'length' || head.framing.kind === 'none') {
      if (head.contentLength !== undefined) headers.set('content-length', head.contentLength);
    }
    // 205 has no content either (RFC 9110, 15.3.6), but a length of 0, and a Response of it takes no body.
    const body =
      head.framing.kind === 'none' || head.status === 205
        ? null
        : new ReadableStream<Uint8Array>(
            {
              start: (controller) => {
                this.#body = controller;
              },
              pull: () => {
                if (this.#held) this.#idle.refresh();
                this.#held = false;
                this.#call?.resume();
              },
              cancel: () => this.#finish(),
            },
            { highWaterMark: 1 },
          );
    this.#resolve(
      new Response(body, {
        status: head.status,
        statusText: head.reason || (STATUS_CODES[head.status] ?? ''),
        headers,
      }),
    );
  }

  data(chunk: Buffer): void {
    this.#idle.refresh();
    if (!this.#body) return;
    this.#request.watch?.bytes(chunk.length);
    this.#body.enqueue(new Uint8Array(chunk));
    if ((this.#body.desiredSize ?? 0) > 0) return;
    this.#held = true;
    this.#call?.pause();
  }

  end(): void {
    this.#body?.close();
    this.#leave();
  }

  flush(): void {}

  drained(): void {
    this.#idle.refresh();
    this.#drained?.();
  }

  upgraded(head: ResponseHead, socket: Socket, rest: Buffer): void {
    socket.pause();
    this.#resolve(instanceSocket(head, socket, rest));
    this.#leave();
  }

  failed(error?: UpstreamError): void {
    const detail = 'The handler ended the connection before its answer was complete.';
    this.#fail(
      error?.failure === 'stale'
        ? new StaleConnection('upstream_failed', detail)
        : new Problem('upstream_failed', detail),
    );
  }

  async #upload(stream: ReadableStream<Uint8Array>): Promise<void> {
    const reader = stream.getReader();
    const declared = this.#framing.kind === 'length' ? this.#framing.length : undefined;
    let sent = 0;
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (this.#over) break;
        sent += value?.length ?? 0;
        // Bytes past the declared length would be read as another request.
        if (declared !== undefined && (done ? sent !== declared : sent > declared)) {
          throw new Problem('bad_request', 'The body is not as long as its Content-Length says; correct one of them.');
        }
        if (done) {
          this.#call?.end();
          return;
        }
        if (value.length === 0) continue;
        this.#idle.refresh();
        const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
        if (this.#call?.write(bytes, OWNED) === false) {
          await new Promise<void>((resolve) => {
            this.#drained = resolve;
          });
        }
      }
      await reader.cancel();
    } catch (error) {
      this.#fail(error);
    }
  }

  #timedOut(): void {
    if (this.#held) {
      this.#idle.refresh();
      return;
    }
    const seconds = Math.round(this.#idleTimeoutMs / 1000);
    this.#fail(
      new Problem(
        'upstream_timeout',
        `The handler sent no byte for ${seconds} seconds; its owner finds the reason by turnpike logs.`,
      ),
    );
  }

  #fail(error: unknown): void {
    if (this.#over) return;
    this.#finish();
    if (this.#answered) this.#body?.error(error);
    else this.#reject(error);
  }

  #finish(): void {
    this.#call?.destroy();
    this.#leave();
  }

  #leave(): void {
    if (this.#answered && !this.#over) this.#request.watch?.end();
    this.#over = true;
    this.#call = undefined;
    this.#drained?.();
    clearTimeout(this.#idle);
    this.#request.signal?.removeEventListener('abort', this.#onAbort);
  }
}

function headOf(call: InstanceCall, framing: Framing, upgrade: boolean, context: EdgeContext): string {
  const own = call.extra ?? {};
  const raw: string[] = [];
  // A caller's field of the same name would be joined with ours.
  for (const [name, value] of call.headers) if (!Object.hasOwn(own, name)) raw.push(name, value);
  let extra = '';
  for (const [name, value] of Object.entries(own)) extra += fieldLine(name, value);
  if (!/^\/[\x21-\x7e\x80-\xff]*$/.test(call.path) || (context.host && !HOST.test(context.host))) {
    throw new Problem('bad_request', 'The path or the name of the host is malformed; correct the URL.');
  }
  return instanceHead(
    { method: call.method, path: call.path, host: context.host, framing, upgrade, fields: instanceFields(raw) },
    context,
    { version: '1.1', tlsVersion: '', tlsCipher: '' },
    extra,
  );
}

function framingOf(call: InstanceCall, fixed: Uint8Array | undefined, streamed: boolean): Framing {
  if (fixed) return { kind: 'length', length: fixed.length };
  if (!streamed) return NO_FRAMING;
  for (const [name, value] of call.headers) {
    if (name.toLowerCase() === 'content-length' && /^\d{1,15}$/.test(value))
      return { kind: 'length', length: Number(value) };
  }
  return { kind: 'chunked' };
}
