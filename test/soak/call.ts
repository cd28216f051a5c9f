/** One request as a caller makes it: an answer, or what went wrong, and how long it took. */

/** No caller waits longer than this; a request that takes as long hangs. */
export const HUNG_MS = 10_000;

export interface Answer {
  /** 0 when there was no answer. */
  status: number;
  text: string;
  /** `503`, or the code of the connection's error. */
  outcome: string;
  ms: number;
}

export async function call(url: string, init: RequestInit = {}, patienceMs = HUNG_MS): Promise<Answer> {
  const from = performance.now();
  try {
    const response = await fetch(url, { ...init, signal: AbortSignal.timeout(patienceMs) });
    const text = await response.text();
    return { status: response.status, text, outcome: String(response.status), ms: performance.now() - from };
  } catch (error) {
    const { name, cause } = error as Error & { cause?: { code?: string } };
    return { status: 0, text: '', outcome: cause?.code ?? name, ms: performance.now() - from };
  }
}
