/** The HTTP-01 proofs that are on show now. */
export class ChallengeBoard {
  readonly #proofs = new Map<string, string>();

  /** @param body undefined: the proof is not needed any more */
  show(token: string, body: string | undefined): void {
    if (body === undefined) this.#proofs.delete(token);
    else this.#proofs.set(token, body);
  }

  /** The answer to `GET /.well-known/acme-challenge/<token>`; undefined: not ours. */
  proof(token: string): string | undefined {
    return this.#proofs.get(token);
  }
}
