/**
 * The whole host: starts the services, stops them in reverse. What there is stands in services/; nothing is decided here.
 */
import type { Logger } from 'pino';
import { checkCertificateFiles } from '../certificates/files.ts';
import type { Config } from '../shared/config.ts';
import { usesTestMoney } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';
import type { Folders } from './folders.ts';
import { isLoopback } from './process-settings.ts';
import { give, service, startServices } from './service.ts';
import { publicSocket, publicUrl, stores } from './services/base.ts';
import { operatorApi } from './services/control.ts';
import * as given from './services/given.ts';
import { runtime } from './services/instances.ts';
import { observation } from './services/observation.ts';
import { network } from './services/payments.ts';
import { builtinDeploys, serving } from './services/serving.ts';

export interface RunningHost {
  url: string;
  port: number;
  adminPort: number;
  /** Made at this start; shown once. */
  freshOperatorToken: string | undefined;
  /** Logs in to the console, once; only with a fresh token. */
  consoleLink?: string;
  isolation: { level: string; detail: string };
  /** `fault`: what is wrong with the network just now. */
  network: { name: string; testMoney: boolean; fault?: string; wallets: string[] };
  stop(): Promise<void>;
}

/** @throws Problem when a service cannot start; what was started by then is stopped again */
export async function startHost(
  config: Config,
  folders: Folders,
  log: Logger,
  version: string,
  settingOrigins: ReadonlyMap<string, string> = new Map(),
): Promise<RunningHost> {
  await checkCertificateFiles(config.tls, log);
  refuseTestMoneyInPublic(config);
  const givens = [
    give(given.config, config),
    give(given.folders, folders),
    give(given.log, log),
    give(given.version, version),
    give(given.settingOrigins, settingOrigins),
  ];
  const { value, stop } = await startServices(host, givens, log);
  return { ...value, stop };
}

const host = service({
  name: 'host',
  needs: { publicUrl, publicSocket, operatorApi, stores, runtime, network, observation, serving, builtinDeploys },
  async start({ publicUrl, publicSocket, operatorApi, stores, runtime, network, observation }) {
    const health = await observation.checkNetwork();
    observation.setReady();
    await stores.tokens.keepFresh();
    return {
      url: publicUrl,
      port: publicSocket.port,
      adminPort: operatorApi.port,
      freshOperatorToken: stores.tokens.fresh,
      ...(stores.tokens.fresh === undefined ? {} : { consoleLink: operatorApi.consoleLink() }),
      isolation: runtime.isolation,
      network: {
        name: network.name,
        testMoney: network.testMoney,
        ...(health.ok ? {} : { fault: health.detail }),
        wallets: network.wallets?.map(({ address }) => address) ?? [],
      },
    };
  },
});

function refuseTestMoneyInPublic(config: Config): void {
  if (!usesTestMoney(config.payments) || isLoopback(config.host) || config.payments.allowTestMoneyInPublic) return;
  throw new Problem(
    'invalid_config',
    `The ${config.payments.network} network is test money, and ${config.host} is reachable by others. Set payments.network ` +
      'and payments.recipient for real money, or payments.allowTestMoneyInPublic if you mean it.',
  );
}
