/** Serves `env.DB`: a process per tenant, with the database in a file below the tenant's folder or on a libSQL server. */
import { mkdirSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import path from 'node:path';
import type { BindingServer, ServerHost } from '../server.ts';
import { buildDatabaseProgram } from './database-program.ts';
import { FOLDER } from './files.ts';
import { removeNamespace } from './namespaces.ts';
import { OnDemandDatabase } from './on-demand-database.ts';

const PROGRAM = 'd1.mjs';
/** Folder of the process' own socket. Short: a unix socket's path holds 107 bytes. */
const SOCKETS = 'q';

export function d1Server({ config, tenantsFolder, runFolder, sandbox, log }: ServerHost): BindingServer {
  const { storage, runtime } = config;
  mkdirSync(runFolder, { recursive: true, mode: 0o700 });
  const program = buildDatabaseProgram(path.join(runFolder, PROGRAM));
  program.catch((error) => log.error({ err: error }, 'databases cannot start'));
  return {
    serve({ tenant, servicesFolder, sandboxFolder, clientUid, onDeath }) {
      const database = new OnDemandDatabase({
        tenant,
        sandbox,
        storage,
        program,
        dataFolder: path.join(tenantsFolder, tenant, FOLDER),
        socketFolder: path.join(sandboxFolder, SOCKETS),
        servicesFolder,
        clientUid,
        startTimeoutMs: runtime.startTimeoutMs,
        log,
        onDeath,
      });
      return { open: () => database.open(), close: () => database.close(), processes: database };
    },
    usage: async (tenant) => ({ sqlBytes: await folderBytes(path.join(tenantsFolder, tenant, FOLDER)) }),
    async purge(tenant) {
      if (storage.sqlAdmin) await removeNamespace({ adminUrl: storage.sqlAdmin, adminToken: '' }, tenant);
    },
  };
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
