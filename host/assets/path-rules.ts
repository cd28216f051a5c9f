/**
 * Patterns of `_headers`, `_redirects` and `run_worker_first`, matched in time that is bounded whatever an owner writes:
 * a regular expression of the same pattern could take years. What they mean is in workers-shared of Cloudflare's
 * workers-sdk (asset-worker/src/utils/rules-engine.ts).
 */

/** Work that is left for all the patterns and paths of a list. */
export interface Budget {
  /** Characters and pieces of patterns that are looked at. */
  steps: number;
}

export class TooMuchWork extends Error {}

type Token =
  | { kind: 'text'; text: string }
  /** `*`: any rest. */
  | { kind: 'splat' }
  /** `:name`: up to the next `/`. */
  | { kind: 'placeholder'; name: string };

export class PathPattern {
  readonly #tokens: Token[] = [];
  /** Starts every path that matches. */
  readonly #start: string;

  /** @param placeholders whether `:name` stands for a name; else `*` alone means something */
  constructor(pattern: string, placeholders: boolean) {
    const pieces = placeholders ? pattern.split(/(\*|:[A-Za-z]\w*)/) : pattern.split(/(\*)/);
    for (const [index, piece] of pieces.entries()) {
      if (index % 2 === 0) {
        if (piece !== '') this.#tokens.push({ kind: 'text', text: piece });
      } else if (piece === '*') this.#tokens.push({ kind: 'splat' });
      else this.#tokens.push({ kind: 'placeholder', name: piece.slice(1) });
    }
    const [first] = this.#tokens;
    this.#start = first?.kind === 'text' ? first.text : '';
  }

  /** Whether names in it are unlike enough to be told apart, as a regular expression does. */
  get plain(): boolean {
    const names = this.#tokens.flatMap((token) => (token.kind === 'placeholder' ? [token.name] : []));
    const splats = this.#tokens.filter(({ kind }) => kind === 'splat').length;
    return (
      splats <= 1 &&
      !names.includes('splat') &&
      names.every((name, index) => names.every((other, at) => at === index || !other.startsWith(name)))
    );
  }

  /**
   * What `*` (as `splat`) and the names stand for, each as long as can be, the first ones first.
   * @returns undefined where the path does not match
   * @throws TooMuchWork
   */
  match(path: string, budget: Budget): Map<string, string> | undefined {
    budget.steps -= 1;
    if (!path.startsWith(this.#start)) return undefined;
    const found = new Map<string, string>();
    return this.#from(0, 0, path, found, new Set(), budget) ? found : undefined;
  }

  /** @param dead places that were tried in vain */
  #from(
    index: number,
    at: number,
    path: string,
    found: Map<string, string>,
    dead: Set<number>,
    budget: Budget,
  ): boolean {
    const token = this.#tokens[index];
    if (token === undefined) return at === path.length;
    const place = index * (path.length + 1) + at;
    if (dead.has(place)) return false;
    budget.steps -= 1;
    if (budget.steps < 0) throw new TooMuchWork();
    if (token.kind === 'text') {
      budget.steps -= token.text.length;
      if (path.startsWith(token.text, at) && this.#from(index + 1, at + token.text.length, path, found, dead, budget))
        return true;
    } else {
      const slash = path.indexOf('/', at);
      const end = token.kind === 'splat' || slash < 0 ? path.length : slash;
      const least = token.kind === 'splat' ? at : at + 1;
      for (let to = end; to >= least; to--) {
        budget.steps -= 1;
        if (!this.#from(index + 1, to, path, found, dead, budget)) continue;
        found.set(token.kind === 'splat' ? 'splat' : token.name, path.slice(at, to));
        return true;
      }
    }
    dead.add(place);
    return false;
  }
}
