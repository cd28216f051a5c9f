/**
 * A request's body, read at the speed of whoever consumes it. Small bodies come as one piece; large ones as a stream
 * with a bounded queue, so that memory does not grow with what a tenant sends.
 */
import type { IncomingMessage } from 'node:http';
import { BodyCut } from './refusal.ts';

/** Bytes queued before the socket is no longer read. */
const HIGH_WATER = 128 * 1024;

const bodies = new WeakMap<IncomingMessage, RequestBody>();

export class RequestBody {
  readonly #request: IncomingMessage;
  #chunks: Buffer[] = [];
  #queued = 0;
  #ended = false;
  #cut = false;
  #draining = false;
  #wake: (() => void) | undefined;
  /** Declared length in bytes; undefined for chunked bodies. */
  readonly length: number | undefined;

  /** The one reader of this request's body: two would take bytes from each other. */
  static of(request: IncomingMessage): RequestBody {
    let body = bodies.get(request);
    if (!body) {
      body = new RequestBody(request);
      bodies.set(request, body);
    }
    return body;
  }

  private constructor(request: IncomingMessage) {
    this.#request = request;
    const declared = request.headers['content-length'];
    this.length = declared !== undefined ? Number(declared) : request.headers['transfer-encoding'] ? undefined : 0;
    request.on('data', (chunk: Buffer) => this.#receive(chunk));
    request.on('end', () => {
      this.#ended = true;
      this.#wake?.();
    });
    const cut = () => {
      if (this.#ended) return;
      this.#cut = true;
      this.#wake?.();
    };
    request.on('error', cut);
    request.on('close', cut);
  }

  /** Exactly `size` bytes from the front. Throws BodyCut when there are fewer. */
  async take(size: number): Promise<Buffer> {
    while (this.#queued < size) if (!(await this.#more())) throw new BodyCut();
    const all = this.#chunks.length === 1 ? (this.#chunks[0] as Buffer) : Buffer.concat(this.#chunks);
    const rest = all.subarray(size);
    this.#chunks = rest.length > 0 ? [rest] : [];
    this.#queued = rest.length;
    return all.subarray(0, size);
  }

  /** All that is left, or undefined as soon as it is more than `limit` bytes: then go on with the iterator. */
  async all(limit: number): Promise<Buffer[] | undefined> {
    while (this.#queued <= limit) {
      if (await this.#more()) continue;
      const chunks = this.#chunks;
      this.#chunks = [];
      this.#queued = 0;
      return chunks;
    }
    return undefined;
  }

  /** The rest of the body in pieces as they arrive. Throws BodyCut when the caller goes away. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Buffer> {
    for (;;) {
      if (this.#chunks.length === 0 && !(await this.#more())) return;
      const chunks = this.#chunks;
      this.#chunks = [];
      this.#queued = 0;
      if (!this.#ended && !this.#cut) this.#request.resume();
      yield* chunks;
    }
  }

  /**
   * Reads to the end and forgets: workerd reports `Network connection lost.` instead of our answer when a request is
   * answered before its body was read.
   */
  async drain(): Promise<void> {
    this.#draining = true;
    this.#chunks = [];
    this.#queued = 0;
    while (!this.#ended && !this.#cut) {
      this.#request.resume();
      await this.#event();
    }
  }

  #receive(chunk: Buffer): void {
    if (this.#draining) return;
    this.#chunks.push(chunk);
    this.#queued += chunk.length;
    if (this.#queued > HIGH_WATER) this.#request.pause();
    this.#wake?.();
  }

  /** Waits for more bytes; false at the end of the body. */
  async #more(): Promise<boolean> {
    const before = this.#queued;
    for (;;) {
      if (this.#queued > before) return true;
      if (this.#cut) throw new BodyCut();
      if (this.#ended) return false;
      if (this.#request.isPaused()) this.#request.resume();
      await this.#event();
    }
  }

  #event(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = () => {
        this.#wake = undefined;
        resolve();
      };
    });
  }
}
