/**
 * Whether a request falls under a price. Errs towards the toll: a handler may decode, normalise, trim or fold a path
 * before it looks at it, so every such reading of the path is compared. Where the readings fall under different routes,
 * or cannot all be told, the request is refused: the handler would decide what was paid for.
 */

/** In place of a method, to edges: whatever the method is, where the request has a body. */
export const WITH_BODY = 'BODY';

export interface PaidRoute {
  /** A method, `*`, or `WITH_BODY`. */
  method: string;
  /** A path; `*` at the end matches any rest. */
  path: string;
}

/** Request fields by which frameworks let a caller name another method than the request's own. */
export const OVERRIDE_FIELDS = ['x-http-method-override', 'x-http-method', 'x-method-override'];
/** The same in the query. */
const OVERRIDE_PARAMETER = '_method';

/**
 * @param values of the override fields
 * @returns methods that the handler may take the request for, beside its own; upper case
 */
export function overridingMethods(values: string[], tenantPath: string): string[] {
  const named = values.flatMap((value) => value.split(','));
  const query = tenantPath.indexOf('?');
  if (query >= 0) named.push(...new URLSearchParams(tenantPath.slice(query)).getAll(OVERRIDE_PARAMETER));
  return named.map((method) => method.trim().toUpperCase());
}

/** A path without anything that readers treat differently, but the case of its letters. */
const PLAIN = /^(?:\/[A-Za-z0-9_~-](?:[A-Za-z0-9_~.-]*[A-Za-z0-9_~-])?)*\/?$/;

/** Characters of all readings of one path; a path with more is taken as ambiguous. */
const MOST_CHARACTERS = 16 * 1024;

/** What nobody writes into a path but to be read differently: control characters, invalid UTF-8. */
const UNREADABLE = /[\p{Cc}\uFFFD]/u;

/** One step that some handler, router or proxy takes. All of them may be taken, in any order. */
const STEPS: readonly ((path: string) => string)[] = [
  (path) => path.replace(/(?:%[0-9a-fA-F]{2})+/g, (run) => Buffer.from(run.replaceAll('%', ''), 'hex').toString()),
  (path) => path.replaceAll('\\', '/'),
  (path) => path.replace(/\/{2,}/g, '/'),
  (path) => path.replace(/;[^/]*/g, ''),
  (path) => path.replace(/[?#].*$/s, ''),
  (path) => path.normalize('NFKC').replace(/\p{Cf}/gu, ''),
  // Two slashes at the start: once as a path, once as `new URL(path, base)` reads them, as a host.
  (path) => resolved(`http://h${path.startsWith('/') ? '' : '/'}${path}`, path),
  (path) => (/^[/\\]{2}/.test(path) ? resolved(`http:${path}`, path) : path),
];

/**
 * @param tenantPath raw path and query, as the handler would get it
 * @returns the route under which every reading falls that falls under any; `ambiguous` where they differ
 */
export function matchPaidRoute<R extends PaidRoute>(
  routes: readonly R[],
  method: string,
  tenantPath: string,
): R | 'ambiguous' | undefined {
  if (routes.length === 0) return undefined;
  const query = tenantPath.indexOf('?');
  const readings = readingsOf(query < 0 ? tenantPath : tenantPath.slice(0, query));
  if (readings === 'ambiguous') return 'ambiguous';
  const asked = method.toUpperCase();
  const offered = routes.filter(({ method: named }) => {
    const own = named.toUpperCase();
    // Handlers answer HEAD as GET without the body.
    return own === '*' || own === asked || (asked === 'HEAD' && own === 'GET');
  });
  let found: R | undefined;
  for (const reading of readings) {
    const route = offered.find(({ path }) => matches(folded(path), reading));
    if (route && found && route !== found) return 'ambiguous';
    found ??= route;
  }
  return found;
}

function matches(pattern: string, path: string): boolean {
  if (!pattern.endsWith('*')) return path === trimEnd(pattern);
  const stem = pattern.slice(0, -1);
  return path.startsWith(stem) || `${path}/` === stem;
}

/** Every reading, in one case and without an end that readers drop. */
function readingsOf(path: string): Iterable<string> | 'ambiguous' {
  if (PLAIN.test(path)) return [trimEnd(folded(path))];
  const readings = new Set([path]);
  let characters = path.length;
  for (const reading of readings) {
    if (UNREADABLE.test(reading)) return 'ambiguous';
    for (const step of STEPS) {
      const next = step(reading);
      if (readings.has(next)) continue;
      readings.add(next);
      characters += next.length;
      if (characters > MOST_CHARACTERS) return 'ambiguous';
    }
  }
  const ends = [...readings].map((reading) => trimEnd(folded(reading)));
  return new Set([...ends, ...ends.map(bare)]);
}

/** Upper case first: some letters of other scripts share only that with a Latin one. */
function folded(path: string): string {
  return path.toUpperCase().toLowerCase();
}

/** As `new URL()` reads it: `\` is `/`, tabs and line ends vanish, dot segments are resolved. */
function resolved(url: string, path: string): string {
  try {
    return new URL(url).pathname;
  } catch {
    return path;
  }
}

/** Without the blanks and dots at the end of a segment, which file systems drop. */
function bare(path: string): string {
  return trimEnd(
    path
      .split('/')
      .map((segment) => dropEnd(segment, ' .'))
      .join('/'),
  );
}

function trimEnd(path: string): string {
  return dropEnd(path, '/') || path.slice(0, 1);
}

/** In linear time, which a regular expression that ends in `$` does not promise. */
function dropEnd(text: string, dropped: string): string {
  let end = text.length;
  while (end > 0 && dropped.includes(text.charAt(end - 1))) end -= 1;
  return text.slice(0, end);
}
