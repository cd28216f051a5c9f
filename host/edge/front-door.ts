/** Decides for every request where it goes: an instance, control, or an answer from here. */
import { randomBytes } from 'node:crypto';
import type { Logger } from 'pino';
import type { UpstreamPool } from '../http/client/pool.ts';
import { controlHead, instanceHead } from '../http/instance/request.ts';
import type { Exchange } from '../http/message/exchange.ts';
import { requestField } from '../http/message/fields.ts';
import { parseRequestHead, type RequestHead } from '../http/message/head.ts';
import type { WireError } from '../http/message/wire-error.ts';
import type { RequestHandler } from '../http/server/http1-connection.ts';
import type { AddressRanges } from '../shared/address-ranges.ts';
import type { EdgeContext } from '../shared/contracts.ts';
import { matchPaidRoute, OVERRIDE_FIELDS, overridingMethods, WITH_BODY } from '../shared/match-paid-route.ts';
import { monotonicNow } from '../shared/monotonic.ts';
import { networkOf } from '../shared/network-of.ts';
import { instanceKey } from '../shared/previews.ts';
import { asProblem, Problem } from '../shared/problem.ts';
import type { AnswerPlace } from './answer-fields.ts';
import type { Caller, TrustedProxies } from './caller.ts';
import type { FileAnswer } from './files/file-answer.ts';
import type { Files } from './files/files.ts';
import type { InsideCalls } from './inside-calls.ts';
import type { Instances } from './instances.ts';
import { type ProblemAnswer, problemAnswer } from './problem-answer.ts';
import { bodyTooLarge, ProxiedRequest, type ProxyEnvironment } from './proxied-request.ts';
import type { Resolution, RouteTable } from './route-table.ts';
import { StartTurns } from './start-turns.ts';
import type { Traffic } from './traffic.ts';
import { KnownAnswer, type UnpaidCalls } from './unpaid-calls.ts';

export interface FrontDoorParts {
  routes: RouteTable;
  instances: Instances;
  files: Files;
  proxies: TrustedProxies;
  ownCallerKey: string | undefined;
  inside: InsideCalls;
  control: UpstreamPool;
  traffic: Traffic;
  /** Where a request that came without TLS has to go instead; undefined: it may stay. */
  secureUrl(caller: Caller, head: RequestHead): string | undefined;
  environment: ProxyEnvironment;
  log: Logger;
  /** Requests of one slug that may be under way at once: no tenant takes all connections. */
  maxInFlight: number;
  /** Undefined: control answers all of them. */
  unpaidCalls: UnpaidCalls | undefined;
  /** Largest body of a request to control itself, bytes. */
  controlMaxBodyBytes: number;
}

/** Of one slug; about 1 ms. */
const REQUESTS_A_TURN = 32;
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']);
/**
 * From `/<slug>` to `/<slug>/`: what browsers get pages and scripts with. Other methods stay, for callers of an API do not
 * all repeat a body, and a preflight may not be redirected; a WebSocket handshake is no page.
 */
const REDIRECTED = new Set(['GET', 'HEAD']);
const ALLOW = 'GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS';
/** Control may wait for a chain to settle. */
const OVERRIDE = new RegExp(`^(?:${OVERRIDE_FIELDS.join('|')}):(.*)$`, 'gim');
const CONTROL_IDLE_MS = 300_000;
const REQUEST_ID = /^[A-Za-z0-9._-]{8,128}$/;
const BLOCKED = 'The operator of this host has blocked the network that you call from; ask the operator.';
export const CUT_OFF = 'This node has no connection to the others; ask another one, or try again in a second.';
const TOO_MANY_INSIDE = 'The handler has too many calls of this host under way; await some before sending more.';
const HEALTH = '/healthz';
/** Fields of calls that are hardly ever unpaid, and that nothing may remember. */
const PERSONAL = /^(?:authorization|cookie|[a-z-]*payment[a-z-]*):/im;
/** Control adds generated descriptions for tenants with prices. */
const DESCRIPTIONS = new Set(['/openapi.json', '/.well-known/x402']);

const HOST_ITSELF: AnswerPlace = { via: 'control', prefix: '', hostName: '', host: '', trusted: true, own: true };

type TenantResolution = Extract<Resolution, { kind: 'tenant' }>;

export class FrontDoor implements RequestHandler<RequestHead> {
  readonly #parts: FrontDoorParts;
  /** Whose every request is refused; undefined: nobody's. */
  blocked: AddressRanges | undefined;
  /** One of several nodes serves only while the others know of it, ms of `monotonicNow`; undefined: it is the only one. */
  serveUntil: number | undefined;
  readonly #starts = new StartTurns(REQUESTS_A_TURN, (error) => this.unexpected(error));
  /** Ids are this process's random stem and a count: unique, and cheap to make. */
  readonly #stem = randomBytes(9).toString('hex');
  #count = 0;

  constructor(parts: FrontDoorParts) {
    this.#parts = parts;
  }

