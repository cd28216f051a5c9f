/** One finding of `turnpike doctor`: what was looked at, how it is, and what to do about it. */

export type CheckState = 'ok' | 'warning' | 'fault';

export interface Finding {
  name: string;
  state: CheckState;
  detail: string;
  /** A command or a sentence that mends it. */
  fix?: string;
  /** What was looked at, one line each. */
  lines?: string[];
}

const MARKS: Record<CheckState, string> = { ok: 'ok     ', warning: 'warning', fault: 'FAULT  ' };

export function findingsText(findings: Finding[]): string {
  const width = Math.max(...findings.map(({ name }) => name.length));
  return findings
    .map(({ name, state, detail, fix, lines = [] }) => {
      const indent = ' '.repeat(width + 11);
      return [
        `${MARKS[state]}  ${name.padEnd(width)}  ${detail}`,
        ...lines.map((line) => `${indent}${line}`),
        ...(fix === undefined ? [] : [`${indent}→ ${fix}`]),
      ].join('\n');
    })
    .join('\n');
}

/** Runs a check; what it throws is a fault of what it looked at. */
export async function finding(name: string, look: () => Promise<Omit<Finding, 'name'>>): Promise<Finding> {
  try {
    return { name, ...(await look()) };
  } catch (error) {
    return { name, state: 'fault', detail: error instanceof Error ? error.message : String(error) };
  }
}
