/** Everything that remembers: the registry and its repositories, the code store, owners' logs. */
import { OperatorTokens } from '../control/console/tokens.ts';
import { Blocks } from '../registry/blocks.ts';
import { CronRuns } from '../registry/cron-runs.ts';
import { DeployKeys } from '../registry/deploy-keys.ts';
import { Deployments } from '../registry/deployments.ts';
import { Domains } from '../registry/domains.ts';
import { openRegistry, type Registry } from '../registry/index.ts';
import { SecretBox } from '../registry/secret-box.ts';
import { holdsSecrets, Secrets } from '../registry/secrets.ts';
import { SharedStores } from '../registry/shared-stores.ts';
import { Usage } from '../registry/usage.ts';
import type { Folders } from './folders.ts';

export interface Stores {
  registry: Registry;
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

export async function openStores(folders: Folders): Promise<Stores> {
  const registry = await openRegistry(folders.registry);
  const box = await SecretBox.open(folders.secretsKey, () => holdsSecrets(registry.db));
  const usage = new Usage(registry.db);
  return {
    registry,
    deployments: new Deployments(registry.db, registry.changes),
    deployKeys: new DeployKeys(registry.db),
    domains: new Domains(registry.db),
    secrets: new Secrets(registry.db, box),
    usage,
    cronRuns: new CronRuns(registry.db),
    blocks: await Blocks.open(registry),
    sharedStores: new SharedStores(registry.db),
    tokens: await OperatorTokens.open(registry),
    async close() {
      await usage.flush();
      registry.close();
    },
  };
}
