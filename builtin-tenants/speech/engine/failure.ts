/**
 * The one error that leaves the speech engine: a code from a closed table, its HTTP status and a sentence that says
 * what to do next. Anything else that is thrown becomes `internal` and is written to the log only.
 */

export const FAILURES = {
  bad_request: 400,
  unsupported_audio: 400,
  too_expensive: 402,
  not_found: 404,
  too_large: 413,
  too_long: 413,
  unsupported_option: 422,
  queue_full: 429,
  internal: 500,
  no_engine: 503,
  timeout: 504,
} as const;

export type FailureCode = keyof typeof FAILURES;

export interface FailureFacts {
  /** Seconds after which the caller may try again. */
  retryAfter?: number;
  /** What the refused work would have been charged for, in milliseconds of audio (all channels). */
  billableMs?: number;
}

export class EngineFailure extends Error {
  readonly code: FailureCode;
  readonly status: number;
  readonly facts: FailureFacts;

  constructor(code: FailureCode, message: string, facts: FailureFacts = {}) {
    super(message);
    this.name = 'EngineFailure';
    this.code = code;
    this.status = FAILURES[code];
    this.facts = facts;
  }

  /** The wire form: a JSON object. */
  toJSON(): { code: FailureCode; message: string } & FailureFacts {
    return { code: this.code, message: this.message, ...this.facts };
  }
}

/** Unknown errors may hold paths: their text stays in the log. */
export function asFailure(error: unknown): EngineFailure {
  if (error instanceof EngineFailure) return error;
  // worker threads hand errors over as plain data
  if (isWireFailure(error)) return new EngineFailure(error.code, error.message, error.facts);
  return new EngineFailure('internal', 'The speech engine failed; try again, or quote the request id to the operator.');
}

function isWireFailure(error: unknown): error is { code: FailureCode; message: string; facts: FailureFacts } {
  if (typeof error !== 'object' || error === null || !('code' in error) || !('facts' in error)) return false;
  return typeof error.code === 'string' && error.code in FAILURES;
}
