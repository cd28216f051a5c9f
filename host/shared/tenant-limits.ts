/** Limits that an operator may set for one tenant in place of the host's settings, by the names of those settings. */
import { z } from 'zod';
import { type Config, configSchema } from './config.ts';

const { runtime, storage } = configSchema.shape;

/** Each takes effect by itself; what is not here is the same for everybody. */
const NAMES = {
  runtime: [
    'memoryBytes',
    'heapMb',
    'cpuStallMs',
    'instances',
    'maxBodyBytes',
    'subrequests',
    'egressBytesPerHour',
    'egressTimeoutMs',
    'databaseConnections',
  ],
  storage: [
    'kvBytes',
    'sqlBytes',
    'objectBytes',
    'assetBytes',
    'durableObjectBytes',
    'analyticsBytes',
    'cacheBytes',
    'requestsInFlight',
  ],
} as const satisfies { runtime: (keyof Config['runtime'])[]; storage: (keyof Config['storage'])[] };

type Group = keyof typeof NAMES;
type NameIn<G extends Group> = (typeof NAMES)[G][number];
export type LimitName = { [G in Group]: `${G}.${NameIn<G>}` }[Group];
/** Those that were set. */
export type TenantLimits = Partial<Record<LimitName, number>>;

export const LIMIT_NAMES: readonly LimitName[] = (Object.keys(NAMES) as Group[]).flatMap((group) =>
  NAMES[group].map((name) => `${group}.${name}` as LimitName),
);

const settings = { runtime: runtime.shape, storage: storage.shape };

/** `{"storage.kvBytes": 1000, "runtime.heapMb": null}`: null takes one back. */
export const limitsSchema = z.strictObject(
  Object.fromEntries(
    LIMIT_NAMES.map((name) => {
      const setting = settingOf(name);
      return [name, setting.nullable().optional().describe(`${setting.description}; null: the host’s setting`)];
    }),
  ) as unknown as Record<LimitName, z.ZodOptional<z.ZodNullable<z.ZodNumber>>>,
);

/** What a tenant's own limits put in place of the settings of a group. */
export function limitsOf<G extends Group>(
  group: G,
  limits: TenantLimits = {},
): Partial<Pick<Config[G], NameIn<G> & keyof Config[G]>> {
  const start = `${group}.`;
  return Object.fromEntries(
    Object.entries(limits).flatMap(([name, value]) =>
      name.startsWith(start) ? [[name.slice(start.length), value]] : [],
    ),
  ) as ReturnType<typeof limitsOf<G>>;
}

/** The settings as they are for a tenant. */
export function tenantConfig(config: Config, limits: TenantLimits = {}): Config {
  if (Object.keys(limits).length === 0) return config;
  return {
    ...config,
    runtime: { ...config.runtime, ...limitsOf('runtime', limits) },
    storage: { ...config.storage, ...limitsOf('storage', limits) },
  };
}

/** Every limit as it is for a tenant, and who said so. */
export function limitsInForce(
  config: Config,
  limits: TenantLimits,
): Record<LimitName, { value: number; source: 'operator' | 'setting' }> {
  return Object.fromEntries(
    LIMIT_NAMES.map((name) => [
      name,
      {
        value: limits[name] ?? settingValue(config, name),
        source: limits[name] === undefined ? 'setting' : 'operator',
      },
    ]),
  ) as ReturnType<typeof limitsInForce>;
}

/** @param change as `limitsSchema` accepts it */
export function changedLimits(present: TenantLimits, change: z.infer<typeof limitsSchema>): TenantLimits {
  return Object.fromEntries(
    Object.entries({ ...present, ...change }).filter(([, value]) => value !== null && value !== undefined),
  );
}

function settingOf(name: LimitName): z.ZodNumber {
  const [group, key] = name.split('.') as [Group, string];
  return (settings[group] as Record<string, unknown>)[key] as z.ZodNumber;
}

function settingValue(config: Config, name: LimitName): number {
  const [group, key] = name.split('.') as [Group, string];
  return (config[group] as Record<string, unknown>)[key] as number;
}
