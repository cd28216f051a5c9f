/** Composes an edge from what control says at start; everything it can be told and asked afterwards. */

import type { Server } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { UpstreamPool } from '../http/client/pool.ts';
import { readMemory } from '../http/message/blocks.ts';
import { answerField } from '../http/message/fields.ts';
import type { RequestHead } from '../http/message/head.ts';
import { AddressRanges } from '../shared/address-ranges.ts';
import type { ControlForEdge, EdgeInit, EdgeMethods, EdgeTls, ListenerKind, Route } from '../shared/contracts.ts';
import type { Metric } from '../shared/metric.ts';
import { monotonicNow } from '../shared/monotonic.ts';
import { setOwnPriority } from '../shared/priority.ts';
import { Problem } from '../shared/problem.ts';
import { ActiveList } from './active-list.ts';
import { BulkPace } from './bulk-pace.ts';
import { type Caller, TrustedProxies } from './caller.ts';
import { Contention } from './contention.ts';
import { Files } from './files/files.ts';
import { CUT_OFF, FrontDoor } from './front-door.ts';
import { HttpDate } from './http-date.ts';
import { INSIDE, InsideCalls } from './inside-calls.ts';
import { Instances } from './instances.ts';
import { Listeners } from './listeners.ts';
import { EdgeMetrics } from './metrics.ts';
import type { ProxiedRequest, ProxyEnvironment } from './proxied-request.ts';
import { CHALLENGE_PREFIX, hostName, RouteTable } from './route-table.ts';
import { Certificates } from './tls/certificates.ts';
import { Traffic } from './traffic.ts';
import { UnfinishedBodies } from './unfinished-bodies.ts';
import { UnpaidCalls } from './unpaid-calls.ts';
import { WatchedRequests } from './watched-requests.ts';

/** What an edge asks of control. */
export interface EdgeControl {
  acquire(slug: { slug: string }): Promise<ReturnType<ControlForEdge['acquire']>>;
  traffic(traffic: Parameters<ControlForEdge['traffic']>[0]): void;
  requests(requests: Parameters<ControlForEdge['requests']>[0]): void;
}

const REPORT_MS = 1_000;
const SWEEP_MS = 500;
const HEAD_MS = 15_000;
const KEEP_ALIVE_MS = 65_000;
const STALL_MS = 60_000;
/** Of one slug. Each takes 50 kB of a handler that does nothing with it, of the 256 MB that a handler may have. */
const MAX_IN_FLIGHT = 2_500;
const CONTROL_MAX_BODY_BYTES = 67_108_864;

export class Edge {
  readonly #routes: RouteTable;
  readonly #instances: Instances;
  readonly #files: Files;
  readonly #listeners: Listeners;
  readonly #metrics: EdgeMetrics;
  readonly #frontDoor: FrontDoor;
  readonly #active = new ActiveList<ProxiedRequest>();
  readonly #control: UpstreamPool;
  readonly #environment: ProxyEnvironment;
  readonly #certificates: Certificates;
  readonly #tls: EdgeTls | undefined;
  readonly #watched: WatchedRequests;
  readonly #inside = new InsideCalls();
  readonly #timers: NodeJS.Timeout[];
  #cutOff: NodeJS.Timeout | undefined;
  #idle: (() => void)[] = [];

