/**
 * What the nodes of a host ask each other over their links: the line that opens a connection is the question, and what
 * comes until its end is the answer. A node that does not answer in time is named, and holds up nobody.
 */
import { type Duplex, Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { z } from 'zod';
import { FairPlaces } from '../shared/fair-places.ts';
import type { AnswerBounds, Asking, Others, Pieces } from '../shared/others.ts';

/** Longest wait for a whole answer, ms. */
const WHOLE_MS = 2_000;
/** Nodes that have all their places at the same time, and how many questions of each wait. */
const NODES = 4;
const WAITING = 64;
/** Last byte of a complete answer. The end of the connection proves nothing: a killed node ends it, too. */
const WHOLE = Buffer.of(0);

const questionShape = z.strictObject({ question: z.string(), asked: z.unknown() });

export interface QuestionsParts {
  own: string;
  /** Other nodes, by number. */
  peers(): { number: number; name: string }[];
  dial(node: number, purpose: string): Duplex;
}

/** A question that this node answers. */
interface Answering {
  bounds: AnswerBounds;
  places: FairPlaces;
  /** Undefined where that cannot be asked. */
  begin(asked: unknown, gone: AbortSignal): Pieces | undefined;
}

export class Questions implements Others {
  readonly own: string;
  readonly #parts: QuestionsParts;
  readonly #answers = new Map<string, Answering>();

  constructor(parts: QuestionsParts) {
    this.own = parts.own;
    this.#parts = parts;
  }

  names(): string[] {
    return this.#parts.peers().map(({ name }) => name);
  }

  async all<T>(question: string, { asked, mostBytes, read }: Asking<T>) {
    const answers: { node: string; said: T }[] = [];
    const missing: string[] = [];
    await Promise.all(
      this.names().map(async (node) => {
        try {
          const body = await wholeOf(this.open(node, question, asked(node)), mostBytes);
          answers.push({ node, said: read(body) });
        } catch {
          missing.push(node);
        }
      }),
    );
    return { answers, missing: missing.sort() };
  }

  open(node: string, question: string, asked: object): Readable {
    const number = this.#parts.peers().find(({ name }) => name === node)?.number ?? 0;
    return this.#parts.dial(number, JSON.stringify({ question, asked }));
  }

  answer<T>(
    question: string,
    shape: z.ZodType<T>,
    bounds: AnswerBounds,
    work: (asked: T, gone: AbortSignal) => Pieces,
  ): void {
    const { most } = bounds;
    const lane = { places: NODES * most, perParty: most, waitingPerParty: WAITING, waitMs: WHOLE_MS };
    this.#answers.set(question, {
      bounds,
      places: new FairPlaces(lane.places, [lane]),
      begin(asked, gone) {
        const { success, data } = shape.safeParse(asked);
        return success ? work(data, gone) : undefined;
      },
    });
  }

  /** @param from number of the node that asks @returns whether the purpose of the connection is a question */
  receive(purpose: unknown, stream: Duplex, from: number): boolean {
    const { data } = questionShape.safeParse(purpose);
    if (!data) return false;
    stream.on('error', () => undefined);
    // Nothing more is said by who asks; without being read its end would not be noticed.
    stream.resume();
    const answering = this.#answers.get(data.question);
    if (answering) void answerTo(answering, data.asked, stream, String(from)).catch(() => stream.destroy());
    else stream.destroy();
    return true;
  }
}

async function answerTo({ bounds, places, begin }: Answering, asked: unknown, stream: Duplex, from: string) {
  const gone = new AbortController();
  stream.once('close', () => gone.abort());
  const leave = await places.take({ lane: 0, party: from });
  const late = bounds.takenMs === undefined ? undefined : setTimeout(() => stream.destroy(), bounds.takenMs);
  try {
    const pieces = gone.signal.aborted ? undefined : begin(asked, gone.signal);
    if (pieces) await pipeline(Readable.from(marked(pieces)), stream);
    else stream.destroy();
  } finally {
    clearTimeout(late);
    leave();
  }
}

async function* marked(pieces: Pieces): Pieces {
  yield* pieces;
  yield WHOLE;
}

/** @throws Error where it is late, too long or cut off */
async function wholeOf(stream: Readable, mostBytes: number): Promise<Buffer> {
  const late = setTimeout(() => stream.destroy(new Error('the node does not answer')), WHOLE_MS);
  try {
    const pieces: Buffer[] = [];
    let size = 0;
    for await (const piece of stream as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > mostBytes + WHOLE.length) throw new Error('the answer is too long');
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
