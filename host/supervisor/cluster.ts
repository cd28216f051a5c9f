/**
 * A host of several nodes: what one of them must have, and what they share. Half a cluster is refused at the start, for it
 * would lose money or serve what is not there.
 */
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import path from 'node:path';
import { type KeyFiles, keyFileAt, keyFilesOfNodes } from '../registry/key-file.ts';
import { openPostgresRegistry, type PostgresRegistry } from '../registry/postgres/index.ts';
import { Nodes } from '../registry/postgres/nodes.ts';
import { SharedCode } from '../registry/postgres/shared-code.ts';
import type { Config } from '../shared/config.ts';
import { Problem } from '../shared/problem.ts';
import type { Folders } from './folders.ts';

export interface Cluster {
  /** Of this node. */
  name: string;
  nodes: Nodes;
  code: SharedCode;
  leases: Pick<PostgresRegistry['leases'], 'leave' | 'livesUntil' | 'nodeLease' | 'end'>;
}

/** @throws Problem invalid_config that says what to do */
export async function openCluster(
  config: Config,
  folders: Folders,
  version: string,
): Promise<{ registry: PostgresRegistry; keyFiles: KeyFiles; cluster: Cluster }> {
  refuseHalfACluster(config, folders);
  const name = await nodeName(config, folders);
  const registry = await openPostgresRegistry(config.cluster.database).catch((error: Error) => {
    // Its text may hold no address: that has a password in it.
    throw new Problem(
      'start_failed',
      `The PostgreSQL of cluster.database cannot be used: ${error.message}. Check the address, and that its user may make tables.`,
      { cause: error },
    );
  });
  try {
    const keyFiles = await keyFilesOfNodes(registry, config.cluster.key, folders.data);
    const nodes = new Nodes(registry.client, registry.node);
    // Whoever has the data folder is the only process of this node.
    const last = keyFileAt(path.join(folders.data, 'node-last'));
    await nodes.join(name, version, await last.read());
    await last.replace(registry.node);
    return {
      registry,
      keyFiles,
      cluster: { name, nodes, code: new SharedCode(registry.client), leases: registry.leases },
    };
  } catch (error) {
    await registry.end();
    throw error;
  }
}

/** @throws Problem invalid_config that says what to do */
export function refuseHalfACluster(config: Config, folders: Pick<Folders, 'data' | 'registry'>): void {
  const fault = faults(config, folders).find(([isSo]) => isSo);
  if (fault) throw new Problem('invalid_config', `cluster.database is set, ${fault[1]}`);
}

function faults(config: Config, { data, registry }: Pick<Folders, 'data' | 'registry'>): [boolean, string][] {
  return [
    [
      existsSync(registry),
      `but ${data} holds a host of its own: its deployments and its money would not be served. Give the node a data folder of its own (--data).`,
    ],
    [
      config.payments.network === 'local',
      'but payments.network is local, whose chain is in one process. Set payments.network to tempo, tempo-testnet or none.',
    ],
    [
      config.publicUrl === '',
      'but publicUrl is empty. Set it to the origin of the load balancer, the same on all nodes: payments and log-ins are signed for it.',
    ],
    [
      config.tls.mode === 'acme',
      'but tls.mode is acme, whose certificates one node has. End TLS at the load balancer (tls.mode off), or give each node the same files (tls.mode files).',
    ],
    [
      config.builtinTenants.enabled.length > 0,
      `but builtinTenants.enabled names ${config.builtinTenants.enabled.join(', ')}, whose data one node has. Set it to [], and run them on a host of their own.`,
    ],
    [
      config.backup.schedule !== '',
      'but backup.schedule is set, which copies files of one box. Set it to "", and back up PostgreSQL (pg_dump, or its own archive).',
    ],
  ];
}

/** Made once, where the operator gave none. */
async function nodeName(config: Config, folders: Pick<Folders, 'data'>): Promise<string> {
  if (config.cluster.node !== '') return config.cluster.node;
  const file = keyFileAt(path.join(folders.data, 'node-name'));
  return ((await file.read()) ?? (await file.add(`node-${randomBytes(4).toString('hex')}\n`))).trim();
}
