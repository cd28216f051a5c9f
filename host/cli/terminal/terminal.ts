/**
 * The command's only way to the outside: text out, questions, the environment. Tests give their own.
 * Results go to stdout; progress and questions go to stderr, and only where a person looks on.
 */
import { createInterface } from 'node:readline/promises';

export interface Terminal {
  env: Record<string, string | undefined>;
  /** Working folder. */
  cwd: string;
  /** Home folder of the user. */
  home: string;
  /** Writes to stdout as it is. */
  out(text: string | Uint8Array): void;
  /** Writes a line to stderr. */
  err(line: string): void;
  /** Whether a person sees stderr and can answer. */
  interactive: boolean;
  /** Whether stdout is a screen, and not a file or another program. */
  outIsScreen: boolean;
  /** Asks a question that takes yes or no; `no` for anything else. */
  confirm(question: string): Promise<boolean>;
  /** Everything on stdin. */
  readInput(): Promise<string>;
  /** Aborted by Ctrl-C, and by whoever else ends the command. */
  signal: AbortSignal;
}

/** The terminal of this process. */
export function processTerminal(home: string): Terminal {
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => stop.abort());
  // The program that reads our output may end first, as `head` does.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    throw error;
  });
  return {
    env: process.env,
    cwd: process.cwd(),
    home,
    out: (text) => void process.stdout.write(text),
    err: (line) => void process.stderr.write(`${line}\n`),
    interactive: process.stdin.isTTY === true && process.stderr.isTTY === true,
    outIsScreen: process.stdout.isTTY === true,
    async confirm(question) {
      const lines = createInterface({ input: process.stdin, output: process.stderr });
      try {
        return /^y(es)?$/i.test((await lines.question(`${question} [y/N] `, { signal: stop.signal })).trim());
      } catch {
        return false;
      } finally {
        lines.close();
      }
    },
    async readInput() {
      const pieces: Buffer[] = [];
      for await (const piece of process.stdin as AsyncIterable<Buffer>) pieces.push(piece);
      return Buffer.concat(pieces).toString('utf8');
    },
    signal: stop.signal,
  };
}
