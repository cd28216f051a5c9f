/**
 * The body of `/healthz`: each part's state, and whether the host as a whole serves. Pure; nothing in it may help an
 * attacker (no paths, no versions of libraries, no addresses).
 */

export type PartHealth = 'ready' | 'starting' | 'restarting' | 'degraded' | 'off' | 'stopped';

export interface Part {
  name: string;
  state: PartHealth;
  /** Without it the host does not serve. */
  essential: boolean;
  /** One sentence for the operator; never secrets. */
  detail?: string;
}

export interface HealthDocument {
  status: 'ok' | 'degraded' | 'unavailable';
  version: string;
  uptimeSeconds: number;
  parts: Record<string, { state: PartHealth; detail?: string }>;
  [extra: string]: unknown;
}

/**
 * @param extra further members, such as the sandbox level and the payment network
 * @returns what OperatorParts.health answers: `ready` is false when an essential part does not serve
 */
export function health(
  parts: readonly Part[],
  { version, uptimeMs, extra = {} }: { version: string; uptimeMs: number; extra?: Record<string, unknown> },
): { ready: boolean; body: HealthDocument } {
  const serves = (part: Part) => part.state === 'ready' || part.state === 'degraded' || part.state === 'off';
  const ready = parts.every((part) => !part.essential || serves(part));
  const well = parts.every(({ state }) => state === 'ready' || state === 'off');
  return {
    ready,
    body: {
      ...extra,
      status: !ready ? 'unavailable' : well ? 'ok' : 'degraded',
      version,
      uptimeSeconds: Math.floor(uptimeMs / 1000),
      parts: Object.fromEntries(
        parts.map(({ name, state, detail }) => [name, { state, ...(detail === undefined ? {} : { detail }) }]),
      ),
    },
  };
}
