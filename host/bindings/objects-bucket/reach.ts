/** Whether the database of the bucket answers: away after some time without an answer, back at the first one. */

/**
 * workerd (1.20261117.1) ends 14 s after its bucket last answered. Another instance takes its place before, so a database
 * that is started again within this time is not noticed.
 */
const AWAY_MS = 6_000;
/** While something failed, it is asked so often, ms. */
const ASK_MS = 500;

export class Reach {
  readonly #ask: () => Promise<void>;
  readonly #awayMs: number;
  readonly #listeners: (() => void)[] = [];
  /** Of the first failure since it last answered. */
  #failingSince: number | undefined;
  #away = false;
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(ask: () => Promise<void>, awayMs = AWAY_MS) {
    this.#ask = ask;
    this.#awayMs = awayMs;
  }

  get away(): boolean {
    return this.#away;
  }

  watch(listener: () => void): void {
    this.#listeners.push(listener);
  }

  answered(): void {
    this.#failingSince = undefined;
    this.#become(false);
  }

  failed(): void {
    this.#failingSince ??= performance.now();
    this.#become(performance.now() - this.#failingSince > this.#awayMs);
    this.#askLater();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  #become(away: boolean): void {
    if (away === this.#away) return;
    this.#away = away;
    for (const listener of this.#listeners) listener();
  }

  #askLater(): void {
    if (this.#closed || this.#timer) return;
    this.#timer = setTimeout(async () => {
      const failure = await this.#ask().catch((error: Error) => error);
      this.#timer = undefined;
      if (failure) this.failed();
      else this.answered();
    }, ASK_MS);
    this.#timer.unref();
  }
}
