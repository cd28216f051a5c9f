/** How the configuration and the running host are: settings, payment network, `/healthz`. */

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import defaults from '../../../config/turnpike.default.json' with { type: 'json' };
import type { NamedNetworks } from '../../payments/network/named.ts';
import { keyFilesIn } from '../../registry/key-file.ts';
import { type Config, configSchema } from '../../shared/config.ts';
import { loadConfig, OWN_FILES } from '../../supervisor/configuration.ts';
import { announcedUrl } from '../wallet/local-host.ts';
import { type Finding, finding } from './check.ts';

const HEALTH_TIMEOUT_MS = 3_000;
const LOOPBACK = new Set(['127.0.0.1', 'localhost', '::1']);
const WILDCARDS = new Set(['0.0.0.0', '::']);

/**
 * The configuration of a host started in this folder, and how it is.
 * @returns also whether the folder has settings of its own: the host is that of this folder then, and no other
 */
export async function checkConfiguration(
  folder: string,
  env: Record<string, string | undefined>,
): Promise<{ finding: Finding; config: Config; isOwn: boolean }> {
  let config = configSchema.parse(defaults);
  const origins = new Map<string, string>();
  const result = await finding('configuration', async () => {
    const notices: string[] = [];
    config = loadConfig({ folder, env, flags: [], origins, notice: (text) => notices.push(text) });
    const detail = 'every setting is known';
    return notices.length === 0 ? { state: 'ok', detail } : { state: 'warning', detail, fix: notices.join(' ') };
  });
  return { finding: result, config, isOwn: [...origins.values()].some((origin) => OWN_FILES.has(origin)) };
}

/** Where the host answers: as it announced in one of its data folders, else as it is configured, before the first start. */
export function urlOf({ host, port }: Config, dataFolders: string[]): URL {
  const announced = announcedUrl(dataFolders);
  if (announced !== undefined) return new URL(announced);
  const name = LOOPBACK.has(host) || WILDCARDS.has(host) ? 'localhost' : host.includes(':') ? `[${host}]` : host;
  return new URL(`http://${name}:${port}`);
}

