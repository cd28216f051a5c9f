/**
 * Serves the socket of a service binding in the host's process: requests are sent on one by one, each to the instance that
 * the callee has then, and calls of methods over a connection of their own (rpc-connection.ts). The caller reaches the
 * one entrypoint that its binding names, and nothing else of the callee.
 */
import http from 'node:http';
import type { Duplex } from 'node:stream';
import { Problem } from '../../shared/problem.ts';
import type { BindingPlace, BindingServer, ServedBinding, ServerHost } from '../server.ts';
import { listenAt } from '../tenant-socket.ts';
import { calledIn } from './access.ts';
import type { ServiceDirectory, Visit } from './directory.ts';
import { RPC_HOST } from './names.ts';
import { forward, upgrade } from './requests.ts';
import { RpcConnection } from './rpc-connection.ts';

/** Requests of one binding under way at once: deployments that call each other in a circle end here. */
const MOST_REQUESTS = 128;
/** Connections on which methods are called: workerd opens one for each call that begins while it has none. */
const MOST_CONNECTIONS = 128;
/** How often it is asked whether the caller may still call, where a connection stays open, ms. */
const CHECK_MS = 1_000;
/** The owner is told each reason for refusals once in this time, ms; and so many reasons at most. */
const TELL_MS = 1_000;
const MOST_REASONS = 8;
const MAX_HEADER_BYTES = 65_536;

export function servicesServer({ services }: ServerHost): BindingServer | undefined {
  if (!services) return undefined;
  return { serve: (place) => new ServiceSocket(place, services) };
}

class ServiceSocket implements ServedBinding {
  readonly #place: BindingPlace;
  readonly #directory: ServiceDirectory;
  readonly #called: ReturnType<typeof calledIn>;
  #server: http.Server | undefined;
  /** What was taken over from the server. */
  readonly #taken = new Set<Duplex>();
  #requests = 0;
  #connections = 0;
  #toldAt = Number.NEGATIVE_INFINITY;
  /** Reasons since then. */
  readonly #told = new Set<string>();

  constructor(place: BindingPlace, directory: ServiceDirectory) {
    this.#place = place;
    this.#directory = directory;
    this.#called = calledIn(place.settings);
  }

  async open(): Promise<void> {
    if (this.#server) return;
    const server = http.createServer({
      maxHeaderSize: MAX_HEADER_BYTES,
      requestTimeout: 0,
      keepAliveTimeout: 0,
      // workerd says the host in the request line alone.
      requireHostHeader: false,
    });
    this.#server = server;
    server.on('request', (request, response) => void this.#request(request, response));
    server.on('upgrade', (request, socket, head) => void this.#upgrade(request, socket, head));
    server.on('connect', (request, socket, head) => this.#connect(request, socket, head));
    server.on('clientError', (_error, socket) => socket.destroy());
    await listenAt(server, this.#place.socket);
    this.#place.permit();
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    for (const socket of this.#taken) socket.destroy();
    server?.closeAllConnections();
    await new Promise((resolve) => (server ? server.close(resolve) : resolve(undefined)));
  }

  async #request(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    response.sendDate = false;
    try {
      await this.#inTurn(async () => {
        const { visit, socket, related, tenant } = await this.#start();
        // It left meanwhile, and nothing would tell so any more.
        if (response.closed) return;
        await visit.during(() => forward(request, response, { socket, related }));
        this.#directory.count(tenant, response.statusCode >= 500);
      });
    } catch (error) {
      const problem = this.#refused(error);
      if (response.headersSent) return void response.destroy();
      response.writeHead(problem.status, { 'content-type': 'application/problem+json', ...problem.headers });
      response.end(JSON.stringify(problem.toDocument()));
    }
  }

  async #upgrade(request: http.IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    this.#take(socket);
    try {
      await this.#inTurn(async () => {
        const { visit, socket: target, related, tenant } = await this.#start();
        if (socket.destroyed) return;
        this.#directory.count(tenant, false);
        const timer = setInterval(() => void this.#check().catch(() => socket.destroy()), CHECK_MS).unref();
        try {
          await visit.during(() => upgrade(request, socket, head, { socket: target, related }));
        } finally {
          clearInterval(timer);
        }
      });
    } catch (error) {
      const problem = this.#refused(error);
      const body = JSON.stringify(problem.toDocument());
      socket.end(
        `HTTP/1.1 ${problem.status} ${problem.title}\r\ncontent-type: application/problem+json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
      );
    }
  }

  #connect(request: http.IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#take(socket);
    // `env.AUTH.connect()` of the tenant's code.
    if (request.url !== RPC_HOST) {
      socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n');
      return;
    }
    this.#connections++;
    let callee: string | undefined;
    const connection = new RpcConnection({
      caller: socket,
      received: head,
      visit: async () => {
        if (this.#connections > MOST_CONNECTIONS) throw this.#tooMany('calls');
        const { tenant, ...started } = await this.#start();
        callee = tenant;
        return started;
      },
      check: () => this.#check(),
      checkMs: CHECK_MS,
      onCall: () => callee !== undefined && this.#directory.count(callee, false),
      onRefused: (detail) => this.#tell(detail),
    });
    void connection.closed.then(() => {
      this.#connections--;
    });
  }

  /** @throws Problem */
  async #start(): Promise<{ visit: Visit; socket: string; related: boolean; tenant: string }> {
    const { service, entrypoint } = this.#called;
    const found = await this.#check();
    const visit = await this.#directory.visit(service);
    const socket = visit.entrySocket(entrypoint);
    if (socket === undefined)
      throw new Problem('not_found', `${service} has no entrypoint ${entrypoint}; name one that its code exports.`);
    return { visit, socket, ...found };
  }

  /** @throws Problem */
  #check(): ReturnType<ServiceDirectory['check']> {
    return this.#directory.check(this.#place.tenant, this.#called);
  }

  async #inTurn(work: () => Promise<void>): Promise<void> {
    if (this.#requests >= MOST_REQUESTS) {
      throw this.#tooMany('requests');
    }
    this.#requests++;
    try {
      await work();
    } finally {
      this.#requests--;
    }
  }

  #tooMany(what: string): Problem {
    const { service } = this.#called;
    const detail = `Too many ${what} to ${service} are under way; do deployments call each other in a circle?`;
    return new Problem('overloaded', detail);
  }

  #take(socket: Duplex): void {
    this.#taken.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#taken.delete(socket));
  }

  #refused(error: unknown): Problem {
    const detail = `${this.#called.service} ended the connection before its answer was complete.`;
    const problem = error instanceof Problem ? error : new Problem('upstream_failed', detail);
    this.#tell(problem.message);
    return problem;
  }

  #tell(detail: string): void {
    const now = performance.now();
    if (now - this.#toldAt >= TELL_MS) {
      this.#toldAt = now;
      this.#told.clear();
    }
    if (this.#told.has(detail) || this.#told.size >= MOST_REASONS) return;
    this.#told.add(detail);
    this.#directory.refused(this.#place.tenant, `A call of ${this.#called.service} was refused: ${detail}`);
  }
}
