/**
 * Where the owner's console is. A base domain for tenants gives it an origin of its own, `console.<baseDomain>`, which
 * no page of a tenant shares. Without one it is below the host's own origin.
 */
export interface ConsolePlace {
  origin: string;
  /** Address of the page. */
  url: string;
  /** No tenant answers on this origin. */
  isOwn: boolean;
}

/** Below the host's origin. No slug begins so. */
export const CONSOLE_PATH = '/_admin/console';
/** No slug has this name. */
export const CONSOLE_LABEL = 'console';
/** What `baseDomain` is where the operator has none. Not every browser looks below it. */
const NO_BASE_DOMAIN = 'localhost';

/** @param publicUrl origin of the host, such as `https://api.example.com` */
export function consolePlace(publicUrl: string, baseDomain: string): ConsolePlace {
  const { origin, protocol, port, hostname } = new URL(publicUrl);
  const name = consoleName(baseDomain);
  // The host itself may have that name.
  if (name === undefined || name === hostname) return { origin, url: `${origin}${CONSOLE_PATH}`, isOwn: false };
  const own = new URL(`${protocol}//${name}${port === '' ? '' : `:${port}`}`).origin;
  return { origin: own, url: `${own}/`, isOwn: true };
}

/** Host name of the console; undefined: it has none of its own. */
export function consoleName(baseDomain: string): string | undefined {
  return baseDomain === NO_BASE_DOMAIN ? undefined : `${CONSOLE_LABEL}.${baseDomain.toLowerCase()}`;
}
