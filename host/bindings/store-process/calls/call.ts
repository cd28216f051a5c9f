/** One call of a binding: what workerd asks over HTTP, and the answer. */

import { type Block, OWNED } from '../../../http/message/blocks.ts';
import type { ExchangeListener } from '../../../http/message/exchange.ts';
import type { Http1Exchange } from '../../../http/server/http1-exchange.ts';
import { CallBody } from './body.ts';
import type { CallHead } from './head.ts';

/** Of a field's value: nothing that would end its line. */
const FIELD_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Fields of an answer but for its framing; names and values in turn, a character for each byte. */
export type Fields = readonly string[];

export class Call implements ExchangeListener {
  readonly method: string;
  /** Path and query, as sent. */
  readonly target: string;
  /** Undefined: not asked by workerd; see CallHead. */
  readonly origin: string | undefined;
  readonly body: CallBody;
  readonly #exchange: Http1Exchange<CallHead>;
  readonly #closing: (() => void)[] = [];
  #closed = false;
  #answered = false;
  #drained: (() => void) | undefined;

  constructor(exchange: Http1Exchange<CallHead>) {
    const { head } = exchange;
    this.method = head.method;
    this.target = head.target;
    this.origin = head.origin;
    this.#exchange = exchange;
    this.body = new CallBody(exchange, head.framing);
    exchange.listen(this);
  }

  /** Stands for the connection that the call came on. */
  get connection(): object {
    return this.#exchange.peer;
  }

  /** The answer went to the socket, or the connection broke. */
  get closed(): boolean {
    return this.#closed;
  }

  get answered(): boolean {
    return this.#answered;
  }

  /** @param name in lower case @returns a character for each byte */
  field(name: string): string | undefined {
    return this.#exchange.head.fields.get(name);
  }

  /** @param done called once: when the answer went to the socket, or the connection broke */
  onClose(done: () => void): void {
    if (this.#closed) done();
    else this.#closing.push(done);
  }

  /** The whole answer. @param pieces of its body, which stay as they are */
  answer(status: number, fields: Fields, pieces: readonly Buffer[] = [], reason = reasonOf(status)): void {
    if (this.#closed) return;
    const length = pieces.reduce((sum, { length }) => sum + length, 0);
    this.#begin(status, reason, fields, length);
    for (const piece of pieces) this.#exchange.write(piece, OWNED);
    this.#end();
  }

  /**
   * The answer with a body that comes piece by piece, at the speed of the one who reads it.
   * A body that ends too early, or fails, cuts the connection; a failure is thrown.
   */
  async send(status: number, fields: Fields, length: number, body: AsyncIterable<Buffer>): Promise<void> {
    if (!this.#closed) this.#begin(status, reasonOf(status), fields, length);
    try {
      // Leaving the loop ends the source.
      for await (const piece of body) {
        if (this.#closed) return;
        if (!this.#exchange.write(piece, OWNED)) await this.#room();
      }
    } catch (error) {
      this.cut();
      throw error;
    }
    if (!this.#closed) this.#end();
  }

  /** Ends the connection without an answer, or within it. */
  cut(): void {
    this.#exchange.destroy();
    this.aborted();
  }

  bodyData(chunk: Buffer, block: Block | undefined): void {
    this.body.data(chunk, block);
  }

  bodyEnd(): void {
    this.body.end();
  }

  answerDrained(): void {
    this.#drained?.();
    this.#drained = undefined;
  }

  aborted(): void {
    this.body.cut();
    this.#close();
    this.answerDrained();
  }

  #begin(status: number, reason: string, fields: Fields, length: number): void {
    this.#answered = true;
    this.#exchange.answer(status, reason, fieldLines(fields), length);
  }

  #end(): void {
    const exchange = this.#exchange;
    exchange.flush();
    // Before the next request of the connection is looked at.
    if (exchange.flushed) this.#close();
    else exchange.whenFlushed(() => this.#close());
    exchange.finish('');
  }

  #close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const done of this.#closing) done();
  }

  #room(): Promise<void> {
    return new Promise((resolve) => {
      this.#drained = resolve;
    });
  }
}

export function reasonOf(status: number): string {
  // Most answers are 200, and node:http is loaded for nothing else here.
  return status === 200 ? 'OK' : (process.getBuiltinModule('node:http').STATUS_CODES[status] ?? '');
}

/** @throws TypeError for a value that could not be one line of a head */
function fieldLines(fields: Fields): string {
  let lines = '';
  for (let index = 0; index < fields.length; index += 2) {
    const [name, value = ''] = [fields[index], fields[index + 1]];
    if (!FIELD_VALUE.test(value)) throw new TypeError(`the field ${name} of an answer is not acceptable`);
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}
