/**
 * A cluster on which no node may start: a host moves in, or out, or has moved out. It is a setting, which a trigger of the
 * database looks at before any lease is taken: also a node that was stopped before goes on with nothing.
 */
import type { Client, Transaction } from '@libsql/client/sqlite3';
import { Problem } from '../../shared/problem.ts';
import { NOW } from '../leases.ts';
import { OF_HOST } from './copy-rows.ts';

const NAME = 'cluster:closed';
const READ = `SELECT value FROM settings WHERE name = '${NAME}'`;

export interface Closed {
  why: 'moving in' | 'moving out' | 'moved out';
  /** Of the move, which its folder has, too. */
  move: string;
  /** What came along, once it is done. */
  moved?: unknown;
}

export async function readClosed(client: Pick<Client, 'execute'>): Promise<Closed | undefined> {
  const { rows } = await client.execute(READ);
  return rows[0] && (JSON.parse(String(rows[0].value)) as Closed);
}

/** Whether nodes have run on it, or a box has moved in. */
export async function holdsHost(client: Pick<Client, 'execute'>): Promise<boolean> {
  const { rows } = await client.execute(
    `SELECT (SELECT count(*) FROM deployments) + (SELECT count(*) FROM payments) + (SELECT count(*) FROM nodes)
      + (SELECT count(*) FROM settings WHERE ${OF_HOST}) AS filled`,
  );
  return rows[0]?.filled !== 0;
}

/** @throws Problem invalid_config that says what to do */
export async function refuseClosed(client: Pick<Client, 'execute'>): Promise<void> {
  const closed = await readClosed(client);
  if (closed) throw new Problem('invalid_config', SAID[closed.why]);
}

const SAID: Record<Closed['why'], string> = {
  'moving in': 'A host is being moved into this cluster: let turnpike cluster move-in come to its end first.',
  'moving out':
    'This cluster is being moved out: let turnpike cluster move-out come to its end and start the box, or take it back with turnpike cluster move-out --give-up.',
  'moved out':
    'This cluster has moved out: its host is the box on the folder of turnpike cluster move-out. Give this node another database.',
};

/**
 * Closes the cluster for a move; again for the same move is no change.
 * @param look refuses what must not be moved, in the transaction that closes
 * @throws Problem conflict where nodes live, or another move has closed it
 */
export async function close(
  client: Client,
  closed: Closed,
  look: (transaction: Transaction) => Promise<void> = async () => undefined,
): Promise<void> {
  await changed(client, async (transaction) => {
    const now = await readClosed(transaction);
    if (now && now.move !== closed.move) throw new Problem('conflict', `${SAID[now.why]} Nothing was changed.`);
    // Nodes may have run since it was given up, and paid what is still owed in the copy.
    if (!now && closed.why === 'moved out')
      throw new Problem(
        'conflict',
        'This move was given up meanwhile (turnpike cluster move-out --give-up). Nothing was changed; call move-out again to move.',
      );
    await refuseLiving(transaction);
    await look(transaction);
    if (now?.why !== closed.why) await write(transaction, closed);
  });
}

/** @throws Problem conflict where nodes live */
export async function refuseLiving(transaction: Transaction): Promise<void> {
  const { rows } = await transaction.execute(
    `SELECT coalesce(nodes.name, leases.name) AS name FROM leases LEFT JOIN nodes ON leases.name = 'node:' || nodes.node
      WHERE leases.name LIKE 'node:%' AND valid_until > ${NOW}`,
  );
  if (rows.length > 0)
    throw new Problem(
      'conflict',
      `These nodes run: ${rows.map(({ name }) => name).join(', ')}. Stop all first; one that was killed counts for 12 seconds. Nothing was changed.`,
    );
}

/** What was begun is not to be finished. @throws Problem conflict where it is not being moved out */
export async function reopen(client: Client): Promise<void> {
  await changed(client, async (transaction) => {
    const closed = await readClosed(transaction);
    if (closed?.why !== 'moving out')
      throw new Problem('conflict', 'This cluster is not being moved out. Nothing was changed.');
    await transaction.execute(`DELETE FROM settings WHERE name = '${NAME}'`);
  });
}

/** In the transaction after which nodes may start. */
export async function open(transaction: Transaction): Promise<void> {
  await transaction.execute(`DELETE FROM settings WHERE name = '${NAME}'`);
}

async function write(transaction: Transaction, closed: Closed): Promise<void> {
  await transaction.execute({
    sql: `INSERT INTO settings (name, value) VALUES ('${NAME}', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
    args: [JSON.stringify(closed)],
  });
}

/** All of it, or nothing. */
export async function changed(client: Client, work: (transaction: Transaction) => Promise<void>): Promise<void> {
  const transaction = await client.transaction('write');
  try {
    await work(transaction);
    await transaction.commit();
  } finally {
    if (!transaction.closed) await transaction.rollback();
  }
}
