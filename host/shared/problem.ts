/**
 * The one error type that crosses our boundaries: an RFC 9457 problem with a code from a closed table.
 * A throw site picks a code; anything else that is thrown becomes `internal` with a bare message.
 */
import { fullDisk } from './full-disk.ts';
import { lostDatabase } from './lost-database.ts';

/** code -> [HTTP status, title]. Codes are stable: clients match on them; titles may be reworded. */
export const PROBLEMS = {
  bad_request: [400, 'The request is not understood'],
  invalid_json: [400, 'The body is not JSON'],
  invalid_field: [400, 'A field is not acceptable'],
  invalid_config: [400, 'The configuration is not acceptable'],
  code_rejected: [422, 'The code was refused'],
  code_too_large: [413, 'The code is too large'],
  payment_required: [402, 'Payment is required'],
  payment_invalid: [402, 'The payment was refused'],
  payment_pending: [503, 'The payment is being confirmed'],
  proof_required: [402, 'Proof of ownership is required'],
  not_owner: [403, 'Another wallet owns this'],
  forbidden: [403, 'Not allowed'],
  suspended: [403, 'Suspended by the operator'],
  blocked: [403, 'Blocked by the operator'],
  unauthorized: [401, 'Authentication is required'],
  not_found: [404, 'Nothing is here'],
  method_not_allowed: [405, 'The method is not allowed here'],
  slug_taken: [409, 'The slug is taken'],
  slug_reserved: [409, 'The slug is reserved'],
  request_timeout: [408, 'The request took too long'],
  conflict: [409, 'The request conflicts with the present state'],
  idempotency_conflict: [409, 'The idempotency key was used for another request'],
  in_progress: [409, 'The same request is being worked on'],
  gone: [410, 'It was decommissioned'],
  too_large: [413, 'The body is too large'],
  header_too_large: [431, 'The headers are too large'],
  rate_limited: [429, 'Too many requests'],
  quota_exceeded: [507, 'The quota is used up'],
  disk_full: [507, 'The disk of this host is full'],
  database_away: [503, 'The database of this host does not answer'],
  internal: [500, 'Something went wrong here'],
  not_implemented: [501, 'Not supported'],
  upstream_failed: [502, 'The handler closed the connection'],
  not_ready: [503, 'Starting'],
  cpu_exceeded: [503, 'The handler was stopped: it used too much CPU'],
  memory_exceeded: [503, 'The handler was stopped: it used too much memory'],
  start_failed: [503, 'The handler did not start'],
  crash_loop: [503, 'The handler keeps failing; it is started again with back-off'],
  overloaded: [503, 'Too busy'],
  upstream_timeout: [504, 'The handler did not answer in time'],
  egress_refused: [403, 'The address is not open to handlers'],
  egress_failed: [502, 'The address could not be reached'],
  egress_limit: [429, 'The limit of outbound traffic is reached'],
  egress_timeout: [504, 'The address did not answer in time'],
} as const satisfies Record<string, readonly [number, string]>;

export type ProblemCode = keyof typeof PROBLEMS;

/** One bad field: `pointer` is an RFC 6901 JSON pointer into the request body. */
export interface FieldError {
  pointer: string;
  detail: string;
  /** Position in the tenant's source, for rejected code. Lines and columns count from 1. */
  file?: string;
  line?: number;
  column?: number;
}

/** The wire form (`application/problem+json`, RFC 9457). */
export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  code: ProblemCode;
  detail: string;
  requestId?: string;
  errors?: FieldError[];
  [extension: string]: unknown;
}

/** Header of an answer that the host made, not a handler. Only edges see it: none of its name comes from outside. */
export const OWN_ANSWER = 'x-turnpike-own';

export interface ProblemOptions {
  errors?: FieldError[];
  /** Extra response headers, such as `retry-after`. */
  headers?: Record<string, string>;
  /** Extra members of the document. Never secrets. */
  extensions?: Record<string, unknown>;
  cause?: unknown;
}

export class Problem extends Error {
  readonly code: ProblemCode;
  readonly status: number;
  readonly title: string;
  readonly errors: FieldError[] | undefined;
  readonly headers: Record<string, string>;
  readonly extensions: Record<string, unknown>;

  /** @param detail one sentence for the caller that says what to do next */
  constructor(code: ProblemCode, detail: string, options: ProblemOptions = {}) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'Problem';
    this.code = code;
    [this.status, this.title] = PROBLEMS[code];
    this.errors = options.errors;
    this.headers = options.headers ?? {};
    this.extensions = options.extensions ?? {};
  }

  /** Of the host's own, not of what was asked: for the log, and no answer to what became of the work. */
  get isFault(): boolean {
    return this.code === 'internal' || this.code === 'disk_full' || this.code === 'database_away';
  }

  toDocument(requestId?: string): ProblemDocument {
    return {
      ...this.extensions,
      type: `https://turnpike.dev/problems/${this.code}`,
      title: this.title,
      status: this.status,
      code: this.code,
      detail: this.message,
      ...(requestId === undefined ? {} : { requestId }),
      ...(this.errors === undefined ? {} : { errors: this.errors }),
    };
  }

  toResponse(requestId?: string): Response {
    return new Response(JSON.stringify(this.toDocument(requestId)), {
      status: this.status,
      headers: {
        'content-type': 'application/problem+json',
        'cache-control': 'no-store',
        [OWN_ANSWER]: '1',
        ...(requestId === undefined ? {} : { 'x-request-id': requestId }),
        ...this.headers,
      },
    });
  }
}

/** Unknown errors become a bare 500: their text may hold paths or secrets, so only the log gets it. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (fullDisk(error)) {
    const detail =
      'Nothing new can be kept until its operator makes room. Send the very same request again then: no payment is taken twice.';
    return new Problem('disk_full', detail, { headers: { 'retry-after': '60' }, cause: error });
  }
  if (lostDatabase(error)) {
    const detail =
      'What was asked for may have been done or not. Send the very same request again in a few seconds: no payment is taken twice.';
    return new Problem('database_away', detail, { headers: { 'retry-after': '5' }, cause: error });
  }
  return new Problem('internal', 'An unexpected error; quote the request id to the operator.', { cause: error });
}
