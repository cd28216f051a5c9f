/**
 * The way out of one tenant: an HTTP proxy on its unix socket. The socket is the identity; whoever can reach it is
 * that tenant, so nothing in a request can claim to be another one.
 */
import { rm } from 'node:fs/promises';
import type http from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import https from 'node:https';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { BACKLOG } from '../shared/backlog.ts';
import type { EgressTenant } from '../shared/contracts.ts';
import { nodeHttp } from '../shared/node-http.ts';
import { ownCaller } from '../shared/own-caller.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import { Allowance } from './allowance.ts';
import { Connections } from './database/connections.ts';
import { Database } from './database/database.ts';
import { EdgeAgent, SecureEdgeAgent } from './edge-agent.ts';
import { type Agents, exchange, isSecure, type Outbound } from './exchange.ts';
import { proxyStatus } from './headers.ts';
import type { Notices } from './notices.ts';
import type { CheckedResolver } from './resolver.ts';
import { chooseWay, type Surroundings } from './route.ts';
import type { Authorities } from './secure.ts';
import { FramedClient, secureTunnel } from './secure-tunnel.ts';
import { isFramed, parseConnectTarget, parseFramedTarget, parseHttpTarget, type Target } from './target.ts';
import { tunnel, websocket } from './tunnel.ts';

export interface ProxyDeps {
  surroundings: Surroundings;
  resolver: CheckedResolver;
  notices: Notices;
  authorities: Authorities;
  /** Told of every finished request, for the metrics of the process. */
  finished(result: string): void;
  failed(error: unknown): void;
}

/** workerd's own largest head, with room. */
const MAX_HEAD_BYTES = 131_072;
/** workerd keeps a connection per host it talked to, for 5 s; from KEPT_CONNECTIONS on, answers ask it to close. */
const KEPT_CONNECTIONS = 128;
const MOST_CONNECTIONS = 2_048;
/** As many as a tenant usually has requests in flight: one that is dropped costs the next request a connection. */
const KEPT: http.AgentOptions = { keepAlive: true, maxFreeSockets: 64, timeout: 15_000, scheduling: 'lifo' };

export class TenantProxy {
  readonly allowance: Allowance;
  readonly #deps: ProxyDeps;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #databases = new Map<string, Database>();
  readonly #connections = new Connections(0);
  #settings: EgressTenant;
  #agents: Agents;

