/**
 * What the nodes of a host ask each other over their links: the line that opens a connection is the question, and what
 * comes until its end is the answer. A node that does not answer in time is named, and holds up nobody.
 */
import { type Duplex, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import type { Others, Pieces } from '../shared/others.ts';

/** Longest wait for a whole answer, ms. */
const WHOLE_MS = 2_000;
const MOST_BYTES = 16 * 1_048_576;
/** Last byte of a complete answer. The end of the connection proves nothing: a killed node ends it, too. */
const WHOLE = Buffer.of(0);

const questionShape = z.strictObject({ question: z.string(), asked: z.unknown() });

export interface QuestionsParts {
  own: string;
  /** Other nodes, by number. */
  peers(): { number: number; name: string }[];
  dial(node: number, purpose: string): Duplex;
}

export class Questions implements Others {
  readonly own: string;
  readonly #parts: QuestionsParts;
  readonly #work = new Map<string, (asked: unknown, gone: AbortSignal) => Pieces | undefined>();

  constructor(parts: QuestionsParts) {
    this.own = parts.own;
    this.#parts = parts;
  }

  names(): string[] {
    return this.#parts.peers().map(({ name }) => name);
  }

  async all(question: string, asked: (node: string) => object): ReturnType<Others['all']> {
    const answers: { node: string; body: Buffer }[] = [];
    const missing: string[] = [];
    await Promise.all(
      this.names().map(async (node) => {
        const body = await wholeOf(this.open(node, question, asked(node))).catch(() => undefined);
        if (body) answers.push({ node, body });
        else missing.push(node);
      }),
    );
    return { answers, missing: missing.sort() };
  }

  open(node: string, question: string, asked: object): Readable {
    const number = this.#parts.peers().find(({ name }) => name === node)?.number ?? 0;
    return this.#parts.dial(number, JSON.stringify({ question, asked }));
  }

  answer<T>(question: string, shape: z.ZodType<T>, work: (asked: T, gone: AbortSignal) => Pieces): void {
    this.#work.set(question, (asked, gone) => {
      const { success, data } = shape.safeParse(asked);
      return success ? work(data, gone) : undefined;
    });
  }

  /** @returns whether the purpose of the connection is a question */
  receive(purpose: unknown, stream: Duplex): boolean {
    const { data } = questionShape.safeParse(purpose);
    if (!data) return false;
    const gone = new AbortController();
    stream.on('error', () => undefined);
    stream.once('close', () => gone.abort());
    // Nothing more is said by who asks; without being read its end would not be noticed.
    stream.resume();
    const pieces = this.#work.get(data.question)?.(data.asked, gone.signal);
    if (pieces) void pipeline(Readable.from(marked(pieces)), stream).catch(() => stream.destroy());
    else stream.destroy();
    return true;
  }
}

async function* marked(pieces: Pieces): Pieces {
  yield* pieces;
  yield WHOLE;
}

/** @throws Error where it is late, too long or cut off */
async function wholeOf(stream: Readable): Promise<Buffer> {
  const late = setTimeout(() => stream.destroy(new Error('the node does not answer')), WHOLE_MS);
  try {
    const pieces: Buffer[] = [];
    let size = 0;
    for await (const piece of stream as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > MOST_BYTES) throw new Error('the answer is too long');
      pieces.push(piece);
    }
    const body = Buffer.concat(pieces);
    if (body.at(-1) !== WHOLE[0]) throw new Error('the answer was cut off');
    return body.subarray(0, -1);
  } finally {
    clearTimeout(late);
    stream.destroy();
  }
}
