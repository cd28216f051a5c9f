/**
 * Reads `_headers`, and of `_redirects` what may match. Written after parseHeaders.ts and parseRedirects.ts in
 * workers-shared of Cloudflare's workers-sdk (MIT or Apache-2.0).
 */
import { PathPattern } from './path-rules.ts';

const MAX_LINE = 2_000;
const MAX_HEADER_RULES = 100;
const UNSET = '! ';
const LOOKS_LIKE_A_PATH = /^(?:\S+:\/\/|\/)/;
const ABSOLUTE = /^https:\/\/+([^/]+)\/?(.*)/;

export interface HeaderRule {
  pattern: PathPattern;
  /** The end of the host names that it is for, lower case; undefined: all. */
  hosts: string | undefined;
  set: [name: string, value: string][];
  unset: string[];
}

/** The path of a rule as URLs have it. */
function pathOf(text: string): string | undefined {
  try {
    return new URL(`//${text.startsWith('/') ? text : `/${text}`}`, 'relative://').pathname;
  } catch {
    return undefined;
  }
}

const linesOf = (text: string) =>
  text.split('\n').flatMap((raw) => {
    const line = raw.trim();
    return line === '' || line.startsWith('#') || line.length > MAX_LINE ? [] : [line];
  });

/** @returns undefined where a rule is not plain enough to be sure what it does */
export function readHeaders(text: string): HeaderRule[] | undefined {
  /** By path, as it was first met; the last one of a path counts. */
  const rules = new Map<string, { set: Map<string, string>; unset: string[] }>();
  let path: string | undefined;
  let rule = { set: new Map<string, string>(), unset: [] as string[] };
  let count = 0;
  const keep = () => {
    if (path === undefined || (rule.set.size === 0 && rule.unset.length === 0)) return;
    rules.set(path, rule);
    count += 1;
  };
  for (const line of linesOf(text)) {
    if (LOOKS_LIKE_A_PATH.test(line)) {
      // The last rule that is read is kept in any case.
      if (count >= MAX_HEADER_RULES) break;
      keep();
      const [, host, rest = ''] = ABSOLUTE.exec(line) ?? [];
      const inHost = host === undefined ? undefined : pathOf(rest);
      if (host !== undefined)
        path = /:\d+$/.test(host) || inHost === undefined ? undefined : `https://${host}${inHost}`;
      else path = line.startsWith('/') ? pathOf(line) : undefined;
      rule = { set: new Map(), unset: [] };
      continue;
    }
    const colon = line.indexOf(':');
    if (colon < 0) {
      if (path !== undefined && line.startsWith(UNSET)) rule.unset.push(line.slice(UNSET.length));
      continue;
    }
    const name = line.slice(0, colon).trim().toLowerCase();
    const value = line.slice(colon + 1).trim();
    if (path === undefined || name === '' || value === '' || name.includes(' ')) continue;
    const before = rule.set.get(name);
    rule.set.set(name, before === undefined ? value : `${before}, ${value}`);
  }
  keep();
  const read = [...rules].map(([key, { set, unset }]): HeaderRule => {
    const [, host, rest = ''] = ABSOLUTE.exec(key) ?? [];
    return {
      pattern: new PathPattern(host === undefined ? key : `/${rest}`, true),
      hosts: host?.replace(/^.*(?:\*|:[A-Za-z]\w*)/, '').toLowerCase(),
      set: [...set],
      unset,
    };
  });
  return read.every(({ pattern }) => pattern.plain) ? read : undefined;
}

/** Which paths may be redirected or rewritten: a rule too many makes a file slower, one too few makes it wrong. */
export function redirected(text: string): PathPattern[] {
  return linesOf(text).flatMap((line) => {
    const [from = '', to = ''] = line.split(/\s+/);
    const path = ABSOLUTE.test(from) ? undefined : pathOf(from);
    if (path === undefined) return [];
    // What is known from single-page applications elsewhere, and ignored as an endless loop.
    if (path.endsWith('/*') && /^\/(?:[\w/.-]*\/)?index(?:\.html)?$/.test(to)) return [];
    return [new PathPattern(path, true)];
  });
}