export function checkNetwork({ payments, host }: Config): Promise<Finding> {
  return finding('payments', async () => {
    const { network, recipient, x402, also } = payments;
    const second = [
      x402.network === '' ? '' : ` and x402 on ${x402.network}`,
      ...also.map((one) => `, ${one.network}`),
    ].join('');
    const [{ namedNetworks }, { chainHealth }] = await Promise.all([
      import('../../payments/network/named.ts'),
      import('../../payments/network/chain-health.ts'),
    ]);
    let named: NamedNetworks;
    try {
      named = namedNetworks(payments);
    } catch (error) {
      return { state: 'fault', detail: (error as Error).message, fix: 'the host does not start so' };
    }
    const chains = [...named.mpp, ...named.x402];
    const health = await Promise.all(chains.map(({ chain }) => chainHealth(chain)));
    const silent = health.findIndex(({ ok }) => !ok);
    if (silent !== -1) {
      const detail = `${health[silent]?.detail}: nothing can be paid there`;
      return { state: 'fault', detail, fix: `check ${chains[silent]?.rpcSetting}` };
    }
    if (network === 'local') {
      const open = !LOOPBACK.has(host) && !payments.allowTestMoneyInPublic;
      const detail = `local test network${second}: the money is worth nothing`;
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

/** Whether the facilitator that the operator named settles on the host's networks: one finding for each. */
export async function checkFacilitator(config: Config): Promise<Finding[]> {
  const { payments } = config;
  const settings = payments.x402.facilitator;
  const name = 'x402 facilitator';
  if (settings.url === '') return [];
  const networks = await settledElsewhere(config);
  if (networks.length === 0) {
    const detail = 'settles on the local network; not asked here';
    if (payments.network === 'local') return [{ name, state: 'ok', detail }];
    return [{ name, state: 'warning', detail: 'not used: x402 is off', fix: 'set payments.x402.network' }];
  }
  const { RemoteFacilitator } = await import('../../payments/methods/x402/remote-facilitator.ts');
  const at = new URL(settings.url).host;
  const checks = networks.map(({ title, setting, ...network }) =>
    finding(name, async () => {
      try {
        const remote = new RemoteFacilitator({ settings, ...network, log: { warn() {} } });
        const schemes = [...(await remote.supported()).keys()];
        if (schemes.length > 0) return { state: 'ok', detail: `${at} settles ${schemes.join(' and ')} on ${title}` };
        const fix = `take another facilitator, or another ${setting}`;
        return { state: 'fault', detail: `${at} settles nothing by x402 v2 on ${title}`, fix };
      } catch (error) {
        const detail = `${at}: ${error instanceof Error ? error.message : 'no answer'}`;
        return { state: 'fault', detail, fix: 'check payments.x402.facilitator' };
      }
    }),
  );
  return Promise.all(checks);
}

async function settledElsewhere(config: Config) {
  const [{ evmSchemes, solanaSchemes }, { x402Client }, named, solana] = await Promise.all([
    import('../../payments/methods/x402/supported.ts'),
    import('../../payments/network/clients.ts'),
    x402Of(config),
    solanaOf(config),
  ]);
  return [
    ...named.map(({ chain }) => ({
      title: chain.name,
      setting: 'payments.x402.network',
      network: `eip155:${chain.id}`,
      schemes: evmSchemes(() => x402Client(chain)),
    })),
    ...solana.map(({ name, network }) => ({
      title: name,
      setting: 'payments.solana.network',
      network,
      schemes: solanaSchemes,
    })),
  ];
}

/** Whether payments on Solana can be verified and settled, and get to their recipient. */
export async function checkSolana(config: Config, dataFolder: string): Promise<Finding[]> {
  const name = 'payments on Solana';
  const [place] = await solanaOf(config);
  if (!place) return [];
  const [{ feePayerIn }, { solanaTroubles }] = await Promise.all([
    import('../../payments/network/solana.ts'),
    import('../../payments/network/solana-troubles.ts'),
  ]);
  const isSettledElsewhere = config.payments.x402.facilitator.url !== '';
  let feePayer: string | undefined;
  try {
    feePayer = isSettledElsewhere ? undefined : await feePayerIn(keyFilesIn(dataFolder));
  } catch (error) {
    return [{ name, state: 'fault', detail: (error as Error).message }];
  }
  const troubles: Omit<Finding, 'name'>[] = await solanaTroubles(place, feePayer);
  if (feePayer === undefined && !isSettledElsewhere) {
    const detail = 'the wallet that pays the fees has no address yet';
    troubles.push({ state: 'warning', detail, fix: 'start the host once, then run doctor again' });
  }
  const pays = feePayer === undefined ? 'the facilitator' : feePayer;
  const well: Omit<Finding, 'name'> = { state: 'ok', detail: `${place.name}; ${pays} pays the fees` };
  return (troubles.length > 0 ? troubles : [well]).map((each) => ({ name, ...each }));
}

async function solanaOf({ payments }: Config) {
  const { network } = payments.solana;
  if (network === '') return [];
  const { solanaPlace } = await import('../../payments/network/solana.ts');
  return [solanaPlace({ ...payments.solana, network })];
}

/** For each public chain of x402: the address that pays the gas of settlements, and whether it has coins for it. */
export async function checkRelayer(config: Config, dataFolder: string): Promise<Finding[]> {
  const { payments } = config;
  const networks = await x402Of(config);
  const checks = networks.map(({ chain, rpcSetting }) =>
    finding('x402 relayer', async () => {
      if (!existsSync(join(dataFolder, 'network-keys.json'))) {
        return { state: 'warning', detail: 'has no address yet', fix: 'start the host once, then run doctor again' };
      }
      const [{ loadNetworkKeys }, { x402Client }, { formatEther }] = await Promise.all([
        import('../../payments/network/keys.ts'),
        import('../../payments/network/clients.ts'),
        import('viem'),
      ]);
      const { address } = (await loadNetworkKeys(dataFolder)).accounts.facilitator;
      const balance = await x402Client(chain)
        .getBalance({ address })
        .catch(() => undefined);
      if (balance === undefined) {
        return { state: 'warning', detail: `${address}; ${chain.name} does not answer`, fix: `check ${rpcSetting}` };
      }
      const detail = `${address} has ${formatEther(balance)} ETH on ${chain.name}`;
      if (balance > 0n) return { state: 'ok', detail };
      if (payments.x402.facilitator.url !== '') {
        const need = 'needed only for payments.feeBps, metered and live routes';
        return { state: 'ok', detail: `${detail}: ${need}` };
      }
      return { state: 'warning', detail, fix: 'send it a little ETH: it pays the gas of settlements' };
    }),
  );
  return Promise.all(checks);
}

/** For each public chain of x402: whether calls can be paid from a deposit there. */
export async function checkDeposits(config: Config): Promise<Finding[]> {
  if (config.payments.x402.facilitator.url !== '') return [];
  const networks = await x402Of(config);
  const checks = networks.map(({ chain, rpcSetting }) =>
    finding('x402 deposits', async () => {
      const [{ missingContracts }, { x402Client }] = await Promise.all([
        import('../../payments/methods/x402/batch/contracts.ts'),
        import('../../payments/network/clients.ts'),
      ]);
      const missing = await missingContracts({ getClient: () => x402Client(chain) });
      if (missing === undefined)
        return { state: 'warning', detail: `${chain.name} does not answer`, fix: `check ${rpcSetting}` };
      if (missing.length === 0) return { state: 'ok', detail: `batch-settlement is offered on ${chain.name}` };
      // Nothing is wrong: exact and upto are offered all the same.
      const detail = `batch-settlement is not offered on ${chain.name}, which has no contract at ${missing.join(' and ')}`;
      return { state: 'ok', detail };
    }),
  );
  return Promise.all(checks);
}

/** The public networks of x402; none where the settings cannot work, which `checkNetwork` tells. */
async function x402Of({ payments }: Config) {
  if (payments.x402.network === '' && payments.also.length === 0) return [];
  const { namedNetworks } = await import('../../payments/network/named.ts');
  try {
    return namedNetworks(payments).x402;
  } catch {
    return [];
  }
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
