/** `turnpike cluster restored`: the nodes go on with a PostgreSQL that came back from a backup. */
import { openWithoutNodes } from '../registry/postgres/index.ts';
import { takeRestored } from '../registry/postgres/restored.ts';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';

/** @throws Problem */
export async function takeRestoredCluster({ cluster: { database } }: Config): Promise<void> {
  if (database === '') throw new Problem('invalid_config', 'Set cluster.database to the PostgreSQL that was restored.');
  const registry = await openWithoutNodes(database);
  try {
    await takeRestored(registry.client);
  } finally {
    await registry.close();
  }
}
