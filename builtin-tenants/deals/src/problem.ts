/** Errors of this service: RFC 9457 problems with a code from a closed table. */

import type { z } from 'zod/mini';
import { problemsOf } from '../../kit/problem.ts';

const PROBLEMS = {
  invalid_json: [400, 'The body is not JSON'],
  invalid_field: [400, 'A field is not acceptable'],
  unauthorized: [401, 'The signature was refused'],
  account_required: [403, 'An account is required'],
  not_found: [404, 'Nothing is here'],
  conflict: [409, 'The request conflicts with the present state'],
  too_large: [413, 'The body is too large'],
  internal: [500, 'Something went wrong here'],
  not_ready: [503, 'Not ready'],
} as const satisfies Record<string, readonly [number, string]>;

export class Problem extends problemsOf(PROBLEMS) {}

/** What a schema of zod mini wants, which has no words of its own for it. */
export function fault(issue: z.core.$ZodIssue | undefined): string {
  switch (issue?.code) {
    case 'invalid_type':
      return issue.expected === 'nan'
        ? 'takes a number'
        : `takes ${/^[aeio]/.test(issue.expected) ? 'an' : 'a'} ${issue.expected}`;
    case 'invalid_value':
      return `takes ${issue.values.join(', ')}`;
    case 'too_small':
      return `takes ${issue.minimum} or more${issue.origin === 'string' ? ' characters' : ''}`;
    case 'too_big':
      return `takes at most ${issue.maximum}${issue.origin === 'string' ? ' characters' : ''}`;
    default:
      return 'is not acceptable; see /docs';
  }
}

/** @param pointer JSON pointer of the bad field, or the name of a query parameter after `?` */
export function invalidField(pointer: string, detail: string): Problem {
  return new Problem('invalid_field', `${pointer}: ${detail}`, { errors: [{ pointer, detail }] });
}