  constructor(init: EdgeInit, control: EdgeControl, log: Logger) {
    const traffic = new Traffic();
    const proxies = new TrustedProxies(init.trustedProxies);
    this.#tls = init.tls;
    this.#watched = new WatchedRequests((requests) => control.requests(requests));
    this.#certificates = new Certificates({
      ownName: init.publicUrl ? new URL(init.publicUrl).hostname : undefined,
      files: init.tls?.mode === 'off' ? [] : (init.tls?.certificates ?? []),
      folder: init.tls?.mode === 'off' ? undefined : init.tls?.folder,
    });
    const date = new HttpDate();
    this.#routes = new RouteTable({
      publicUrl: init.publicUrl,
      baseDomain: init.baseDomain,
      reservedSlugs: init.reservedSlugs ?? [],
    });
    const memory = readMemory();
    const contention = new Contention(setOwnPriority);
    const acquire: EdgeControl['acquire'] = (slug) => {
      this.#metrics.waited();
      return control.acquire(slug);
    };
    const pace = new BulkPace(contention);
    this.#instances = new Instances(acquire, memory, pace);
    this.#files = new Files(memory, pace);
    this.#control = new UpstreamPool({ socketPath: init.controlSocket, classify: answerField, memory });
    this.#environment = {
      date: () => date.now(),
      home: init.publicUrl ? new URL(init.publicUrl).origin : '',
      active: this.#active,
      contention,
      sweeps: 0,
      replayBytes: 0,
      unfinished: new UnfinishedBodies(),
      replace: (instance) => {
        this.#instances.lost(instance);
        return this.#instances.next(instance.slug);
      },
      finished: (proxied) => this.#finished(proxied),
    };
    const frontDoor = new FrontDoor({
      routes: this.#routes,
      instances: this.#instances,
      files: this.#files,
      proxies,
      ownCallerKey: init.ownCallerKey,
      inside: this.#inside,
      log,
      maxInFlight: init.maxInFlightPerSlug ?? MAX_IN_FLIGHT,
      secureUrl: (caller, head) => this.#secureUrl(caller, head),
      control: this.#control,
      unpaidCalls: init.challengeKey === undefined ? undefined : new UnpaidCalls(init.challengeKey),
      traffic,
      controlMaxBodyBytes: init.controlMaxBodyBytes ?? CONTROL_MAX_BODY_BYTES,
      environment: this.#environment,
    });
    this.#frontDoor = frontDoor;
    this.setBlockedRanges(init.blockedRanges ?? []);
    frontDoor.serveUntil = init.serveUntil;
    this.#listeners = new Listeners({
      handler: frontDoor,
      limits: {
        maxHeadBytes: init.maxHeaderBytes,
        headMs: init.headTimeoutMs ?? HEAD_MS,
        keepAliveMs: init.keepAliveMs ?? KEEP_ALIVE_MS,
        stallMs: init.stallMs ?? STALL_MS,
      },
      proxyProtocol: init.tls?.proxyProtocol ?? false,
      proxies,
      certificates: this.#certificates,
      memory,
      ticketKeys: init.tls?.ticketKeys ? Buffer.from(init.tls.ticketKeys) : undefined,
    });
    this.#metrics = new EdgeMetrics({
      connections: () => this.#listeners.connections,
      inFlight: () => this.#active.size,
      routes: () => this.#routes.size,
    });
    this.#timers = [
      setInterval(() => {
        const report = traffic
          .report()
          .map((one) => ({ ...one, instanceBytesOut: this.#instances.takeBytesOut(one.slug) }));
        if (report.length > 0) control.traffic(report);
      }, REPORT_MS).unref(),
      setInterval(() => this.#sweep(), SWEEP_MS).unref(),
    ];
  }

  /** Resolves when callers can be shown a certificate; before it nothing may be listened on. */
  ready(): Promise<void> {
    return this.#listeners.certificateChanged();
  }

  listen(kind: ListenerKind, server: Server): void {
    if (kind === 'https') this.#listeners.addHttps(server);
    else this.#listeners.addHttp(server, kind === 'inside' ? INSIDE : undefined);
  }

  setRoutes(routes: Route[]): void {
    this.#routes.replace(routes);
  }

  putRoute(route: Route): void {
    this.#routes.put(route);
    this.#instances.changed(route.slug);
  }

  removeRoute(slug: string): void {
    this.#routes.remove(slug);
    this.#instances.changed(slug);
  }

  setBlockedRanges(ranges: readonly string[]): void {
    this.#frontDoor.blocked = ranges.length === 0 ? undefined : new AddressRanges(ranges);
  }

  /** What is under way then ends, too: it could be of what another node has stopped. */
  serveUntil(at: number): void {
    this.#frontDoor.serveUntil = at;
    clearTimeout(this.#cutOff);
    const cut = () =>
      this.#active.forEach((proxied) => {
        if (proxied.slug !== undefined) proxied.cutOff(new Problem('not_ready', CUT_OFF));
      });
    this.#cutOff = setTimeout(cut, at - monotonicNow()).unref();
  }

  setInstance(instance: Parameters<EdgeMethods['setInstance']>[0]): void {
    this.#instances.set(instance);
  }

  retire(instance: Parameters<EdgeMethods['retire']>[0]): Promise<{ inFlight: number }> {
    return this.#instances.retire(instance);
  }

  failed(instance: Parameters<EdgeMethods['failed']>[0]): void {
    this.#instances.failed(instance);
  }

  certificateChanged(name: string): Promise<void> {
    this.#certificates.changed(name);
    return this.#listeners.certificateChanged();
  }

  setTlsChallenge(name: string, pem: string | undefined): void {
    this.#listeners.setChallenge(name, pem);
  }

  watch({ slugs }: Parameters<EdgeMethods['watch']>[0]): void {
    this.#watched.watch(slugs);
  }

  metrics(): Metric[] {
    return this.#metrics.json();
  }

  /** Stops accepting; resolves when the last request ended or the time is over. */
  async drain(timeoutMs: number): Promise<void> {
    this.#listeners.drain();
    if (this.#active.size > 0) {
      const stop = new AbortController();
      await Promise.race([
        new Promise<void>((resolve) => this.#idle.push(resolve)),
        sleep(timeoutMs, undefined, { signal: stop.signal, ref: false }).catch(() => {}),
      ]);
      stop.abort();
    }
  }

  close(): void {
    for (const timer of this.#timers) clearInterval(timer);
    clearTimeout(this.#cutOff);
    this.#watched.close();
    this.#listeners.close();
    this.#control.close();
  }

  #finished(proxied: ProxiedRequest): void {
    this.#metrics.finished(proxied.place.via !== 'control', proxied.status, performance.now() - proxied.startedAt);
    this.#watched.finished(proxied);
    this.#inside.left(proxied.exchange);
    if (this.#active.size === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }

  /** Where a plain request is sent to: only names that can be served over TLS, never an authority's challenge. */
  #secureUrl(caller: Caller, head: RequestHead): string | undefined {
    const tls = this.#tls;
    if (!tls || tls.mode === 'off' || !tls.redirect || caller.proto === 'https' || head.upgrade) return undefined;
    if (head.target.startsWith(CHALLENGE_PREFIX)) return undefined;
    const name = hostName(caller.host);
    if (!this.#certificates.covers(name)) return undefined;
    const port = tls.publicPort ?? tls.port ?? 443;
    return `https://${name}${port === 443 ? '' : `:${port}`}${head.target}`;
  }

  #sweep(): void {
    this.#environment.sweeps += 1;
    this.#files.sweep();
    this.#active.forEach((proxied) => {
      proxied.sweep(SWEEP_MS);
    });
  }
}
