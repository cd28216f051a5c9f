/**
 * A registry that came back from a backup. It knows which database it is, so a copy is told from the one that nodes had:
 * none runs on a copy before the operator has said that the other one is gone. A trigger sees to nodes that run already.
 */
import type { Client } from '@libsql/client/sqlite3';
import { Problem } from '../../shared/problem.ts';
import { markRestored } from '../payments/restored.ts';
import { changed, refuseLiving } from './closed.ts';

const NAME = 'cluster:database';
/** What a lease lasts at most beyond the moment of the backup, ms. */
const LEASE_MS = 12_000;

/** The first node says which database it is. @throws Problem invalid_config that says what to do */
export async function refuseCopy(client: Pick<Client, 'execute'>): Promise<void> {
  const { rows } = await client.execute(
    `SELECT value <> database_identity() AS copied FROM settings WHERE name = '${NAME}'`,
  );
  if (rows[0]?.copied)
    throw new Problem(
      'invalid_config',
      'This PostgreSQL is a copy of the one that the nodes had, such as a backup that was restored. Both together would pay twice. Where the other one is gone for good: turnpike cluster restored.',
    );
  if (rows.length === 0)
    await client.execute(
      `INSERT INTO settings (name, value) VALUES ('${NAME}', database_identity()) ON CONFLICT (name) DO NOTHING`,
    );
}

/**
 * Nodes may start on it. They are new: a process of one from before ends once it finds that it is none of them. Nothing is
 * sent before the chain was asked what was sent since.
 * @throws Problem conflict where nodes run, or none ever ran
 */
export async function takeRestored(client: Client): Promise<void> {
  await changed(client, async (transaction) => {
    await refuseLiving(transaction);
    const { rows } = await transaction.execute(
      `SELECT max(valid_until) AS until, (SELECT count(*) FROM settings WHERE name = '${NAME}') AS known FROM leases
        WHERE name LIKE 'node:%'`,
    );
    if (!rows[0]?.known)
      throw new Problem('conflict', 'No node has run on this PostgreSQL: there is nothing to go on with.');
    const { until } = rows[0];
    await markRestored(transaction, until === null ? undefined : Number(until) - LEASE_MS);
    await transaction.execute('DELETE FROM leases');
    await transaction.execute('DELETE FROM nodes WHERE removed = 0');
    await transaction.execute(`UPDATE settings SET value = database_identity() WHERE name = '${NAME}'`);
  });
}
