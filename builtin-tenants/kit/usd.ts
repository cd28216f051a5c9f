/**
 * Amounts in USD as text. Money is an integer number of micro-USD in a JS number: 2^53 micro-USD are nine billion USD,
 * more than any account here may ever hold.
 */

/** `250000` -> `0.25`; at least two decimals, at most six, exact. */
export function formatUsd(microUsd: number): string {
  const sign = microUsd < 0 ? '-' : '';
  const absolute = Math.abs(microUsd);
  const fraction = String(absolute % 1_000_000)
    .padStart(6, '0')
    .replace(/0{1,4}$/, '');
  return `${sign}${Math.floor(absolute / 1_000_000)}.${fraction}`;
}

/** Reads what `formatUsd` writes, and fewer decimals. @returns undefined for anything else */
export function parseUsd(text: unknown): number | undefined {
  const match = typeof text === 'string' ? /^(\d{1,7})(?:\.(\d{1,6}))?$/.exec(text) : null;
  if (!match) return undefined;
  return Number(match[1]) * 1_000_000 + Number((match[2] ?? '').padEnd(6, '0'));
}