  handle(exchange: Exchange): void {
    const { head } = exchange;
    const caller = this.#parts.proxies.callerOf(exchange.peer, head, this.#parts.ownCallerKey);
    const requestId = REQUEST_ID.test(head.requestId) ? head.requestId : this.#nextId();
    if (this.blocked?.has(caller.ip)) {
      this.#here(exchange, requestId, new Problem('blocked', BLOCKED));
      return;
    }
    if (this.serveUntil !== undefined && monotonicNow() > this.serveUntil && head.target !== HEALTH) {
      this.#here(exchange, requestId, new Problem('not_ready', CUT_OFF));
      return;
    }
    const resolution = this.#parts.routes.resolve(caller.host, head.target);
    const secureUrl = this.#parts.secureUrl(caller, head);
    if (!METHODS.has(head.method)) {
      this.#here(
        exchange,
        requestId,
        new Problem('method_not_allowed', `The methods are ${ALLOW}.`, { headers: { allow: ALLOW } }),
      );
    } else if (head.target === '*') {
      this.#options(exchange, requestId);
    } else if (secureUrl !== undefined) {
      this.#redirect(exchange, requestId, secureUrl);
    } else if (resolution.kind === 'slash' && REDIRECTED.has(head.method) && !head.upgrade) {
      this.#redirect(exchange, requestId, resolution.target);
    } else if (!this.#parts.inside.enter(exchange, caller.ip)) {
      // What is answered above has ended with it.
      this.#here(exchange, requestId, new Problem('overloaded', TOO_MANY_INSIDE));
    } else if (resolution.kind === 'slash') {
      this.#toTenant(exchange, caller, requestId, resolution.tenant);
    } else if (resolution.kind === 'tenant' && resolution.via === 'path' && head.serviceWorker) {
      this.#here(
        exchange,
        requestId,
        new Problem(
          'forbidden',
          'Service workers need an origin of their own: use the subdomain or a domain of the slug.',
        ),
      );
    } else if (resolution.kind === 'tenant') {
      this.#toTenant(exchange, caller, requestId, resolution);
    } else if (resolution.kind === 'control') {
      this.#toControl(exchange, caller, requestId, undefined);
    } else {
      this.#here(exchange, requestId, new Problem('not_found', resolution.detail));
    }
  }

  parseHead(text: string): RequestHead {
    return parseRequestHead(text, requestField);
  }

  unexpected(error: unknown): void {
    this.#parts.log.error({ err: error }, 'a request was cut off by a mistake in the edge');
  }

  refuse(error: WireError): ProblemAnswer {
    return problemAnswer(new Problem(error.code, error.message), this.#nextId(), this.#parts.environment.date());
  }

  #toTenant(exchange: Exchange, caller: Caller, requestId: string, tenant: TenantResolution): void {
    const { route } = tenant;
    const { head } = exchange;
    if (route.state === 'deploying' || route.state === 'suspended') {
      const problem =
        route.state === 'suspended'
          ? new Problem('suspended', route.suspended ?? '')
          : new Problem('not_ready', `${route.slug} is being deployed; try again in a second.`);
      this.#here(exchange, requestId, problem);
      return;
    }
    if (route.state !== 'active' || this.#hasPrice(tenant, head)) {
      this.#toControl(exchange, caller, requestId, tenant);
      return;
    }
    const key = instanceKey(route.slug, tenant.preview);
    const traffic = this.#parts.traffic.of(key);
    // Previews have no room of their own.
    const live = tenant.preview === undefined ? 0 : this.#parts.traffic.of(route.slug).inFlight;
    const crowded = traffic.inFlight + live >= this.#parts.maxInFlight;
    const proxied = new ProxiedRequest(this.#parts.environment, exchange, tenant, requestId, route, traffic);
    if (crowded) {
      proxied.refuse(
        new Problem('overloaded', `${route.slug} has too many requests under way; try again in a second.`),
      );
      return;
    }
    if (head.framing.kind === 'length' && head.framing.length > route.maxBodyBytes) {
      proxied.refuse(bodyTooLarge(route.maxBodyBytes));
      return;
    }
    this.#starts.run(key, () => this.#answer(key, proxied, exchange, caller, tenant));
  }

  #answer(key: string, proxied: ProxiedRequest, exchange: Exchange, caller: Caller, tenant: TenantResolution): void {
    const go = (file: FileAnswer | undefined) => {
      if (file) proxied.answerFromHere(file);
      else this.#toInstance(key, proxied, this.#instanceText(proxied, exchange, caller, tenant));
    };
    const file = this.#parts.files.answer(tenant, exchange.head);
    if (file instanceof Promise) file.then(go, (error: unknown) => this.#mistaken(proxied, error));
    else go(file);
  }

  #mistaken(proxied: ProxiedRequest, error: unknown): void {
    this.unexpected(error);
    proxied.refuse(asProblem(error));
  }

  #instanceText({ requestId }: ProxiedRequest, exchange: Exchange, caller: Caller, tenant: TenantResolution): string {
    const { head, peer } = exchange;
    return instanceHead(
      {
        method: head.method,
        path: tenant.tenantPath,
        host: caller.host,
        framing: head.framing,
        upgrade: head.upgrade,
        fields: head.fields,
      },
      { requestId, clientIp: caller.ip, proto: caller.proto, prefix: tenant.prefix },
      { version: head.version, tlsVersion: peer.tlsVersion, tlsCipher: peer.tlsCipher },
    );
  }

  #toInstance(slug: string, proxied: ProxiedRequest, text: string): void {
    const instance = this.#parts.instances.current(slug);
    if (instance) {
      proxied.toInstance(instance, text);
      return;
    }
    this.#parts.instances.start(slug).then(
      (started) => proxied.toInstance(started, text),
      (reason: unknown) => proxied.refuse(asProblem(reason)),
    );
  }

  #toControl(exchange: Exchange, caller: Caller, requestId: string, tenant: TenantResolution | undefined): void {
    const { head } = exchange;
    const { control, traffic, environment, controlMaxBodyBytes } = this.#parts;
    const context: EdgeContext = { requestId, clientIp: caller.ip, proto: caller.proto, host: caller.host };
    if (tenant) {
      context.slug = tenant.route.slug;
      context.tenantPath = tenant.tenantPath;
      context.prefix = tenant.prefix;
      context.via = tenant.via;
      if (tenant.preview !== undefined) context.preview = tenant.preview;
    }
    const seen = tenant && this.#seen(exchange, caller, tenant, requestId);
    if (seen !== undefined && !(seen instanceof KnownAnswer)) context.reissue = true;
    const maxBodyBytes = tenant ? tenant.route.maxBodyBytes : controlMaxBodyBytes;
    const proxied = new ProxiedRequest(
      environment,
      exchange,
      tenant ?? HOST_ITSELF,
      requestId,
      { idleTimeoutMs: tenant ? Math.max(CONTROL_IDLE_MS, tenant.route.idleTimeoutMs) : CONTROL_IDLE_MS, maxBodyBytes },
      tenant?.route.state === 'active' ? traffic.of(instanceKey(tenant.route.slug, tenant.preview)) : undefined,
    );
    if (head.framing.kind === 'length' && head.framing.length > maxBodyBytes) {
      proxied.refuse(bodyTooLarge(maxBodyBytes));
      return;
    }
    if (seen instanceof KnownAnswer) {
      proxied.answerFromHere(seen);
      return;
    }
    const text = controlHead(
      {
        method: head.method,
        path: head.target,
        host: caller.host,
        framing: head.framing,
        upgrade: head.upgrade,
        expectContinue: head.expectContinue,
        fields: head.fields,
      },
      context,
    );
    proxied.toControl(control, text, networkOf(caller.ip), seen);
  }

  /** Calls without a body are known by all that they say. */
  #seen({ head }: Exchange, { proto, host }: Caller, { route }: TenantResolution, requestId: string) {
    const { unpaidCalls } = this.#parts;
    if (!unpaidCalls || route.state !== 'active' || head.framing.kind !== 'none' || head.upgrade) return undefined;
    if (PERSONAL.test(head.fields)) return undefined;
    const call = `${head.method} ${proto} ${host} ${head.target}\n${head.fields}`;
    // An id that a caller chose could be any text of an answer.
    return unpaidCalls.see(call, route, requestId, requestId !== head.requestId);
  }

  #hasPrice({ route, tenantPath }: TenantResolution, { method, fields, framing }: Exchange['head']): boolean {
    if (route.paidRoutes.length === 0) return false;
    if (DESCRIPTIONS.has(tenantPath.split('?', 1)[0] ?? '')) return true;
    const overrides = [...fields.matchAll(OVERRIDE)].map(([, value = '']) => value);
    const methods = [method, ...overridingMethods(overrides, tenantPath)];
    if (framing.kind !== 'none') methods.push(WITH_BODY);
    return methods.some((each) => matchPaidRoute(route.paidRoutes, each, tenantPath) !== undefined);
  }

  #here(exchange: Exchange, requestId: string, problem: Problem): void {
    new ProxiedRequest(
      this.#parts.environment,
      exchange,
      HOST_ITSELF,
      requestId,
      { idleTimeoutMs: CONTROL_IDLE_MS, maxBodyBytes: 0 },
      undefined,
    ).refuse(problem);
  }

  /** 308 keeps the method and the body. */
  #redirect(exchange: Exchange, requestId: string, url: string): void {
    const fields = `location: ${url}\r\naccess-control-allow-origin: *\r\ndate: ${this.#parts.environment.date()}\r\nx-request-id: ${requestId}\r\n`;
    exchange.answer(308, 'Permanent Redirect', fields, 0);
    exchange.finish('');
  }

  /** `OPTIONS *` asks about the server itself. */
  #options(exchange: Exchange, requestId: string): void {
    exchange.answer(
      204,
      'No Content',
      `allow: ${ALLOW}\r\ndate: ${this.#parts.environment.date()}\r\nx-request-id: ${requestId}\r\n`,
      'none',
    );
    exchange.finish('');
  }

  #nextId(): string {
    this.#count += 1;
    return `${this.#stem}-${this.#count.toString(36)}`;
  }
}
