/** What the host says to a SQL process: one JSON line on standard input. */
import { DEFAULT_LIMITS, type SqlLimits } from './limits.ts';

export interface RemoteSettings {
  /** libsql://, https:// or http:// address of a libSQL server. */
  url: string;
  token: string;
  /** The tenant's namespace on it. */
  namespace: string;
  /** Admin API that makes the namespace; without one it must exist. */
  adminUrl?: string;
  adminToken?: string;
}

export interface SqlSettings extends SqlLimits {
  /** Path of the unix socket to serve, or the number of a listening one that was handed over. */
  listen: string | number;
  /** The database file; unused with `remote`. */
  database: string;
  /** libSQL's binding (`index.node`); undefined: looked for in node_modules. */
  native: string | undefined;
  remote: RemoteSettings | undefined;
  /** End when standard input closes: for hosts whose sandbox does not end its processes by itself. */
  lifeline: boolean;
}

/** @throws Error when the line is not what the host should have written */
export function parseSettings(line: string): SqlSettings {
  const given = JSON.parse(line) as Record<string, unknown>;
  const listen = given.fd ?? given.socket;
  if (typeof listen !== 'string' && typeof listen !== 'number') throw new Error('settings name neither socket nor fd');
  const remote = given.remote as RemoteSettings | undefined;
  if (remote === undefined && typeof given.database !== 'string') throw new Error('settings name no database');
  const limit = (name: keyof SqlLimits): number => {
    const value = given[name] ?? DEFAULT_LIMITS[name];
    if (typeof value !== 'number' || !(value > 0)) throw new Error(`settings: ${name} must be a positive number`);
    return value;
  };
  return {
    listen,
    database: String(given.database ?? ''),
    native: typeof given.native === 'string' ? given.native : undefined,
    remote,
    lifeline: given.lifeline === true,
    quotaBytes: limit('quotaBytes'),
    timeoutMs: limit('timeoutMs'),
    maxRows: limit('maxRows'),
    maxResultBytes: limit('maxResultBytes'),
    heapBytes: limit('heapBytes'),
    idleMs: limit('idleMs'),
  };
}
