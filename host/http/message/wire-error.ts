/** What a peer sent is not HTTP as we read it. Carries the code of the problem to answer with. */
import type { ProblemCode } from '../../shared/problem.ts';

export class WireError extends Error {
  readonly code: ProblemCode;

  constructor(code: ProblemCode, detail: string) {
    super(detail);
    this.name = 'WireError';
    this.code = code;
  }
}
