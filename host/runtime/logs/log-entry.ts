/** One line of an owner's log. */

export type ConsoleLevel = 'debug' | 'log' | 'info' | 'warn' | 'error';

export type NewLogEntry =
  | { kind: 'console'; level: ConsoleLevel; text: string }
  /** An exception that the handler did not catch; the stack names the owner's own files. */
  | { kind: 'exception'; text: string; stack?: string }
  /** What the host did or refused: started, stopped, killed, deployed, egress-refused, ... */
  | { kind: 'platform'; event: string; text: string };

export type LogEntry = NewLogEntry & {
  /** Counts from 1 per tenant and never repeats: the id of the line, and the place to go on reading from. */
  id: number;
  /** Business time, ms since the Unix epoch. */
  time: number;
};

/** A request that is over: told to who follows, and not kept. */
export interface RequestEntry {
  kind: 'request';
  /** Business time, ms since the Unix epoch. */
  time: number;
  method: string;
  /** With its query. */
  path: string;
  status: number;
  ms: number;
}

/** Longest text of an entry, characters; more is cut. */
export const MAX_TEXT = 8_192;

/** Cuts texts to size and says so. */
export function bounded(entry: NewLogEntry): NewLogEntry {
  const text = cut(entry.text);
  return entry.kind === 'exception' && entry.stack !== undefined
    ? { ...entry, text, stack: cut(entry.stack) }
    : { ...entry, text };
}

function cut(text: string): string {
  return text.length <= MAX_TEXT ? text : `${text.slice(0, MAX_TEXT)}… (${text.length - MAX_TEXT} characters cut)`;
}
