/** Hyperdrive: `env.DB.connectionString`, for a database elsewhere. The egress process connects to it and logs in. */
import { z } from 'zod';
import { parseConnectionString } from '../../shared/connection-string.ts';
import { type Binding, byName } from '../binding.ts';

/** Names of secrets are as long at most. */
const LONGEST_SECRET = 64;
const SUFFIX = '_CONNECTION_STRING';

/** What a client may send: nobody checks it, because the socket itself is the tenant's. */
const PASSWORD = 'hyperdrive';

/** Everybody may read the settings of a binding: the name of the secret follows from the name in env. */
const settings = z.strictObject({});

/** Name of the secret that holds the connection string of a binding. */
export function connectionSecret(name: string): string {
  return `${name.replaceAll('$', '_').slice(0, LONGEST_SECRET - SUFFIX.length)}${SUFFIX}`;
}

export const hyperdrive: Binding = {
  key: 'hyperdrive',
  title: 'Hyperdrive',
  summary: 'a PostgreSQL or MySQL database elsewhere; for DB the secret DB_CONNECTION_STRING leads to it',
  settings: byName(settings),
  connectionSecret,
  workerd: {
    tcp: true,
    write(binding, { service, connectionString = '' }) {
      const address = parseConnectionString(connectionString);
      // What is wrong with it is told to whoever connects.
      const { scheme, database, user } =
        typeof address === 'string' ? { scheme: 'postgresql', database: 'unknown', user: 'unknown' } : address;
      const drive = binding.initHyperdrive();
      drive.initDesignator().setName(service);
      drive.setScheme(scheme);
      drive.setDatabase(database);
      drive.setUser(user);
      drive.setPassword(PASSWORD);
    },
  },
};
