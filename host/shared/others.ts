/** The other nodes of this host, as whoever wants to know something of them sees them. One box has none. */
import { Readable } from 'node:stream';
import type { z } from 'zod';

/** Pieces of an answer. It ends where its connection does. */
export type Pieces = AsyncIterable<Buffer | string>;

export interface Others {
  /** Of this node; undefined: it is the only one. */
  readonly own: string | undefined;
  /** Those that there are, also if they do not run. */
  names(): string[];
  /** Asks all others at once, for an answer that fits into memory. @returns `missing`: who did not answer, or not to the end */
  all(
    question: string,
    asked: (node: string) => object,
  ): Promise<{ answers: { node: string; body: Buffer }[]; missing: string[] }>;
  /** The answer of one node as it comes; errs where there is none. */
  open(node: string, question: string, asked: object): Readable;
  /** Answers a question of other nodes from here on. @param shape what may be asked */
  answer<T>(question: string, shape: z.ZodType<T>, work: (asked: T, gone: AbortSignal) => Pieces): void;
}

export const NO_OTHERS: Others = {
  own: undefined,
  names: () => [],
  all: async () => ({ answers: [], missing: [] }),
  open: () => Readable.from([]),
  answer: () => undefined,
};