  constructor(settings: EgressTenant, deps: ProxyDeps) {
    this.#settings = settings;
    this.#deps = deps;
    this.#agents = createAgents(deps, KEPT);
    this.allowance = new Allowance(settings.limits, () => performance.now());
    this.#server = nodeHttp.createServer({
      requireHostHeader: false,
      maxHeaderSize: MAX_HEAD_BYTES,
      requestTimeout: 0,
      keepAliveTimeout: 0,
    });
    this.#server.maxConnections = MOST_CONNECTIONS;
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
    this.#server.on('request', (asked, reply) => this.#request(asked, reply));
    this.#server.on('connect', (asked, socket, head) => this.#connect(asked, socket, head));
    this.#server.on('upgrade', (asked, socket, head) => this.#upgrade(asked, socket as Socket, head));
    this.#server.on('clientError', (_error, socket) => socket.destroy());
  }

  async listen(): Promise<void> {
    await rm(this.#settings.socket, { force: true });
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen({ path: this.#settings.socket, backlog: BACKLOG }, resolve);
    });
    await this.#openDatabases();
  }

  /** New rules hold for the next request; kept connections of the old rules close once they are idle. */
  async update(settings: EgressTenant): Promise<void> {
    const before = this.#settings;
    this.#settings = settings;
    this.allowance.limits = settings.limits;
    await this.#openDatabases();
    if (before.allow.join() === settings.allow.join()) return;
    for (const database of this.#databases.values()) database.renew();
    this.#connections.empty();
    const old = this.#agents;
    this.#agents = createAgents(this.#deps, KEPT);
    for (const agent of allOf(old)) {
      agent.maxFreeSockets = 0;
      for (const free of Object.values(agent.freeSockets)) for (const socket of free ?? []) socket.destroy();
    }
  }

  get socket(): string {
    return this.#settings.socket;
  }

  async close(): Promise<void> {
    for (const agent of allOf(this.#agents)) agent.destroy();
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all([...this.#databases.values()].map((database) => database.close()));
    this.#connections.close();
    await closed;
    await rm(this.#settings.socket, { force: true });
  }

  /** Those of the settings; what is gone from them is closed. */
  async #openDatabases(): Promise<void> {
    const { sockets = [], connections = 0 } = this.#settings.databases ?? {};
    this.#connections.most = connections;
    const wanted = new Set(sockets.map(({ socket }) => socket));
    for (const [socket, database] of this.#databases) {
      if (wanted.has(socket)) continue;
      this.#databases.delete(socket);
      await database.close();
    }
    const { allowance } = this;
    const { resolver, authorities, surroundings } = this.#deps;
    for (const settings of sockets) {
      const known = this.#databases.get(settings.socket);
      if (known) {
        known.update(settings);
        continue;
      }
      const database = new Database(settings, {
        allowance,
        resolver,
        authorities,
        connections: this.#connections,
        wayOf: (target) => chooseWay(target, this.#settings.allow, surroundings),
        finished: (target, problem, error) => {
          allowance.counters.requests++;
          if (problem) this.#refuse(problem, target, error);
          else this.#deps.finished('ok');
        },
      });
      this.#databases.set(settings.socket, database);
      await database.listen();
    }
  }

  async #request(asked: IncomingMessage, reply: ServerResponse): Promise<void> {
    if (this.#sockets.size > KEPT_CONNECTIONS) reply.shouldKeepAlive = false;
    const served = () => reply.writableFinished && asked.complete;
    await this.#serve(() => parseHttpTarget(asked.url ?? ''), { stream: reply, served }, true, {
      run: (outbound) => exchange(outbound, this.#agents, this.#secure(outbound), asked, reply),
      answer: (problem) => answerReply(problem, asked, reply),
    });
  }

  async #connect(asked: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    const authority = asked.url ?? '';
    if (isFramed(authority)) {
      const client = new FramedClient(socket);
      await this.#serve(() => parseFramedTarget(authority), { stream: socket }, false, {
        run: (outbound) => secureTunnel(outbound, client, head, this.#deps.authorities),
        answer: (problem) => client.fail(problem),
      });
      return;
    }
    await this.#serve(() => parseConnectTarget(authority), { stream: socket }, false, {
      run: (outbound) => tunnel(outbound, socket, head),
      answer: (problem) => answerSocket(problem, socket),
    });
  }

  async #upgrade(asked: IncomingMessage, socket: Socket, head: Buffer): Promise<void> {
    await this.#serve(() => parseHttpTarget(asked.url ?? ''), { stream: socket }, false, {
      run: (outbound) => websocket(outbound, createAgents(this.#deps), this.#secure(outbound), asked, socket, head),
      answer: (problem) => answerSocket(problem, socket),
    });
  }

  #secure(outbound: Outbound): boolean {
    return isSecure(outbound, this.#deps.surroundings.edgeTlsAddress !== undefined);
  }

  /**
   * Everything around one piece of traffic: parse, decide, wait for a slot, bound its life, answer refusals.
   * @param tenant its side; that it closed ends the traffic, unless it closed because all was `served`
   * @param bounded whether the time limit is for the whole life; tunnels are bounded by silence once they stand
   */
  async #serve(
    parse: () => Target,
    tenant: { stream: ServerResponse | Duplex; served?(): boolean },
    bounded: boolean,
    { run, answer }: { run(outbound: Outbound): Promise<void>; answer(problem: Problem): void },
  ): Promise<void> {
    const { counters } = this.allowance;
    const { timeoutMs } = this.allowance.limits;
    const stop = new AbortController();
    const { signal } = stop;
    // Most close because all is well: nothing is made for them.
    const gone = () => {
      if (!tenant.served?.()) stop.abort(new Problem('egress_failed', 'The handler stopped waiting for the answer.'));
    };
    tenant.stream.once('close', gone);
    tenant.stream.once('error', gone);
    let target: Target | undefined;
    let leave: (() => void) | undefined;
    counters.requests++;
    const late = setTimeout(() => stop.abort(tookTooLong(target, timeoutMs)), timeoutMs);
    try {
      target = parse();
      const way = chooseWay(target, this.#settings.allow, this.#deps.surroundings);
      leave = await this.allowance.enter(signal);
      const { resolver, surroundings } = this.#deps;
      const key = surroundings.ownCallerKey;
      const own = key === undefined ? undefined : ownCaller(this.#settings.tenant, key);
      const stands = () => {
        if (!bounded) clearTimeout(late);
      };
      await run({ target, way, allowance: this.allowance, resolver, ownCaller: own, signal, stands });
      this.#deps.finished('ok');
    } catch (error) {
      const problem = signal.aborted ? asProblem(signal.reason) : asProblem(error);
      this.#refuse(problem, target, error);
      answer(problem);
    } finally {
      clearTimeout(late);
      leave?.();
    }
  }

  #refuse(problem: Problem, target: Target | undefined, error: unknown): void {
    this.#deps.finished(problem.code);
    if (problem.isFault) this.#deps.failed(error);
    if (problem.code !== 'egress_refused' && problem.code !== 'egress_limit') return;
    this.allowance.counters.refused++;
    const { tenant, slug } = this.#settings;
    this.#deps.notices.add({
      tenant,
      slug,
      code: problem.code,
      target: target?.name ?? '',
      detail: problem.message,
    });
  }
}

