/** Connection strings of a project's Hyperdrive bindings, from where wrangler looks for them. */
import { bindingSet, boundBindings, connectionSecrets } from '../../bindings/index.ts';
import { parseConnectionString } from '../../shared/connection-string.ts';
import type { Terminal } from '../terminal/terminal.ts';
import type { Project } from './manifest.ts';

/** The newer name first. https://developers.cloudflare.com/hyperdrive/configuration/local-development/ */
const VARIABLES = ['CLOUDFLARE', 'WRANGLER'].map((who) => `${who}_HYPERDRIVE_LOCAL_CONNECTION_STRING_`);

/** Names of variables of the environment -> the secrets that they are for. */
export function databaseVariables({ manifest }: Project, env: Terminal['env']): [variable: string, secret: string][] {
  return [...secretsOf(manifest.bindings)].flatMap(([secret, binding]): [string, string][] => {
    const variable = VARIABLES.map((start) => `${start}${binding}`).find((name) => env[name]);
    return variable === undefined ? [] : [[variable, secret]];
  });
}

/** What `localConnectionString` of wrangler's configuration says, by the names of the secrets. */
export function localDatabases({ manifest, wrangler }: Project): Record<string, string> {
  const local = new Map(
    (wrangler?.features.hyperdrive ?? []).map(({ binding, localConnectionString }) => [binding, localConnectionString]),
  );
  return Object.fromEntries(
    [...secretsOf(manifest.bindings)].flatMap(([secret, binding]) => {
      const text = local.get(binding);
      return text === undefined ? [] : [[secret, text]];
    }),
  );
}

/**
 * For development: a server on this machine need not speak TLS, as under wrangler.
 * @returns the secrets with that said, and the addresses that the host has to open
 */
export function onThisMachine(
  { manifest }: Project,
  secrets: Record<string, string>,
): { secrets: Record<string, string>; addresses: string[] } {
  const changed = { ...secrets };
  const addresses: string[] = [];
  for (const secret of secretsOf(manifest.bindings).keys()) {
    const text = secrets[secret];
    const address = text === undefined ? undefined : parseConnectionString(text);
    if (text === undefined || typeof address !== 'object') continue;
    addresses.push(`${address.host}:${address.port}`);
    if (/^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(address.host) && !/[?&]ssl[-_]?mode=/i.test(text))
      changed[secret] = `${text}${text.includes('?') ? '&' : '?'}sslmode=disable`;
  }
  return { secrets: changed, addresses };
}

function secretsOf(bindings: Project['manifest']['bindings']): Map<string, string> {
  return connectionSecrets(boundBindings(bindingSet(bindings ?? {})));
}
