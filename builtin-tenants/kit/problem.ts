/** Errors as RFC 9457 problems, with a code from a table that each tenant closes for itself. */

/**
 * @param table code -> HTTP status, title
 * @returns the class of a tenant's problems: `class Problem extends problemsOf(TABLE) {}`
 */
export function problemsOf<Code extends string>(table: Record<Code, readonly [status: number, title: string]>) {
  return class extends Error {
    readonly code: Code;
    readonly status: number;
    readonly extensions: Record<string, unknown>;
    readonly headers: Record<string, string>;

    /** @param detail one sentence for the caller that says what to do next */
    constructor(
      code: Code,
      detail: string,
      extensions: Record<string, unknown> = {},
      headers: Record<string, string> = {},
    ) {
      super(detail);
      this.name = 'Problem';
      this.code = code;
      this.status = table[code][0];
      this.extensions = extensions;
      this.headers = headers;
    }

    toDocument(): Record<string, unknown> {
      return {
        ...this.extensions,
        type: `https://turnpike.dev/problems/${this.code}`,
        title: table[this.code][1],
        status: this.status,
        code: this.code,
        detail: this.message,
      };
    }

    toResponse(): Response {
      return new Response(JSON.stringify(this.toDocument()), {
        status: this.status,
        headers: { 'content-type': 'application/problem+json', 'cache-control': 'no-store', ...this.headers },
      });
    }
  };
}
