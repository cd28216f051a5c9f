/**
 * Builds the body of `/healthz`: the state of each component, and whether the host serves requests. Pure. The body must
 * not help an attacker: no paths, no library versions, no addresses.
 */

export type ComponentHealth = 'ready' | 'starting' | 'restarting' | 'degraded' | 'off' | 'stopped';

export interface Component {
  name: string;
  state: ComponentHealth;
  /** If true, the host cannot serve requests without it. */
  essential: boolean;
  /** One sentence for the operator; never secrets. */
  detail?: string;
}

export interface HealthDocument {
  status: 'ok' | 'degraded' | 'unavailable';
  version: string;
  uptimeSeconds: number;
  parts: Record<string, { state: ComponentHealth; detail?: string }>;
  [extra: string]: unknown;
}

/**
 * @param extra further members, such as the sandbox level and the payment network
 * @returns what OperatorDeps.health answers: `ready` is false when an essential component does not serve
 */
export function health(
  components: readonly Component[],
  { version, uptimeMs, extra = {} }: { version: string; uptimeMs: number; extra?: Record<string, unknown> },
): { ready: boolean; body: HealthDocument } {
  const serves = (component: Component) =>
    component.state === 'ready' || component.state === 'degraded' || component.state === 'off';
  const ready = components.every((component) => !component.essential || serves(component));
  const well = components.every(({ state }) => state === 'ready' || state === 'off');
  return {
    ready,
    body: {
      ...extra,
      status: !ready ? 'unavailable' : well ? 'ok' : 'degraded',
      version,
      uptimeSeconds: Math.floor(uptimeMs / 1000),
      parts: Object.fromEntries(
        components.map(({ name, state, detail }) => [name, { state, ...(detail === undefined ? {} : { detail }) }]),
      ),
    },
  };
}
