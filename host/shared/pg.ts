/**
 * Connections to PostgreSQL, by the package `pg`, which comes without types: to whichever server takes writes, and given up
 * where a server vanishes without a word.
 */
import { createRequire } from 'node:module';
import { Servers } from './postgres-servers.ts';

export interface PgError extends Error {
  /** SQLSTATE, or the system's code where the connection was lost. */
  code?: string;
  constraint?: string;
  column?: string;
}

export interface PgResult {
  /** `COMMIT`, `ROLLBACK`, `INSERT`, … */
  command: string;
  rowCount: number | null;
  fields: { name: string; dataTypeID: number }[];
  rows: unknown[][];
}

export interface PgQuery {
  text: string;
  /** Under which the connection keeps it prepared. */
  name?: string;
  values?: unknown[];
  rowMode: 'array';
  types: { getTypeParser(type: number): (text: string) => unknown };
}

export interface PgConnection {
  query(query: PgQuery): Promise<PgResult>;
  query(text: string): Promise<unknown>;
  /** @param query_timeout instead of that of the pool, ms */
  query(query: { text: string; query_timeout: number }): Promise<unknown>;
  on(event: 'error', listener: (error: Error) => void): void;
  /** @param broken it is closed, and not used again */
  release(broken: boolean): void;
}

export interface PgPool {
  connect(): Promise<PgConnection>;
  /** On any of its connections; rows by the names of their columns. */
  query(query: { name?: string; text: string; values?: unknown[] }): Promise<{ rows: Record<string, unknown>[] }>;
  end(): Promise<void>;
  on(event: 'error', listener: (error: Error) => void): void;
  on(event: 'connect', listener: (connection: PgConnection) => void): void;
}

export interface PgPoolOptions {
  /** Of one server, or of several of which one is the primary: postgres-servers.ts. */
  connectionString: string;
  max: number;
  /** Until a connection is there, or free. */
  connectionTimeoutMillis: number;
  /** Statements go out without waiting for those before them. */
  pipeline?: boolean;
  /** After which a statement fails, and its connection with it, ms. */
  query_timeout?: number;
}

/** One connection outside a pool; rows by the names of their columns. */
export interface PgClient {
  connect(): Promise<void>;
  query(query: { text: string; values?: unknown[] } | string): Promise<{ rows: Record<string, unknown>[] }>;
  on(event: 'error' | 'end', listener: () => void): void;
  on(event: 'notification', listener: (message: { channel: string; payload?: string }) => void): void;
  end(): Promise<void>;
}

export interface PgClientOptions {
  servers: Servers;
  connectionTimeoutMillis: number;
  /** After which a statement fails, ms. */
  query_timeout: number;
  /** As pg_stat_activity shows it. */
  application_name: string;
}

type Connected = (error: Error | null, client?: RawClient) => void;
interface RawClient extends PgClient {
  connection: {
    stream: { destroy(): void };
    on(event: 'parameterStatus', listener: (told: { parameterName: string; parameterValue: string }) => void): void;
  };
  connect(): Promise<void>;
  connect(callback: Connected): void;
  end(): Promise<void>;
  end(callback: () => void): void;
}
type TakePooled = (error?: Error | null, connection?: PgConnection, release?: PgConnection['release']) => void;
interface RawPool extends PgPool {
  connect(): Promise<PgConnection>;
  connect(callback: TakePooled): void;
}

const pg = createRequire(import.meta.url)('pg') as {
  Client: new (options: object) => RawClient;
  Pool: new (options: object) => RawPool;
};

/** Of one server where there are several: the next one may be the primary. ms */
const SERVER_MS = 3_000;
/** A statement without an answer: longer than a lock is waited for, so the server is gone. ms */
const ANSWER_MS = 20_000;
/** Until a connection on which nothing is under way is asked whether the server is still there; it has ten more seconds. ms */
const IDLE_MS = 5_000;
/** A server that is gone does not take part in closing a connection. ms */
const CLOSE_MS = 2_000;
/**
 * What the server does about a client that is gone: it ends its transaction, and with it the locks, before those who wait
 * for them give up. A server that knows none of that does without.
 */
const CLIENT_GONE = `SET tcp_keepalives_idle = 3; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 4;
  SET tcp_user_timeout = '7s'; SET client_connection_check_interval = '2s'`;

/** Errors of a server, not of the pool. */
const ofServer = new WeakSet<Error>();

/** A connection to whichever server takes writes, or none. */
export class Client extends pg.Client {
  readonly #servers: Servers;
  readonly #url: string;

  constructor(options: PgClientOptions) {
    const { servers, connectionTimeoutMillis } = options;
    super({
      ...options,
      connectionString: servers.present,
      connectionTimeoutMillis:
        servers.count > 1 ? Math.min(SERVER_MS, connectionTimeoutMillis) : connectionTimeoutMillis,
      keepAlive: true,
      keepAliveInitialDelayMillis: IDLE_MS,
    });
    this.#servers = servers;
    this.#url = servers.present;
  }

  override connect(): Promise<void>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<void> | undefined {
    if (!callback)
      return new Promise((resolve, reject) => this.connect((error) => (error ? reject(error) : resolve())));
    let isStandby = false;
    this.connection.on('parameterStatus', ({ parameterName, parameterValue }) => {
      if (parameterName === 'in_hot_standby') isStandby = parameterValue === 'on';
    });
    super.connect((failure, client) => {
      if (!failure && !isStandby) return callback(null, client);
      if (!failure) void this.end();
      const error = failure ?? new Error('this server is a standby, which takes no writes');
      this.#servers.failed(this.#url);
      ofServer.add(error);
      callback(error);
    });
    return undefined;
  }

  override end(): Promise<void>;
  override end(callback: () => void): void;
  override end(callback?: () => void): Promise<void> | undefined {
    if (!callback) return new Promise((resolve) => this.end(() => resolve()));
    const timer = setTimeout(() => this.connection.stream.destroy(), CLOSE_MS);
    super.end(() => {
      clearTimeout(timer);
      callback();
    });
    return undefined;
  }
}

class Pool extends pg.Pool {
  readonly #servers: Servers;

  constructor(options: PgPoolOptions) {
    const servers = new Servers(options.connectionString);
    super({ query_timeout: ANSWER_MS, ...options, servers, Client });
    this.#servers = servers;
  }

  override connect(): Promise<PgConnection>;
  override connect(callback: TakePooled): void;
  override connect(callback?: TakePooled): Promise<PgConnection> | undefined {
    const connecting = this.#connect();
    if (!callback) return connecting;
    connecting.then((connection) => callback(undefined, connection, connection.release), callback);
    return undefined;
  }

  async #connect(): Promise<PgConnection> {
    for (let others = this.#servers.count - 1; ; others--) {
      try {
        return await super.connect();
      } catch (error) {
        if (others <= 0 || !ofServer.has(error as Error)) throw error;
      }
    }
  }
}

/** @param session statements that each new connection runs first */
export function openPool(options: PgPoolOptions, session: string): PgPool {
  const pool = new Pool({ pipeline: true, ...options });
  // Of a connection that nobody uses: the pool opens another.
  pool.on('error', () => {});
  pool.on('connect', (connection) => {
    // The statement in flight fails with the same error.
    connection.on('error', () => {});
    connection
      .query(session)
      .then(() => connection.query(CLIENT_GONE))
      .catch(() => {});
  });
  return pool;
}
