/**
 * One database of a tenant, as its Hyperdrive binding gives it: a unix socket that speaks the database's protocol without
 * TLS and asks for no password. The socket is the identity. Behind it this process logs in with what the deployment keeps
 * as a secret, over TLS.
 */
import { randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { BACKLOG } from '../../shared/backlog.ts';
import { type DatabaseAddress, parseConnectionString } from '../../shared/connection-string.ts';
import type { DatabaseSocket } from '../../shared/contracts.ts';
import { asProblem, Problem } from '../../shared/problem.ts';
import type { Allowance } from '../allowance.ts';
import type { CheckedResolver } from '../resolver.ts';
import { refused, type Way } from '../route.ts';
import { type Authorities, secure } from '../secure.ts';
import { parseConnectTarget, type Target } from '../target.ts';
import { dial } from '../tunnel.ts';
import type { Connections } from './connections.ts';
import { mysql } from './mysql.ts';
import { postgresql } from './postgresql.ts';
import type { Protocol, Visit } from './protocol.ts';

/** Clients of one socket, those that wait included. */
const MOST_CLIENTS = 512;
/** Connecting, TLS and the log-in together, and what a client says at first, take no longer, ms. */
const ESTABLISH_MS = 20_000;

export interface DatabaseDeps {
  allowance: Allowance;
  resolver: CheckedResolver;
  authorities: Authorities;
  connections: Connections;
  /** Judges the address anew for each connection. @throws Problem egress_refused */
  wayOf(target: Target): Way;
  /** Told of every client, and why it was sent away. */
  finished(target: Target | undefined, problem?: Problem, error?: unknown): void;
}

const PROTOCOLS: Record<DatabaseAddress['scheme'], Protocol> = { postgresql, mysql };

export class Database {
  readonly socket: string;
  readonly #deps: DatabaseDeps;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  #settings: DatabaseSocket;
  #generation = newGeneration();

  constructor(settings: DatabaseSocket, deps: DatabaseDeps) {
    this.socket = settings.socket;
    this.#settings = settings;
    this.#deps = deps;
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (client) => void this.#serve(client));
    this.#server.maxConnections = MOST_CLIENTS;
  }

  async listen(): Promise<void> {
    await rm(this.socket, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ path: this.socket, backlog: BACKLOG }, resolve);
    });
  }

  /** Holds for the next client. */
  update(settings: DatabaseSocket): void {
    if (settings.url !== this.#settings.url) this.renew();
    this.#settings = settings;
  }

  /** Kept connections are not used again. */
  renew(): void {
    this.#generation = newGeneration();
  }

  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const client of this.#clients) client.destroy();
    await closed;
    await rm(this.socket, { force: true });
  }

  async #serve(client: Socket): Promise<void> {
    this.#clients.add(client);
    const stop = new AbortController();
    const { signal } = stop;
    client.on('error', () => undefined);
    client.once('close', () => {
      this.#clients.delete(client);
      stop.abort(new Problem('egress_failed', 'The handler closed the connection.'));
    });
    const address = this.#address();
    // As workerd was told to take it for where it could not be read.
    const protocol = PROTOCOLS[typeof address === 'string' ? 'postgresql' : address.scheme];
    let target: Target | undefined;
    const late = setTimeout(
      () =>
        stop.abort(
          new Problem(
            'egress_timeout',
            `${target?.name ?? 'The client'} took longer than ${ESTABLISH_MS / 1_000} s to connect.`,
          ),
        ),
      ESTABLISH_MS,
    );
    try {
      if (typeof address === 'string') throw new Problem('bad_request', address);
      target = parseConnectTarget(`${address.host}:${address.port}`);
      await protocol.serve(
        client,
        this.#visit(address, target, signal, () => clearTimeout(late)),
      );
      this.#deps.finished(target);
    } catch (error) {
      const problem = asProblem(signal.aborted ? signal.reason : error);
      this.#deps.finished(target, problem, error);
      if (!client.destroyed) protocol.refuse(client, error, problem);
    } finally {
      clearTimeout(late);
      client.destroySoon();
    }
  }

  /** @returns what is wrong with the secret, in words that have nothing of it, where it is no address */
  #address(): DatabaseAddress | string {
    const { url, secret } = this.#settings;
    const address = url === undefined ? 'is not set: give it with "turnpike secrets set"' : parseConnectionString(url);
    return typeof address === 'string' ? `The secret ${secret} ${address}.` : address;
  }

  #visit(address: DatabaseAddress, target: Target, signal: AbortSignal, established: () => void): Visit {
    const { allowance, resolver, authorities, connections, wayOf } = this.#deps;
    const { tls } = address;
    const generation = this.#generation;
    return {
      address,
      target,
      allowance,
      connections,
      generation,
      isCurrent: () => this.#generation === generation,
      signal,
      established,
      wantsTls: tls !== 'disable',
      async connect() {
        allowance.assertBytesLeft();
        const way = wayOf(target);
        if (tls === 'disable' && way.kind === 'public')
          throw refused(target, 'sslmode=disable is for addresses that the operator opened; leave it out');
        return dial({ target, way, allowance, resolver, signal });
      },
      secure: async (socket) => {
        if (tls === 'disable') return socket;
        return secure(socket, target, tls, authorities, signal);
      },
    };
  }
}

function newGeneration(): string {
  return randomBytes(8).toString('hex');
}
