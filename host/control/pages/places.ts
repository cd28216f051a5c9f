/** What the header of every page leads to: the host's own pages, and the built-in tenants that are on. */
import type { Place } from '../../../builtin-tenants/kit/look/layout.ts';
import { CONSOLE_PATH, consolePlace } from '../../shared/console-place.ts';
import type { ControlDeps } from '../deps.ts';

/** @param origin for pages on other origins than the host's, such as `https://api.example.com` */
export function placesOf(
  { config, builtins, publicUrl }: Pick<ControlDeps, 'config' | 'builtins' | 'publicUrl'>,
  origin = '',
): Place[] {
  const { isOwn, url } = consolePlace(publicUrl, config.baseDomain);
  const on = builtins.filter(({ name }) => config.builtinTenants.enabled.includes(name));
  return [
    { name: 'Turnpike', href: `${origin}/` },
    { name: 'Docs', href: `${origin}/docs` },
    { name: 'Console', href: isOwn ? url : `${origin}${CONSOLE_PATH}` },
    ...on.map(({ name, asks }) => ({ name: asks.title, href: `${origin}/${name}/` })),
  ];
}
