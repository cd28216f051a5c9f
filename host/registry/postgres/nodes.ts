/** The nodes of a host, by the names that their operator gave them. */
import type { Client } from '@libsql/client/sqlite3';
import { Problem } from '../../shared/problem.ts';
import { NOW, nodeLease } from '../leases.ts';

export interface ClusterNode {
  name: string;
  version: string;
  /** ms since 1970, by the database's clock. */
  startedAt: number;
  state: 'serving' | 'draining' | 'ended' | 'removed';
  /** What only one node does at a time, and this one does now. */
  leases: string[];
}

/** A node as the others reach it. */
export interface Peer {
  /** From 1 to 254. */
  number: number;
  name: string;
  /** `host:port` */
  address: string;
  /** Fingerprint of the only certificate that is good. */
  certificate: string;
}

const MOST_NODES = 254;
const FREE_NUMBER = `SELECT min(free) FROM generate_series(1, ${MOST_NODES}) AS free
  WHERE free NOT IN (SELECT number FROM nodes WHERE number IS NOT NULL)`;

export class Nodes {
  readonly #client: Client;
  readonly #node: string;

  constructor(client: Client, node: string) {
    this.#client = client;
    this.#node = node;
  }

  /**
   * @param former as which a process that has ended was this node: what it held is free at once
   * @returns the number of the node, which it keeps
   * @throws Problem invalid_config where another node of that name lives, or this one was removed
   */
  async join(name: string, version: string, former: string | undefined): Promise<number> {
    const [, taken] = await this.#client.batch(
      [
        {
          sql: `UPDATE leases SET valid_until = ${NOW} WHERE valid_until > ${NOW} AND holder = ?`,
          args: [former ?? ''],
        },
        {
          sql: `INSERT INTO nodes (name, node, version, started_at, number) VALUES (?, ?, ?, ${NOW}, (${FREE_NUMBER}))
            ON CONFLICT (name) DO UPDATE SET node = excluded.node, version = excluded.version,
              started_at = excluded.started_at, draining = 0, number = coalesce(nodes.number, excluded.number),
              address = NULL, certificate = NULL
            WHERE nodes.removed = 0 AND NOT EXISTS (
              SELECT 1 FROM leases WHERE leases.name = 'node:' || nodes.node AND leases.valid_until > ${NOW})`,
          args: [name, this.#node, version],
        },
      ],
      'write',
    );
    if (taken?.rowsAffected) {
      const { rows } = await this.#client.execute('SELECT number FROM nodes WHERE node = ?', [this.#node]);
      if (typeof rows[0]?.number === 'number') return rows[0].number;
      throw new Problem(
        'invalid_config',
        `This cluster has ${MOST_NODES} nodes: remove one (turnpike cluster remove).`,
      );
    }
    const removed = (await this.list()).some((one) => one.name === name && one.state === 'removed');
    throw new Problem(
      'invalid_config',
      removed
        ? `The node ${name} was removed from this cluster. Give it another name (cluster.node) to let it join again.`
        : `Another node ${name} runs in this cluster. Give this one another name (cluster.node); one that was killed is forgotten within 12 seconds.`,
    );
  }

  /** Says where the others reach this node, and what it shows them. */
  async announce({ address, certificate }: Omit<Peer, 'number' | 'name'>): Promise<void> {
    const sql = 'UPDATE nodes SET address = ?, certificate = ? WHERE node = ? AND removed = 0';
    await this.#client.execute(sql, [address, certificate, this.#node]);
  }

  async peers(): Promise<Peer[]> {
    const { rows } = await this.#client.execute(
      'SELECT number, name, address, certificate FROM nodes WHERE removed = 0 AND address IS NOT NULL',
    );
    return rows.map(({ number, name, address, certificate }) => ({
      number: Number(number),
      name: String(name),
      address: String(address),
      certificate: String(certificate),
    }));
  }

  async list(): Promise<ClusterNode[]> {
    const [nodes, leases] = await this.#client.batch(
      [
        'SELECT name, node, version, started_at, draining, removed FROM nodes ORDER BY name',
        `SELECT name, holder FROM leases WHERE valid_until > ${NOW} ORDER BY name`,
      ],
      'read',
    );
    const held = (leases?.rows ?? []).map((row) => ({ name: String(row.name), holder: row.holder }));
    return (nodes?.rows ?? []).map((row) => {
      const own = held.filter(({ holder }) => holder === row.node).map(({ name }) => name);
      const lives = own.includes(nodeLease(String(row.node)));
      return {
        name: String(row.name),
        version: String(row.version),
        startedAt: Number(row.started_at),
        state: row.removed === 1 ? 'removed' : !lives ? 'ended' : row.draining === 1 ? 'draining' : 'serving',
        leases: own.filter((name) => !name.startsWith('node:')),
      };
    });
  }

  /** What the others want of this node. */
  async asked(): Promise<{ draining: boolean; removed: boolean }> {
    const { rows } = await this.#client.execute('SELECT draining, removed FROM nodes WHERE node = ?', [this.#node]);
    const [row] = rows;
    // None of the nodes any more: their registry came back from a backup.
    return { draining: row?.draining === 1, removed: row?.removed !== 0 };
  }

  /** @throws Problem not_found */
  async drain(name: string, draining: boolean): Promise<void> {
    const sql = 'UPDATE nodes SET draining = ? WHERE name = ? AND removed = 0';
    await this.#changed(name, { sql, args: [draining ? 1 : 0, name] });
  }

  /** Ends all that the node holds: what it writes under a lease fails from now on, and no node answers it. @throws Problem not_found */
  async remove(name: string): Promise<void> {
    await this.#changed(
      name,
      {
        sql: 'UPDATE nodes SET removed = 1, number = NULL, address = NULL, certificate = NULL WHERE name = ?',
        args: [name],
      },
      {
        sql: `UPDATE leases SET valid_until = ${NOW}, epoch = epoch + 1
          WHERE valid_until > ${NOW} AND holder = (SELECT node FROM nodes WHERE nodes.name = ?)`,
        args: [name],
      },
    );
  }

  async #changed(name: string, ...statements: { sql: string; args: (string | number)[] }[]): Promise<void> {
    const [first] = await this.#client.batch(statements, 'write');
    if (first?.rowsAffected === 0) throw new Problem('not_found', `There is no node ${name} in this cluster.`);
  }
}
