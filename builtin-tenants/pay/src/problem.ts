/** Errors of the platform: RFC 9457 problems with a code from a closed table, as everywhere on this host. */
import { problemsOf } from '../../kit/problem.ts';

const PROBLEMS = {
  invalid_json: [400, 'The body is not JSON'],
  invalid_field: [400, 'A field is not acceptable'],
  unauthorized: [401, 'Authentication is required'],
  payment_required: [402, 'Payment is required'],
  payment_invalid: [402, 'The payment was refused'],
  insufficient_credit: [402, 'The credit does not cover this'],
  forbidden: [403, 'Not allowed'],
  not_found: [404, 'Nothing is here'],
  method_not_allowed: [405, 'The method is not allowed here'],
  conflict: [409, 'The request conflicts with the present state'],
  idempotency_conflict: [409, 'The idempotency key was used for another request'],
  in_progress: [409, 'The same request is being worked on'],
  too_large: [413, 'The body is too large'],
  spend_cap_reached: [429, 'The credential has spent what it may in a day'],
  rate_limited: [429, 'Too many requests'],
  internal: [500, 'Something went wrong here'],
  upstream_failed: [502, 'The origin did not answer properly'],
  upstream_timeout: [504, 'The origin did not answer in time'],
} as const satisfies Record<string, readonly [number, string]>;

export class Problem extends problemsOf(PROBLEMS) {}

/** @param pointer JSON pointer of the bad field */
export function invalidField(pointer: string, detail: string): Problem {
  return new Problem('invalid_field', `${pointer.slice(1) || 'The body'}: ${detail}`, {
    errors: [{ pointer, detail }],
  });
}
