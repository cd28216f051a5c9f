/**
 * What a slug has under way, and when it last had anything to do. Times are those of `performance.now()`: a step of the
 * machine's clock neither ends who is in use nor keeps who is not.
 */

/** How long a report of requests in flight counts, ms: edges report them every second. */
const REPORT_MS = 2_500;

export class Activity {
  #lastActive = 0;
  #requests = 0;
  #requestsUntil = 0;
  #runs = 0;

  /** Last request, start or scheduled run, ms. */
  get lastActive(): number {
    return this.#lastActive;
  }

  /** Requests and scheduled runs under way. */
  get inFlight(): number {
    return (performance.now() < this.#requestsUntil ? this.#requests : 0) + this.#runs;
  }

  touch(): void {
    this.#lastActive = performance.now();
  }

  /** What an edge reports. @param requests answered since the last report; @param inFlight now */
  report(requests: number, inFlight: number): void {
    if (requests > 0 || inFlight > 0) this.touch();
    // One edge's silence says nothing about another's requests.
    if (inFlight === 0) return;
    this.#requests = inFlight;
    this.#requestsUntil = performance.now() + REPORT_MS;
  }

  /** A scheduled run, from its start to its end. */
  async run<T>(work: () => Promise<T>): Promise<T> {
    this.#runs++;
    try {
      return await work();
    } finally {
      this.#runs--;
      this.touch();
    }
  }

  /** Nothing runs that could have requests. */
  forgetRequests(): void {
    this.#requestsUntil = 0;
  }
}
