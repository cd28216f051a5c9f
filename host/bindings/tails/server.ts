/**
 * Takes the traces of a deployment's invocations from its sandbox, and hands them on in batches to the deployment that
 * tails it. What that one does not take in time is dropped: nobody waits for it. The text of traces is a tenant's; it is
 * not read here.
 */
import http, { type IncomingMessage } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { Problem } from '../../shared/problem.ts';
import type { BindingPlace, BindingServer, ServedBinding, ServerHost } from '../server.ts';
import { closeNow, endAnswer, listenAt } from '../tenant-socket.ts';

/** From the first message of a batch to its delivery, ms. */
const DELAY_MS = 150;
/** Of one message: a little more than what the worker in the sandbox sends. */
const MOST_MESSAGE_BYTES = 1_048_576;
/** What waits for one consumer, and what waits in all. */
const MOST_WAITING_BYTES = 1_048_576;
const MOST_IN_ALL_BYTES = 64 * 1_048_576;
/** What a tenant may say that one message has: it is told as a number of traces that were lost. */
const MOST_TRACES = 1_000;
/** Messages of one batch. */
const MOST_MESSAGES = 100;
const MOST_CONNECTIONS = 256;
const TELL_MS = 10_000;
/** Longest wait for a delivery once nothing more comes, ms. */
const CLOSE_MS = 2_000;

let waitingInAll = 0;

export function tailsServer({ tell, deliverTail }: ServerHost): BindingServer | undefined {
  if (!deliverTail) return undefined;
  return {
    serve(place) {
      const consumer = String(place.settings.service);
      return new TailSocket(place, {
        deliver: (events) => deliverTail(place.tenant, consumer, events),
        lost: (count, why) => tell(place.tenant, 'tail-lost', `${count} traces did not reach ${consumer}. ${why}`),
      });
    },
  };
}

interface Consumer {
  /** @param events a JSON array @throws Problem that says why not, or Error */
  deliver(events: Buffer): Promise<void>;
  lost(count: number, why: string): void;
}

interface Message {
  /** Traces in JSON, between commas. */
  text: Buffer;
  traces: number;
}

class TailSocket implements ServedBinding {
  readonly #place: BindingPlace;
  readonly #consumer: Consumer;
  #server: http.Server | undefined;
  #waiting: Message[] = [];
  #bytes = 0;
  #delivering: Promise<void> | undefined;
  #closing = new AbortController();
  #lost = 0;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(place: BindingPlace, consumer: Consumer) {
    this.#place = place;
    this.#consumer = consumer;
  }

  async open(): Promise<void> {
    if (this.#server) return this.#place.permit();
    const server = http.createServer({ requestTimeout: 10_000 }, (request, response) => {
      void this.#take(request)
        .catch(() => undefined)
        .then(() => {
          response.writeHead(204);
          endAnswer(request, response);
        });
    });
    server.maxConnections = MOST_CONNECTIONS;
    this.#server = server;
    await listenAt(server, this.#place.socket);
    this.#place.permit();
  }

  async close(): Promise<void> {
    closeNow(this.#server);
    this.#server = undefined;
    // What waits is delivered now, without its delay.
    this.#closing.abort();
    await Promise.race([this.#delivering, delay(CLOSE_MS, undefined, { ref: false })]);
  }

  async #take(request: IncomingMessage): Promise<void> {
    const bytes = Number(request.headers['content-length']);
    if (!(bytes > 0 && bytes <= MOST_MESSAGE_BYTES)) return;
    const traces = Math.min(Number(request.headers.traces) || 1, MOST_TRACES);
    if (this.#bytes + bytes > MOST_WAITING_BYTES || waitingInAll + bytes > MOST_IN_ALL_BYTES) {
      this.#lose(traces, 'They came faster than it takes them.');
      return;
    }
    this.#count(bytes);
    const parts: Buffer[] = [];
    try {
      for await (const part of request as AsyncIterable<Buffer>) parts.push(part);
    } catch (error) {
      this.#count(-bytes);
      throw error;
    }
    this.#waiting.push({ text: Buffer.concat(parts), traces });
    this.#delivering ??= this.#deliverAll().finally(() => {
      this.#delivering = undefined;
    });
  }

  /** One batch after the other, as long as there are any. Never rejects. */
  async #deliverAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      await delay(DELAY_MS, undefined, { signal: this.#closing.signal }).catch(() => undefined);
      const batch = this.#waiting.splice(0, MOST_MESSAGES);
      const texts = batch.flatMap(({ text }, at) => (at === 0 ? [text] : [COMMA, text]));
      const bytes = batch.reduce((sum, { text }) => sum + text.length, 0);
      await this.#consumer.deliver(Buffer.concat([OPEN, ...texts, CLOSE])).catch((error) => {
        const traces = batch.reduce((sum, one) => sum + one.traces, 0);
        this.#lose(traces, error instanceof Problem ? error.message : 'It ended, or took too long.');
      });
      // Counted until then: it is in memory.
      this.#count(-bytes);
    }
  }

  #count(bytes: number): void {
    this.#bytes += bytes;
    waitingInAll += bytes;
  }

  #lose(count: number, why: string): void {
    this.#lost += count;
    const now = performance.now();
    if (now - this.#toldAt < TELL_MS) return;
    this.#toldAt = now;
    this.#consumer.lost(this.#lost, why);
    this.#lost = 0;
  }
}

const [OPEN, COMMA, CLOSE] = ['[', ',', ']'].map((mark) => Buffer.from(mark)) as [Buffer, Buffer, Buffer];
