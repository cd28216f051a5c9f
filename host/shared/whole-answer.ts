/**
 * Answers whose body is at hand. A server writes them in one piece; of any other `Response` it reads a stream, waits for
 * what may come, and writes that by itself.
 */
const bodies = new WeakMap<Response, Uint8Array>();

export function wholeAnswer(body: Uint8Array<ArrayBuffer>, init: ResponseInit): Response {
  const answer = new Response(body.length === 0 ? null : body, init);
  bodies.set(answer, body);
  return answer;
}

/** @returns undefined where the body has to be read */
export function wholeBody(answer: Response): Uint8Array | undefined {
  return answer.bodyUsed ? undefined : bodies.get(answer);
}
