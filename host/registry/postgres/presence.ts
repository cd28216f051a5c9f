/**
 * A node's presence: one connection beside those of its statements, by which it renews its leases, and hears of what other
 * nodes changed. Whatever was said while it was lost is seen by its number at the next beat.
 */

import { Client, type PgClient } from '../../shared/pg.ts';
import { Servers } from '../../shared/postgres-servers.ts';
import type { HeardChanges } from '../changes.ts';
import { nodeLease, type RegistryLeases } from '../leases.ts';
import { postgresText } from './dialect.ts';

const CHANNEL = 'turnpike_changes';
/** Whose changes a node is done with is in the note of its own lease, and told here. */
const HEARD = 'turnpike_heard';
/** Between one connection that was lost and the next try, ms. */
const AGAIN_MS = 100;

export interface PresenceOptions {
  url: string;
  node: string;
  leases: RegistryLeases;
  changes: HeardChanges;
  /** How often leases are renewed; several fit into the time of one. */
  beatMs: number;
}

export class Presence {
  readonly #options: PresenceOptions;
  readonly #servers: Servers;
  #connection: PgClient | undefined;
  #timer: NodeJS.Timeout | undefined;
  #taking: Promise<void> | undefined;
  #said = '';
  #stopped = false;

  private constructor(options: PresenceOptions) {
    this.#options = options;
    this.#servers = new Servers(options.url);
  }

  /** Resolves when the node is known to the others, and hears of changes. */
  static async begin(options: PresenceOptions): Promise<Presence> {
    const presence = new Presence(options);
    options.changes.onFurther = () => void presence.told();
    // Any but one of the servers may be a standby.
    for (let others = presence.#servers.count - 1; ; others--) {
      const failure = await presence.#connect().catch((error: Error) => error);
      if (!failure) break;
      if (others <= 0) throw failure;
    }
    await options.leases.takeKept();
    await options.leases.forgetNodes();
    return presence;
  }

  /** The others know what this node has said by now; where they cannot be told, its lease ends by itself. */
  async told(): Promise<void> {
    await this.#say().catch(() => undefined);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#taking;
    await this.#connection?.end().catch(() => undefined);
  }

  async #connect(): Promise<void> {
    const { beatMs } = this.#options;
    const connection = new Client({
      servers: this.#servers,
      application_name: 'turnpike presence',
      connectionTimeoutMillis: beatMs * 2,
      query_timeout: beatMs * 2,
    });
    connection.on('error', () => this.#lost(connection));
    connection.on('end', () => this.#lost(connection));
    connection.on('notification', ({ channel, payload = '' }) => {
      if (channel === HEARD) return this.#options.changes.others();
      const [topic = '', number] = payload.split(' ');
      // Where it fails, the next beat sees that number again.
      void this.#options.changes
        .heard(topic, Number(number))
        .then(() => this.#say())
        .catch(() => undefined);
    });
    await connection.connect();
    if (this.#stopped) return connection.end();
    this.#connection = connection;
    this.#said = '';
    await connection.query(`LISTEN ${CHANNEL}; LISTEN ${HEARD}`);
    await this.#beat();
  }

  async #beat(): Promise<void> {
    const connection = this.#connection;
    if (!connection || this.#stopped) return;
    const { leases, changes, beatMs } = this.#options;
    try {
      await leases.renew(async (sql, args) => {
        const renewed = await connection.query({ text: postgresText(sql), values: args.map(String) });
        return renewed.rows;
      });
      const { rows } = await connection.query({ text: 'SELECT topic, number FROM changes' });
      // A listener may take longer than a lease lasts: renewals do not wait for it.
      this.#said = '';
      void Promise.allSettled(rows.map(({ topic, number }) => changes.heard(String(topic), Number(number))))
        .then(() => this.#say())
        .catch(() => undefined);
    } catch {
      this.#lost(connection);
      return;
    }
    // It may have been lost with that answer; then the next try is due, and no beat may take its place.
    if (this.#connection !== connection) return;
    // Writes may have to wait for other nodes: renewals do not wait for them.
    this.#taking ??= leases
      .takeKept()
      .catch(() => undefined)
      .finally(() => {
        this.#taking = undefined;
      });
    this.#later(beatMs, () => this.#beat());
  }

  /** Tells the others how far this node is; at each beat again, for its lease may have been another since. */
  async #say(): Promise<void> {
    const note = JSON.stringify(this.#options.changes.note);
    const connection = this.#connection;
    if (!connection || note === this.#said) return;
    this.#said = note;
    const values = [nodeLease(this.#options.node), note];
    // What was said later says as much: `note` never goes back, for both go out by one connection.
    await connection.query({ text: 'UPDATE leases SET note = $2 WHERE name = $1', values });
    await connection.query(`NOTIFY ${HEARD}`);
  }

  #lost(connection: PgClient): void {
    if (this.#connection !== connection) return;
    this.#connection = undefined;
    connection.end().catch(() => undefined);
    this.#reconnect();
  }

  #reconnect(): void {
    if (this.#stopped) return;
    // What is remembered from here on is forgotten at the next try.
    void this.#options.changes.mayHaveMissed();
    this.#later(AGAIN_MS, () => this.#connect().catch(() => this.#reconnect()));
  }

  #later(ms: number, work: () => Promise<void>): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void work(), ms).unref();
  }
}
