/**
 * A request that a store declines: the tenant gets the reason, nothing was written, and the work of others goes on.
 * Each binding derives its own errors from it (kv/errors.ts, r2/errors.ts).
 */
export class Refusal extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'Refusal';
  }
}

/** The caller went away before its body was complete: there is nobody to answer. */
export class BodyCut extends Refusal {
  constructor() {
    super('The request ended before its body was complete.');
    this.name = 'BodyCut';
  }
}
