/** The registry on PostgreSQL, for several nodes at once. */
import { randomBytes } from 'node:crypto';
import { fileURLToPath } from 'node:url';
import { Problem } from '../../shared/problem.ts';
import { type Heard, HeardChanges, NO_CHANGES } from '../changes.ts';
import { drizzle } from '../drizzle.ts';
import { type Database, MIGRATIONS, migrate, type Registry, readMigrations } from '../index.ts';
import { NOW, nodeLease, OwnLeases, RegistryLeases } from '../leases.ts';
import { type PostgresClient, postgresClient } from './client.ts';
import { refuseClosed } from './closed.ts';
import { PRELUDE } from './dialect.ts';
import { Presence } from './presence.ts';
import { refuseCopy } from './restored.ts';

/** What only PostgreSQL has, on top of the tables of all. */
const OWN_MIGRATIONS = fileURLToPath(new URL('migrations/', import.meta.url));
/** A write may wait five seconds for a node that stopped within one (client.ts): nobody's lease ends by that. ms */
const LEASE_MS = 12_000;
/** Renewals in the time of a lease. */
const BEATS = 6;

export interface PostgresRegistry extends Registry {
  readonly node: string;
  readonly leases: RegistryLeases;
  /** This node serves and works no more: no change waits for it, and its work is left to others. Its last writes may follow. */
  retire(): Promise<void>;
  /** As `close`, once all connections are closed. */
  end(): Promise<void>;
}

/**
 * Opens the registry as a node of its own: one that is opened again is another.
 * @param url `postgres://user:password@host/database`; several may open it at once, and one of them migrates it
 */
export async function openPostgresRegistry(url: string, { leaseMs = LEASE_MS } = {}): Promise<PostgresRegistry> {
  const client = await openMigrated(url);
  const node = randomBytes(9).toString('base64url');
  const leases = new RegistryLeases(client, node, leaseMs);
  const changes = new HeardChanges((topics, slug) => lagging(client, node, topics, slug));
  let presence: Presence;
  try {
    await refuseClosed(client);
    await refuseCopy(client);
    presence = await Presence.begin({ url, node, leases, changes, beatMs: leaseMs / BEATS });
  } catch (error) {
    await client.end();
    throw unusable(error);
  }
  const end = async () => {
    await presence.stop();
    await leases.end().catch(() => undefined);
    await client.end();
  };
  return {
    db: drizzle(client) as unknown as Database,
    client,
    node,
    leases,
    changes,
    failure: undefined,
    async retire() {
      changes.end();
      await Promise.all([presence.told(), leases.leave(true)]);
    },
    close: end,
    end,
  };
}

/** The registry while no node runs: whoever opens it so is none. @param url `postgres://user:password@host/database` */
export async function openWithoutNodes(url: string): Promise<Registry & { close(): Promise<void> }> {
  const client = await openMigrated(url);
  return {
    db: drizzle(client) as unknown as Database,
    client,
    node: null,
    leases: new OwnLeases(),
    changes: NO_CHANGES,
    failure: undefined,
    close: () => client.end(),
  };
}

async function openMigrated(url: string): Promise<PostgresClient> {
  const client = postgresClient(url);
  try {
    const migrations = [...(await readMigrations(MIGRATIONS)), ...(await readMigrations(OWN_MIGRATIONS))];
    await client.exclusively('turnpike migrations', async () => {
      await client.executeMultiple(PRELUDE);
      await migrate(client, migrations);
    });
    return client;
  } catch (error) {
    await client.end();
    throw unusable(error);
  }
}

function unusable(error: unknown): Problem {
  if (error instanceof Problem) return error;
  const { message, code } = error as Error & { code?: string };
  // Its text may hold no address: that has a password in it.
  return new Problem(
    'start_failed',
    `The PostgreSQL of cluster.database cannot be used: ${message || code}. Check the address, and that its user may make tables.`,
    { cause: error },
  );
}

/** Whether a living node beside this one has said nothing yet of what is changed by now. */
async function lagging(
  client: PostgresClient,
  node: string,
  topics: string[],
  slug: string | undefined,
): Promise<boolean> {
  const places = topics.map(() => '?').join(', ');
  const [changed, living] = await client.batch(
    [
      { sql: `SELECT topic, number FROM changes WHERE topic IN (${places})`, args: topics },
      {
        sql: `SELECT note FROM leases WHERE name LIKE 'node:%' AND valid_until > ${NOW} AND name <> ?`,
        args: [nodeLease(node)],
      },
    ],
    'read',
  );
  return (living?.rows ?? []).some(({ note }) => {
    const heard: Heard = note === null ? {} : JSON.parse(String(note));
    if (heard.over !== undefined) return false;
    if (slug !== undefined && heard.behind?.includes(slug)) return true;
    return (changed?.rows ?? []).some(({ topic, number }) => Number(heard[String(topic)] ?? 0) < Number(number));
  });
}
