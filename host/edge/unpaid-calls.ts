/**
 * Unpaid calls that control need not answer one by one: they come in floods. The very same call as one that it answered
 * within the last second gets that 402 again, with challenges of its own. Whatever makes a call another one (its target,
 * any of its fields) or the route (control pushes every change of it) goes to control.
 */
import type { UpstreamHandler } from '../http/client/pool.ts';
import { OWNED } from '../http/message/blocks.ts';
import type { ResponseHead } from '../http/message/head.ts';
import type { Route } from '../shared/contracts.ts';
import { marksOf, type Reissue, reissued } from '../shared/reissue.ts';

/** What control may have changed without a push, such as a tenant's debts, is in a 402 after that time, ms. */
const BELIEVED_MS = 1_000;
/** Calls that are remembered, oldest first. */
const MOST_CALLS = 128;
/** Of a call, or of its answer, characters. */
const LONGEST = 32_768;

interface Known {
  route: Route;
  at: number;
  /** Undefined: it was asked once, and may be the only one of its kind. */
  again: { head: ResponseHead; reissue: Reissue; challenges: Template; body: Template } | undefined;
}

export class UnpaidCalls {
  readonly #key: string;
  readonly #known = new Map<string, Known>();

  /** @param key HMAC key of the host's challenges */
  constructor(key: string) {
    this.#key = key;
  }

  /**
   * @param call all that it says
   * @param isOwnId whether its id is no other text of an answer
   * @returns the answer, or what is to be learned from control's; undefined: nothing
   */
  see(call: string, route: Route, requestId: string, isOwnId: boolean): KnownAnswer | Lesson | undefined {
    const found = this.#known.get(call);
    const known = found?.route === route ? found : undefined;
    const now = performance.now();
    const isNew = known !== undefined && now - known.at < BELIEVED_MS;
    if (isNew && known.again) {
      const { head, reissue, challenges, body } = known.again;
      this.#keep(call, known);
      return new KnownAnswer({ ...head, challenges: challenges(reissued(reissue, this.#key)) }, body([requestId]));
    }
    // The second of its kind, or one of many.
    if (isNew || known?.again) return isOwnId ? this.#lesson(call, route, requestId, now) : undefined;
    if (call.length <= LONGEST) this.#keep(call, { route, at: now, again: undefined });
    return undefined;
  }

  #lesson(call: string, route: Route, requestId: string, at: number): Lesson {
    return new Lesson((head, body) => {
      const reissue = JSON.parse(Buffer.from(head.reissue, 'base64url').toString()) as Reissue;
      const challenges = template(head.challenges, marksOf(reissue));
      const again = { head: { ...head, date: '' }, reissue, challenges, body: template(body, [requestId]) };
      this.#keep(call, { route, at, again });
    });
  }

  #keep(call: string, known: Known): void {
    this.#known.delete(call);
    this.#known.set(call, known);
    const [oldest] = this.#known.keys();
    if (this.#known.size > MOST_CALLS && oldest !== undefined) this.#known.delete(oldest);
  }
}

/** Follows an answer of control on its way to the caller. */
export class Lesson {
  readonly #learned: (head: ResponseHead, body: string) => void;
  #head: ResponseHead | undefined;
  #body = '';

  constructor(learned: (head: ResponseHead, body: string) => void) {
    this.#learned = learned;
  }

  head(head: ResponseHead): void {
    const { framing, own, reissue, status } = head;
    // What a handler wrote may come from control, too: it has no say in what is signed here.
    if (!own || status !== 402 || reissue === '') return;
    if (framing.kind === 'length' && framing.length <= LONGEST) this.#head = head;
  }

  data(chunk: Buffer): void {
    if (this.#head) this.#body += chunk.toString('latin1');
  }

  end(): void {
    if (this.#head) this.#learned(this.#head, this.#body);
  }
}

/** A 402 from memory, in place of an upstream. Calls that get one have no body. */
export class KnownAnswer {
  readonly #head: ResponseHead;
  readonly #body: Buffer;
  #over = false;

  /** @param body in latin1 */
  constructor(head: ResponseHead, body: string) {
    this.#body = Buffer.from(body, 'latin1');
    this.#head = { ...head, framing: { kind: 'length', length: this.#body.length } };
  }

  begin(handler: UpstreamHandler): void {
    handler.head(this.#head);
    if (!this.#over) handler.data(this.#body, OWNED);
    if (!this.#over) handler.end('');
  }

  /** Nothing of it is wanted. */
  destroy(): void {
    this.#over = true;
  }

  write(): boolean {
    return true;
  }

  end(): void {}
  flush(): void {}
  pause(): void {}
  resume(): void {}
}

type Template = (values: readonly string[]) => string;

/** @param marks parts of the text that another value takes the place of, wherever they stand */
function template(text: string, marks: readonly string[]): Template {
  const parts = text.split(new RegExp(`(${marks.map((mark) => mark.replaceAll('.', '\\.')).join('|')})`));
  const places = parts.map((part, index) => (index % 2 === 1 ? marks.indexOf(part) : -1));
  return (values) => {
    let written = '';
    for (let index = 0; index < parts.length; index++)
      written += places[index] === -1 ? parts[index] : values[places[index] as number];
    return written;
  };
}
