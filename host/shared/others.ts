/** The other nodes of this host, as whoever wants to know something of them sees them. One box has none. */
import { Readable } from 'node:stream';
import type { z } from 'zod';

/** Pieces of an answer. It ends where its connection does. */
export type Pieces = AsyncIterable<Buffer | string>;

/** A question to all others, for answers that fit into memory. */
export interface Asking<T> {
  asked(node: string): object;
  /** An answer with more is none. */
  mostBytes: number;
  /** What a node said, which may be anything. @throws where it is no answer to the question */
  read(body: Buffer): T;
}

/** What one node may have of the answers to a question. */
export interface AnswerBounds {
  /** At a time. */
  most: number;
  /** Until it has taken one, ms; undefined: as long as it likes. */
  takenMs?: number;
}

export interface Others {
  /** Of this node; undefined: it is the only one. */
  readonly own: string | undefined;
  /** Those that there are, also if they do not run. */
  names(): string[];
  /** Asks all others at once. @returns `missing`: who did not answer, or not to the end, or something else */
  all<T>(question: string, asking: Asking<T>): Promise<{ answers: { node: string; said: T }[]; missing: string[] }>;
  /** The answer of one node as it comes; errs where there is none. */
  open(node: string, question: string, asked: object): Readable;
  /** Answers a question of other nodes from here on. @param shape what may be asked */
  answer<T>(
    question: string,
    shape: z.ZodType<T>,
    bounds: AnswerBounds,
    work: (asked: T, gone: AbortSignal) => Pieces,
  ): void;
}

export const NO_OTHERS: Others = {
  own: undefined,
  names: () => [],
  all: async () => ({ answers: [], missing: [] }),
  open: () => Readable.from([]),
  answer: () => undefined,
};
