/**
 * Why a command ends badly: a sentence for the person, and an exit code for the script. Every throw site of the
 * command picks one; what is thrown otherwise counts as unexpected.
 */
import { Problem, type ProblemDocument } from '../../shared/problem.ts';
import type { ExitName } from '../exit-codes.ts';

export class Failure extends Error {
  readonly exit: ExitName;
  /** The host's own problem document, where there is one. */
  readonly document: Partial<ProblemDocument> | undefined;
  /** The result that says so is printed already: with `--json` there must not be a second document. */
  reported = false;

  /** @param message one or two sentences that say what to do next */
  constructor(exit: ExitName, message: string, document?: Partial<ProblemDocument>) {
    super(message);
    this.name = 'Failure';
    this.exit = exit;
    this.document = document;
  }
}

/** A failure whose result was printed before it. */
export function reportedFailure(exit: ExitName, message: string): Failure {
  return Object.assign(new Failure(exit, message), { reported: true });
}

/** Makes one kind of thing of whatever was thrown. */
export function asFailure(error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (error instanceof Problem) return new Failure('usage', error.message, error.toDocument());
  return new Failure('unexpected', error instanceof Error ? error.message : String(error));
}

/** What `--json` prints of it. */
export function failureDocument({ exit, message, document }: Failure): object {
  return { error: { exit, message, ...(document === undefined ? {} : { problem: document }) } };
}

/** What a person reads of it: the message, then each bad place that it does not name itself. */
export function failureText({ message, document }: Failure): string {
  const places = (document?.errors ?? []).flatMap(({ file, line, column, detail, pointer }) => {
    const place = file === undefined ? pointer : [file, line, column].filter((part) => part !== undefined).join(':');
    const told = message.includes(detail) && (file === undefined || message.includes(place));
    return told ? [] : [`  ${place}  ${detail}`];
  });
  const id = document?.requestId === undefined ? [] : [`  request id ${document.requestId}`];
  return [`turnpike: ${message}`, ...places, ...id].join('\n');
}
