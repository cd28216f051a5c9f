/** The connection string of a database, as a deployment keeps it in a secret: refusals say what is wrong, and no part of it. */

export const TLS_MODES = ['disable', 'require', 'verify-ca', 'verify-full'] as const;
/** What libpq calls `sslmode`. `require` proves nothing of the server, `verify-ca` not its name. */
export type TlsMode = (typeof TLS_MODES)[number];

export interface DatabaseAddress {
  scheme: 'postgresql' | 'mysql';
  /** Lowercase name, or an IP address; IPv6 in brackets. */
  host: string;
  port: number;
  user: string;
  password: string;
  database: string;
  tls: TlsMode;
}

const SCHEMES: Record<string, DatabaseAddress['scheme']> = {
  'postgres:': 'postgresql',
  'postgresql:': 'postgresql',
  'mysql:': 'mysql',
};
const PORTS: Record<DatabaseAddress['scheme'], number> = { postgresql: 5432, mysql: 3306 };
/** MySQL's own names (`ssl-mode`), lowercase. */
const MYSQL_MODES: Record<string, TlsMode> = {
  disabled: 'disable',
  required: 'require',
  verify_ca: 'verify-ca',
  verify_identity: 'verify-full',
};
const FORM = 'write postgres://user:password@host:5432/database, or mysql://…, with special characters as %xx';

/** @returns the address, or what is wrong with the text, in words for its owner */
export function parseConnectionString(text: string): DatabaseAddress | string {
  const url = URL.parse(text);
  const scheme = url && SCHEMES[url.protocol];
  if (!scheme) return `is no connection string: ${FORM}`;
  // The host of a URL of an unknown scheme is left as it was written.
  const host = URL.parse(`http://${url.hostname}`)?.hostname;
  if (!host) return `has no host: ${FORM}`;
  const [user, password, database] = [url.username, url.password, url.pathname.slice(1)].map(decoded);
  if (user === undefined || password === undefined || database === undefined)
    return 'has a % that is no part of a %xx: write it as %25';
  if (user === '') return `has no user: ${FORM}`;
  if (database === '' || database.includes('/')) return `has no database: ${FORM}`;
  if (/\0/.test(user + password + database)) return 'has a NUL character in it';
  const tls = tlsMode(url.searchParams);
  if (tls === undefined)
    return `has an sslmode that this host does not have: write one of ${TLS_MODES.join(', ')}; without one it is verify-full`;
  const rootCert = url.searchParams.get('sslrootcert');
  if (rootCert !== null && rootCert !== 'system')
    return 'names a file by sslrootcert: leave it out; the authorities of the host count';
  const port = url.port === '' ? PORTS[scheme] : Number(url.port);
  if (port === 0) return 'has the port 0';
  return { scheme, host, port, user, password, database, tls };
}

function tlsMode(parameters: URLSearchParams): TlsMode | undefined {
  for (const [name, value] of parameters) {
    if (!/^ssl[-_]?mode$/i.test(name)) continue;
    const mode = value.toLowerCase();
    return TLS_MODES.find((one) => one === mode) ?? (Object.hasOwn(MYSQL_MODES, mode) ? MYSQL_MODES[mode] : undefined);
  }
  return 'verify-full';
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
