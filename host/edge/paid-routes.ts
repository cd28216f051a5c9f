/**
 * Whether a request falls under a price. Errs towards the toll: a handler may decode, normalise or trim a path
 * before it looks at it, so every such reading of the path is compared.
 */

export interface PaidRoute {
  /** A method, or `*`. */
  method: string;
  /** A path; `*` at the end matches any rest. */
  path: string;
}

/** A path without anything that readers treat differently. */
const PLAIN = /^(?:\/[A-Za-z0-9_~-][A-Za-z0-9_~.-]*)*$/;

/**
 * @param tenantPath raw path and query, as the handler would get it
 * @returns the first route that matches
 */
export function matchPaidRoute<R extends PaidRoute>(
  routes: readonly R[],
  method: string,
  tenantPath: string,
): R | undefined {
  if (routes.length === 0) return undefined;
  const query = tenantPath.indexOf('?');
  const path = query < 0 ? tenantPath : tenantPath.slice(0, query);
  const readings = PLAIN.test(path) ? [path] : readingsOf(path);
  // Handlers answer HEAD as GET without the body.
  const asked = method === 'HEAD' ? 'GET' : method;
  return routes.find(
    (route) =>
      (route.method === '*' || route.method.toUpperCase() === asked || route.method.toUpperCase() === method) &&
      readings.some((reading) => matches(route.path, reading)),
  );
}

function matches(pattern: string, path: string): boolean {
  if (!pattern.endsWith('*')) return path === trimEnd(pattern);
  const stem = pattern.slice(0, -1);
  return path.startsWith(stem) || `${path}/` === stem;
}

function readingsOf(path: string): string[] {
  const readings = new Set<string>();
  for (const spelling of [path, decode(path), decode(decode(path))]) {
    for (const reading of [spelling, resolved(spelling)]) {
      const collapsed = reading.replace(/\/{2,}/g, '/');
      for (const form of [reading, collapsed, decode(collapsed)]) readings.add(trimEnd(form));
    }
  }
  return [...readings];
}

/** As `new URL()` reads it: `\` is `/`, tabs and line ends vanish, dot segments are resolved. */
function resolved(path: string): string {
  try {
    // Two slashes at the start would be read as a host.
    return new URL(`http://h${path.startsWith('/') ? '' : '/'}${path}`).pathname;
  } catch {
    return path;
  }
}

function decode(path: string): string {
  return path.replace(/(?:%[0-9a-fA-F]{2})+/g, (escapes) => Buffer.from(escapes.replaceAll('%', ''), 'hex').toString());
}

function trimEnd(path: string): string {
  return path.length > 1 && path.endsWith('/') ? path.replace(/\/+$/, '') || '/' : path;
}
