/** Everything that remembers: the registry and its repositories, the code store, owners' logs. */
import { existsSync } from 'node:fs';
import { OperatorTokens } from '../control/console/tokens.ts';
import { Blocks } from '../registry/blocks.ts';
import { CronRuns } from '../registry/cron-runs.ts';
import { DeployKeys } from '../registry/deploy-keys.ts';
import { Deployments } from '../registry/deployments.ts';
import { Domains } from '../registry/domains.ts';
import { openRegistry, type Registry } from '../registry/index.ts';
import { type KeyFiles, keyFilesIn } from '../registry/key-file.ts';
import { SecretBox } from '../registry/secret-box.ts';
import { holdsSecrets, Secrets } from '../registry/secrets.ts';
import { SharedStores } from '../registry/shared-stores.ts';
import { Usage } from '../registry/usage.ts';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';
import type { Cluster } from './cluster.ts';
import type { Folders } from './folders.ts';

export interface Stores {
  registry: Registry;
  /** This process is one of several. */
  cluster: Cluster | undefined;
  keyFiles: KeyFiles;
  deployments: Deployments;
  deployKeys: DeployKeys;
  domains: Domains;
  secrets: Secrets;
  usage: Usage;
  cronRuns: CronRuns;
  blocks: Blocks;
  sharedStores: SharedStores;
  tokens: OperatorTokens;
  close(): Promise<void>;
}

/** @param version of the program */
export async function openStores(config: Config, folders: Folders, version: string): Promise<Stores> {
  if (config.cluster.database === '') {
    refuseMoved(folders);
    return storesOf(await openRegistry(folders.registry), keyFilesIn(folders.data), undefined);
  }
  // Loaded only where it is used, and the package `pg` with it.
  const { openCluster } = await import('./cluster.ts');
  const { registry, keyFiles, cluster } = await openCluster(config, folders, version);
  try {
    return await storesOf(registry, keyFiles, cluster);
  } catch (error) {
    await registry.end();
    throw error;
  }
}

/** A new registry in place of the one that has moved would be taken for it. */
function refuseMoved({ data, registry, movedRegistry }: Folders): void {
  if (existsSync(registry) || !existsSync(movedRegistry)) return;
  throw new Problem(
    'invalid_config',
    `The host of ${data} has moved into a cluster, or was about to (turnpike cluster move-in): give the settings of cluster, or a host of its own another folder (--data).`,
  );
}

async function storesOf(registry: Registry, keyFiles: KeyFiles, cluster: Cluster | undefined): Promise<Stores> {
  const box = await SecretBox.open(keyFiles('secrets.key'), () => holdsSecrets(registry.db));
  const usage = new Usage(registry.db);
  return {
    registry,
    cluster,
    keyFiles,
    deployments: new Deployments(registry.db, registry.changes),
    deployKeys: new DeployKeys(registry.db),
    domains: new Domains(registry.db),
    secrets: new Secrets(registry.db, box, registry),
    usage,
    cronRuns: new CronRuns(registry.db),
    blocks: await Blocks.open(registry),
    sharedStores: new SharedStores(registry.db),
    tokens: await OperatorTokens.open(registry),
    async close() {
      await usage.flush();
      await registry.close();
    },
  };
}
