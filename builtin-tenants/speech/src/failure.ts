/**
 * The one error that callers see, in Deepgram's shape: `{err_code, err_msg, request_id}`.
 * Whatever else is thrown becomes a bare 500 and is written to the log only. No failure is ever charged.
 */

/** code -> HTTP status. */
export const FAILURES = {
  INVALID_QUERY_PARAMETER: 400,
  INVALID_BODY: 400,
  REMOTE_CONTENT_ERROR: 400,
  UNSUPPORTED_AUDIO: 400,
  PAYMENT_LIMIT_EXCEEDED: 402,
  NOT_FOUND: 404,
  METHOD_NOT_ALLOWED: 405,
  PAYLOAD_TOO_LARGE: 413,
  UNPROCESSABLE_OPTION: 422,
  UNSUPPORTED_SSML: 422,
  TOO_MANY_REQUESTS: 429,
  INTERNAL_SERVER_ERROR: 500,
  UPSTREAM_ERROR: 502,
  SERVICE_UNAVAILABLE: 503,
  TIMEOUT: 504,
} as const;

export type FailureCode = keyof typeof FAILURES;

export class SpeechFailure extends Error {
  readonly code: FailureCode;
  readonly status: number;
  /** Seconds, for `Retry-After`. */
  readonly retryAfter: number | undefined;
  /** Members of the answer beside the three. */
  readonly extra: Record<string, unknown>;

  /** @param message one sentence for the caller that says what to do next */
  constructor(
    code: FailureCode,
    message: string,
    options: { retryAfter?: number | undefined; extra?: Record<string, unknown>; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'SpeechFailure';
    this.code = code;
    this.status = FAILURES[code];
    this.retryAfter = options.retryAfter;
    this.extra = options.extra ?? {};
  }

  toResponse(requestId: string): Response {
    return Response.json(
      { err_code: this.code, err_msg: this.message, request_id: requestId, ...this.extra },
      {
        status: this.status,
        headers: {
          'x-request-id': requestId,
          'dg-request-id': requestId,
          'cache-control': 'no-store',
          ...(this.retryAfter === undefined ? {} : { 'retry-after': String(this.retryAfter) }),
        },
      },
    );
  }
}

/** Errors of unknown kind may hold what callers must not see. */
export function asFailure(error: unknown): SpeechFailure {
  if (error instanceof SpeechFailure) return error;
  return new SpeechFailure(
    'INTERNAL_SERVER_ERROR',
    'An unexpected error; nothing was charged. Quote the request id to the operator.',
    { cause: error },
  );
}
