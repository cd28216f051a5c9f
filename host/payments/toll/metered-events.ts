/**
 * Passes server-sent events on, each of them covered first. What they cost is written down once the connection has taken
 * them, before more go out: whatever breaks off, nobody pays for what was not delivered. Where a session pays, vouchers
 * are asked for in the stream, for no more events than are ready to go.
 */
import { least, type Money, micro, ZERO } from '../../shared/money.ts';
import { Problem } from '../../shared/problem.ts';
import { EventReader, type StreamedEvent } from './event-reader.ts';

/** Events that are paid for together, at most. */
const AT_ONCE = 16n;

/** What it throws as a Problem ends the stream. */
export interface EventMeter {
  /** Of one event. */
  price: Money;
  /** The most that the stream may cost. */
  limit: Money;
  /** @param wanted in all. @returns what is covered in all by now; less than wanted asks the payer for more */
  cover(wanted: Money): Promise<Money>;
  /** An event by which the payer is asked for more; undefined: what is held is all there is. */
  ask(wanted: Money): Promise<string | undefined>;
  /** Resolves when the payer has sent something; false: it took too long. */
  more(signal: AbortSignal): Promise<boolean>;
  /** Written down when it resolves. */
  note(total: Money): Promise<void>;
  /** What was delivered is charged. @returns the last event, if there is one */
  end(delivered: Money, clientGone: boolean): Promise<string | undefined>;
}

export class MeteredEvents {
  readonly body: ReadableStream<Uint8Array>;
  readonly #meter: EventMeter;
  readonly #source: ReadableStreamDefaultReader<Uint8Array>;
  readonly #reader = new EventReader();
  readonly #abort = new AbortController();
  #ready: StreamedEvent[] = [];
  #delivered = ZERO;
  #noted = ZERO;
  /** Whether the payer was asked for what comes next. */
  #asked = false;
  #end: Promise<string | undefined> | undefined;

  /** @param gone aborts when the caller has left; servers do not cancel a body that they never began to send */
  constructor(source: ReadableStream<Uint8Array>, gone: AbortSignal, meter: EventMeter) {
    this.#meter = meter;
    this.#source = source.getReader();
    const leave = () => this.#leave();
    if (gone.aborted) queueMicrotask(leave);
    else gone.addEventListener('abort', leave, { once: true });
    this.body = new ReadableStream<Uint8Array>(
      {
        pull: (controller) => this.#pull(controller),
        cancel: () => this.#leave(),
      },
      // What nobody has asked for yet is not delivered.
      { highWaterMark: 0 },
    );
  }

  /** Ends the stream: nothing more is delivered. */
  cut(): void {
    this.#stop();
    // Where it fails, the payment is found left, and ended by what was written down.
    this.#ended(false).catch(() => {});
  }

  #stop(): void {
    this.#abort.abort();
    void this.#source.cancel().catch(() => {});
  }

  #leave(): void {
    this.#stop();
    this.#ended(true).catch(() => {});
  }

  #ended(clientGone: boolean): Promise<string | undefined> {
    this.#end ??= this.#meter.end(this.#delivered, clientGone);
    return this.#end;
  }

  async #pull(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    try {
      const next = await this.#next().catch((error) => {
        if (error instanceof Problem) return undefined;
        throw error;
      });
      if (next && this.#end === undefined) {
        controller.enqueue(next.bytes);
        this.#delivered = micro(this.#delivered + next.cost);
        return;
      }
      this.#stop();
      const last = await this.#ended(false);
      if (last !== undefined) controller.enqueue(Buffer.from(last));
      controller.close();
    } catch (error) {
      this.#stop();
      await this.#ended(false).catch(() => {});
      controller.error(error);
    }
  }

  /** @returns undefined at the end */
  async #next(): Promise<{ bytes: Uint8Array; cost: bigint } | undefined> {
    const { signal } = this.#abort;
    // More is asked for: what went out was taken.
    if (this.#noted < this.#delivered) {
      const delivered = this.#delivered;
      await this.#meter.note(delivered);
      this.#noted = delivered;
    }
    while (!signal.aborted) {
      const [first] = this.#ready;
      if (first && !first.hasData) {
        this.#ready.shift();
        return { bytes: first.bytes, cost: 0n };
      }
      if (!first) {
        const { done, value } = await this.#source.read();
        if (done) return undefined;
        this.#ready = this.#reader.push(value);
        continue;
      }
      const paid = await this.#paid();
      if (paid === undefined) return undefined;
      if (paid.bytes.length > 0) return paid;
      if (this.#asked) {
        if (!(await this.#meter.more(signal))) return undefined;
        // Another call may have taken what came: then the payer is asked again.
        this.#asked = false;
        continue;
      }
      const text = await this.#meter.ask(this.#wanted());
      if (text === undefined) return undefined;
      this.#asked = true;
      return { bytes: Buffer.from(text), cost: 0n };
    }
    return undefined;
  }

  /** In all, with the events that are ready. */
  #wanted(): Money {
    const { price, limit } = this.#meter;
    const end = this.#ready.findIndex(({ hasData }) => !hasData);
    const ready = BigInt(end < 0 ? this.#ready.length : end);
    const most = (limit - this.#delivered) / price;
    return micro(this.#delivered + least(ready, most, AT_ONCE) * price);
  }

  /** @returns as many of the events that are ready as are covered; undefined when the stream has to end */
  async #paid(): Promise<{ bytes: Uint8Array; cost: bigint } | undefined> {
    const { price } = this.#meter;
    const wanted = this.#wanted();
    if (wanted === this.#delivered) return undefined;
    const covered = await this.#meter.cover(wanted);
    const events = (least(covered, wanted) - this.#delivered) / price;
    if (events <= 0n) return { bytes: new Uint8Array(), cost: 0n };
    const cost = events * price;
    this.#asked = false;
    return { bytes: Buffer.concat(this.#ready.splice(0, Number(events)).map(({ bytes }) => bytes)), cost };
  }
}
