/** How the configuration and the running host are: settings, payment network, `/healthz`. */

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import defaults from '../../../config/turnpike.default.json' with { type: 'json' };
import { type Config, configSchema } from '../../shared/config.ts';
import { loadConfig } from '../../supervisor/configuration.ts';
import { parseManifest } from '../project/manifest.ts';
import { type Finding, finding } from './check.ts';

const HEALTH_TIMEOUT_MS = 3_000;
const LOOPBACK = new Set(['127.0.0.1', 'localhost', '::1']);

/** The configuration of a host started in this folder, and how it is. */
export async function checkConfiguration(
  folder: string,
  env: Record<string, string | undefined>,
): Promise<{ finding: Finding; config: Config }> {
  let config = configSchema.parse(defaults);
  const result = await finding('configuration', async () => {
    // In a tenant's project the file of that name is the project's manifest, and says nothing of the host.
    const manifest = await isManifest(join(folder, 'turnpike.json'));
    config = loadConfig({ folder: manifest ? join(folder, 'no-settings-here') : folder, env, flags: [] });
    const what = manifest ? 'defaults and environment (turnpike.json here is a project)' : 'every setting is known';
    return { state: 'ok', detail: what };
  });
  return { finding: result, config };
}

export function checkNetwork({ payments, host }: Config): Promise<Finding> {
  return finding('payments', async () => {
    const { network, recipient, x402 } = payments;
    const second = x402.network === '' ? '' : ` and x402 on ${x402.network}`;
    if (network === 'local') {
      const open = !LOOPBACK.has(host) && !payments.allowTestMoneyInPublic;
      const detail = 'local test network: the money is worth nothing';
      if (!open) return { state: 'ok', detail };
      return {
        state: 'fault',
        detail: `${detail}, and ${host} is public`,
        fix: 'set payments.network to tempo with a recipient, or payments.allowTestMoneyInPublic to true',
      };
    }
    if (network === 'none' && second === '') return { state: 'warning', detail: 'off: nobody can deploy' };
    if (network !== 'none' && recipient === '') {
      return { state: 'fault', detail: `${network} without a recipient`, fix: 'set payments.recipient to your wallet' };
    }
    return { state: 'ok', detail: `${network}${second}` };
  });
}

export function checkHealth(url: URL, fetchIt: typeof fetch): Promise<Finding> {
  return finding('host', async () => {
    let response: Response;
    try {
      response = await fetchIt(new URL('/healthz', url), { signal: AbortSignal.timeout(HEALTH_TIMEOUT_MS) });
    } catch {
      return { state: 'warning', detail: `nothing answers at ${url.origin}`, fix: 'npm start, or give --host-url' };
    }
    const body = (await response.json().catch(() => ({}))) as {
      status?: string;
      version?: string;
      parts?: Record<string, { state: string; detail?: string }>;
    };
    const ill = Object.entries(body.parts ?? {}).filter(([, { state }]) => state !== 'ready' && state !== 'off');
    const what = ill.map(([name, { state, detail }]) => `${name} ${state}${detail ? ` (${detail})` : ''}`).join(', ');
    const detail = `${url.origin} ${body.status ?? `answers ${response.status}`}${body.version ? `, version ${body.version}` : ''}${what === '' ? '' : `: ${what}`}`;
    if (!response.ok) return { state: 'fault', detail, fix: 'look at what the host writes to its standard error' };
    return { state: ill.length > 0 ? 'warning' : 'ok', detail };
  });
}

async function isManifest(path: string): Promise<boolean> {
  const text = await readFile(path, 'utf8').catch(() => undefined);
  if (text === undefined) return false;
  try {
    return Object.keys(parseManifest(text, path)).length > 0;
  } catch {
    return false;
  }
}
