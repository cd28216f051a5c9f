/** Another cluster.key: what nodes share is sealed anew with it. */
import { readFile } from 'node:fs/promises';
import { sealAnew } from '../registry/key-file.ts';
import { openWithoutNodes } from '../registry/postgres/index.ts';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';

const SHORTEST = 32;

/**
 * Nodes may run. May be killed at any point, and run again.
 * @param file with the new key
 * @returns how many keys were sealed anew; 0: all are already
 * @throws Problem
 */
export async function rotateClusterKey({ cluster: { database, key } }: Config, file: string): Promise<number> {
  if (database === '')
    throw new Problem('invalid_config', 'Set cluster.database and cluster.key to those of the cluster.');
  const next = (await readFile(file, 'utf8').catch(() => '')).trim();
  if (next.length < SHORTEST)
    throw new Problem(
      'invalid_field',
      `${file} holds no new key of ${SHORTEST} characters at least: openssl rand -base64 32.`,
    );
  const registry = await openWithoutNodes(database);
  try {
    return await sealAnew(registry, key, next);
  } finally {
    await registry.close();
  }
}