function tookTooLong(target: Target | undefined, timeoutMs: number): Problem {
  return new Problem('egress_timeout', `${target?.name ?? 'The request'} took longer than ${timeoutMs / 1000} s.`);
}

function answerReply(problem: Problem, asked: IncomingMessage, reply: ServerResponse): void {
  if (reply.destroyed) return;
  if (reply.headersSent) {
    reply.destroy();
    return;
  }
  const { status, headers, body } = wire(problem);
  reply.writeHead(status, { ...headers, 'content-length': Buffer.byteLength(body) });
  reply.end(body);
  asked.resume();
}

function answerSocket(problem: Problem, socket: Duplex): void {
  if (socket.destroyed) return;
  const { status, headers, body } = wire(problem);
  const lines = Object.entries({ ...headers, 'content-length': Buffer.byteLength(body), connection: 'close' });
  const head = lines.map(([name, value]) => `${name}: ${value}`).join('\r\n');
  socket.end(`HTTP/1.1 ${status} ${nodeHttp.STATUS_CODES[status] ?? 'Error'}\r\n${head}\r\n\r\n${body}`);
}

function wire(problem: Problem): { status: number; headers: Record<string, string>; body: string } {
  const headers = {
    'content-type': 'application/problem+json',
    'cache-control': 'no-store',
    'proxy-status': proxyStatus(problem),
    ...problem.headers,
  };
  return { status: problem.status, headers, body: JSON.stringify(problem.toDocument()) };
}

function allOf({ outside, edge }: Agents): http.Agent[] {
  return [outside.http, outside.https, edge.http, edge.https];
}

/** @param options default: every request has a connection of its own */
function createAgents({ authorities, surroundings }: ProxyDeps, options: http.AgentOptions = {}): Agents {
  const secure = { ...options, ...(authorities.ofFetch ? { ca: authorities.ofFetch } : {}) };
  const outside = { http: new nodeHttp.Agent(options), https: new https.Agent(secure) };
  const edge = surroundings.edgeProxyHeader
    ? { http: new EdgeAgent(options), https: new SecureEdgeAgent(secure) }
    : outside;
  return { outside, edge };
}
