/** `env.DB`: D1. */
import type { ServiceDesignator } from '../../capnp/generated/workerd.cjs';
import { type Binding, storesOfItsOwn, type WrittenBinding } from '../binding.ts';
import { FOLDER } from './files.ts';

/** Name of the service that keeps the databases of a deployment on several nodes. */
export const DATABASES_SERVICE = 'databases';
/** Of the class whose objects they are. No class of a tenant can have this id. */
export const DATABASES_ID = '-databases';

export const d1: Binding = {
  key: 'd1',
  env: 'DB',
  title: 'D1',
  summary: 'SQL database',
  settings: storesOfItsOwn(
    'is not possible for d1: a database is one file in the sandbox of one deployment, and no other process may have it open. Keep it in one deployment, and let the others call that one, or share kv or r2',
  ),
  limits: ({ storage }) => ({ sqlBytes: storage.sqlBytes }),
  serverForPreviews: async () => (await import('./live-database.ts')).liveDatabases('d1', 200),
  server: async () => (await import('./server.ts')).d1Server,
  data: {
    folder: FOLDER,
    copy: async () => (await import('./copy.ts')).copySql,
    elsewhere: ({ storage }) =>
      storage.sql === 'local'
        ? undefined
        : 'SQL databases: they are on the server of storage.sql, which has to be backed up by its own means',
  },
  workerd: {
    wholeUrls: true,
    write(binding, written) {
      const wrapped = binding.initWrapped();
      wrapped.setModuleName('cloudflare-internal:d1-api');
      const inner = wrapped.initInnerBindings(1).get(0);
      inner.setName('fetcher');
      lead(inner.initService(), written);
    },
    writeControl: (binding, written) => lead(binding.initService(), written),
  },
  unsupportedFlags: {
    d1_binding_jsrpc: 'makes env.DB use calls that only Cloudflare answers; leave it out',
  },
};

function lead(target: ServiceDesignator, { id, service, isClustered }: WrittenBinding): void {
  target.setName(isClustered ? DATABASES_SERVICE : service);
  if (isClustered) target.getProps().setJson(JSON.stringify({ database: id }));
}
