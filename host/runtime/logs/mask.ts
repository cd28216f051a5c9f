/** Hides the values of secrets in what a handler prints, in the spellings in which they usually slip out. */

/** Shorter values are common words and numbers: hiding them would ruin the log and protect nothing. */
const SHORTEST = 4;
const MASK = '[secret]';
/**
 * CPU time for the search of one text, ms. It takes a thousandth of that, but V8's search compares every character with
 * hundreds of a long value that is made for it: 60,000 letters beside 64 secrets would take seconds.
 */
const SEARCH_MS = 20;
/** Single lines of values that are hidden, the longest first: each costs a search of all that is printed. */
const MOST_LINES = 1_000;

/** @returns a function that replaces every secret value in a text, or all of a text that takes too long to search */
export function createMask(secrets: Record<string, string>): (text: string) => string {
  const spellings = new Set<string>();
  const lines = new Set<string>();
  for (const value of Object.values(secrets)) {
    if (value.length < SHORTEST) continue;
    spellings.add(value);
    spellings.add(JSON.stringify(value).slice(1, -1));
    spellings.add(encodeURIComponent(value));
    spellings.add(Buffer.from(value).toString('base64'));
    spellings.add(Buffer.from(value).toString('base64url'));
    // Multi-line values (keys) are often printed line by line.
    for (const line of value.split(/\r?\n/)) if (line.length >= 16) lines.add(line);
  }
  for (const line of longestFirst(lines).slice(0, MOST_LINES)) spellings.add(line);
  // Longest first, so that a value that is part of another does not leave the rest of it readable.
  const ordered = longestFirst(spellings);
  return (text) => {
    const isTooLong = stopwatch(SEARCH_MS);
    let masked = text;
    for (const value of ordered) {
      if (value.length > masked.length) continue;
      if (isTooLong()) return `[${text.length} characters that took too long to search for secrets]`;
      masked = masked.replaceAll(value, MASK);
    }
    return masked;
  };
}

/** @returns whether this thread has worked for longer since; the CPU's clock is asked only when the wall's says so */
function stopwatch(ms: number): () => boolean {
  const startedAt = performance.now();
  const before = process.threadCpuUsage();
  return () => {
    if (performance.now() - startedAt < ms) return false;
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1_000 > ms;
  };
}

function longestFirst(texts: Set<string>): string[] {
  return [...texts].sort((a, b) => b.length - a.length);
}
