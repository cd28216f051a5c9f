/** Serves `env.DB`: a process per tenant, with the database in a file below the tenant's folder or on a libSQL server. */
import { mkdirSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import type { BindingServer, ServerHost } from '../server.ts';
import { storeName, storesOf } from '../stores.ts';
import { databaseProgram } from './database-program.ts';
import { FOLDER } from './files.ts';
import { namespaceOf, removeNamespace } from './namespaces.ts';
import { OnDemandDatabase } from './on-demand-database.ts';

/** Folder of the process' own socket. Short: a unix socket's path holds 107 bytes. */
const SOCKETS = 'q';

export function d1Server({ config, tenantsFolder, runFolder, sandbox, log }: ServerHost): BindingServer {
  const { storage, runtime } = config;
  mkdirSync(runFolder, { recursive: true, mode: 0o700 });
  const program = databaseProgram(runFolder);
  program.catch((error) => log.error({ err: error }, 'databases cannot start'));
  return {
    serve({ tenant, store, service, socket, sandboxFolder, clientUid, quotas, onDeath }) {
      const folder = path.join(tenantsFolder, tenant);
      const name = storeName(FOLDER, store);
      const most = () => quotas().sqlBytes ?? storage.sqlBytes;
      const database = new OnDemandDatabase({
        tenant,
        namespace: namespaceOf(tenant, name),
        sandbox,
        storage,
        program,
        dataFolder: path.join(folder, name),
        mostBytes: most,
        quotaBytes: () => quotaOf(folder, name, most()),
        socketFolder: path.join(sandboxFolder, service.replace('d1', SOCKETS)),
        socket,
        clientUid,
        startTimeoutMs: runtime.startTimeoutMs,
        log,
        onDeath,
      });
      return { open: () => database.open(), close: () => database.close(), processes: database };
    },
    async usage(tenant) {
      const folders = await databaseFolders(path.join(tenantsFolder, tenant));
      return { sqlBytes: [...folders.values()].reduce((sum, bytes) => sum + bytes, 0) };
    },
    async purge(tenant) {
      if (!storage.sqlAdmin) return;
      const folders = await databaseFolders(path.join(tenantsFolder, tenant));
      for (const name of new Set([FOLDER, ...folders.keys()])) {
        await removeNamespace({ adminUrl: storage.sqlAdmin, adminToken: '' }, namespaceOf(tenant, name));
      }
    },
  };
}

/**
 * What a database may grow to: all of a tenant's together take the quota, and what is left of it is divided evenly among
 * them, each time that one of them starts.
 */
async function quotaOf(folder: string, name: string, quota: number): Promise<number> {
  const bytes = (await databaseFolders(folder)).set(name, 0);
  bytes.set(name, await folderBytes(path.join(folder, name)));
  const used = [...bytes.values()].reduce((sum, one) => sum + one, 0);
  return (bytes.get(name) ?? 0) + Math.max(0, Math.floor((quota - used) / bytes.size));
}

/** Name of each database's folder -> bytes of its files. On a libSQL server they are empty, and say which ones there are. */
async function databaseFolders(folder: string): Promise<Map<string, number>> {
  const names = storesOf(FOLDER, await readdir(folder).catch(() => []));
  return new Map(
    await Promise.all(names.map(async (name) => [name, await folderBytes(path.join(folder, name))] as const)),
  );
}

async function folderBytes(folder: string): Promise<number> {
  const names = await readdir(folder).catch(() => []);
  const sizes = await Promise.all(
    names.map((name) =>
      stat(path.join(folder, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}
