/**
 * What the processes of the host say to each other. One interface per direction; see shared/channel.ts.
 * Every method takes one argument and may answer a promise.
 */

import type { Metric } from './metric.ts';
import type { TenantLimits } from './tenant-limits.ts';

/** A tenant's storage identity: unique per ownership of a slug, never reused. `t` and 20 characters [a-z0-9]. */
export type TenantId = string;

// ---------------------------------------------------------------------------------------------- edge

/** `deploying`: nothing is deployed there yet, and something will be soon. */
export type RouteState = 'deploying' | 'active' | 'suspended' | 'expired' | 'decommissioned';

/** All that the edge knows of a slug. Control pushes every change. */
export interface Route {
  slug: string;
  /** Whose it is; undefined while it is being deployed. */
  tenant?: TenantId;
  state: RouteState;
  /** What callers of a suspended slug are told. */
  suspended?: string;
  /** Verified custom domains, lowercase punycode. */
  domains: string[];
  /** Ids of the versions that have addresses of their own. */
  previews?: string[];
  /** Its pages may act for the whole origin that path addresses share: built-in tenants, or those the operator trusts. */
  trustedPages?: boolean;
  /** Requests that match go to control's toll. Paths as in payments.md; `*` at the end matches any rest. */
  paidRoutes: { method: string; path: string }[];
  /** Longest wait for a byte of an answer, ms. */
  idleTimeoutMs: number;
  /** Largest request body, bytes. */
  maxBodyBytes: number;
  /** Static files that need no instance. */
  files?: RouteFiles;
}

/** Where an edge finds the files of a deployment: `<folder>/files/<sha256>`, and which one is at which path. */
export interface RouteFiles {
  folder: string;
  /** Name of a `FileTable` in `<folder>/tables`. Where it is not there, an instance answers. */
  table: string;
}

/** Requests that a static file answers whatever else they say; made by host/assets, read by edges. */
export interface FileTable {
  /** Ends of host names at which other fields hold: an instance answers there. */
  exceptHosts?: string[];
  fields: {
    /** Checked field block. */
    lines: string;
    /** Of answers to requests without Authorization and Range. */
    cacheControl?: string;
    /** May be sent compressed. */
    coded: boolean;
  }[];
  /** Raw path of a request -> SHA-256 of its file, index in `fields`. */
  paths: Record<string, [hash: string, fields: number]>;
}

export interface EdgeInit {
  /** Unix socket of control's HTTP server: admin API, pages, toll, expired tenants. */
  controlSocket: string;
  /** Public origin, such as `https://api.example.com`; undefined: taken from the Host header. */
  publicUrl: string | undefined;
  /** Tenants answer at `<slug>.<baseDomain>` too. */
  baseDomain: string;
  /** CIDRs of proxies whose `x-forwarded-for/-proto/-host` are believed. */
  trustedProxies: string[];
  /** Tells calls of this host's own tenants from others (host/shared/own-caller.ts); undefined: there are none. */
  ownCallerKey?: string;
  /** HMAC key of the host's challenges: with it edges write 402s again that control made (host/shared/reissue.ts). */
  challengeKey?: string;
  maxHeaderBytes: number;
  /** As `EdgeMethods.serveUntil` says it; undefined: always. */
  serveUntil?: number;
  /** Address ranges whose every request is refused; undefined: none. */
  blockedRanges?: string[];
  /** `slugs.reserved`: where none of them is deployed, requests for them go to control instead of a 404. */
  reservedSlugs?: string[];
  /** Largest body of a request to control itself, bytes; 64 MiB without. */
  controlMaxBodyBytes?: number;
  /** Requests of one slug under way at once in one edge; 5,000 without. More are answered 503 `overloaded`. */
  maxInFlightPerSlug?: number;
  /** From the first byte of a request head to its last, ms; 15 s without. */
  headTimeoutMs?: number;
  /** Wait for the next request on a connection, ms; 65 s without. */
  keepAliveMs?: number;
  /** A caller that takes nothing of its answer for so long is cut off, ms; 60 s without. */
  stallMs?: number;
  tls: EdgeTls | undefined;
  clockOffsetMs: number;
}

/** How the edge speaks TLS; the members of the configuration's `tls`, and what is not configured. */
export interface EdgeTls {
  mode: 'off' | 'files' | 'acme';
  port?: number;
  /** HTTPS port as callers see it, where a firewall maps it; `port` without. */
  publicPort?: number;
  /** Plain requests for names that have a certificate are sent to HTTPS (308). */
  redirect?: boolean;
  /** Trusted proxies begin every connection with a PROXY protocol v2 header. */
  proxyProtocol?: boolean;
  /** The operator's files. */
  certificates?: { names: string[]; cert: string; key: string }[];
  /** Where control puts `<name>.pem` (key and chain; `_wildcard.<name>.pem` for `*.<name>`), replaced by rename. */
  folder?: string;
  /** 48 random bytes, equal in all edges, so that TLS sessions resume in any of them. */
  ticketKeys?: Uint8Array;
}

/** Context that the edge sends to control in the header `x-turnpike-context` (base64url JSON); stripped from callers. */
export interface EdgeContext {
  requestId: string;
  clientIp: string;
  proto: 'http' | 'https';
  /** Host header as the caller sent it, with port. */
  host: string;
  /** Set when the request belongs to a tenant (paid route, expired, gone), with the path the tenant would see. */
  slug?: string;
  tenantPath?: string;
  /** `''` on a domain or subdomain, `/<slug>` on the shared origin. */
  prefix?: string;
  via?: 'path' | 'subdomain' | 'domain';
  /** Id of the version that is asked, where that is not the one that is live. */
  preview?: string;
  /** The same call comes often: an unpaid 402 should say how it may be written again. */
  reissue?: boolean;
}

/** `inside`: a unix socket on which this host's own instances call. */
export type ListenerKind = 'http' | 'https' | 'inside';

export interface EdgeMethods {
  [name: string]: (argument: never) => unknown;
  init(init: EdgeInit): void;
  /** With a listening net.Server handle to accept on. `kind` tells what is spoken there. */
  listen(listener: { kind: ListenerKind }): void;
  /** The whole table, at start. */
  setRoutes(routes: Route[]): void;
  putRoute(route: Route): void;
  removeRoute(slug: { slug: string }): void;
  /** From now on requests for the slug go to this socket. */
  setInstance(instance: ServingInstance): void;
  /** No new request goes to that instance; answers once none is in flight or the time is over. */
  retire(instance: { slug: string; generation: number; timeoutMs: number }): { inFlight: number };
  /** The instance died: requests in flight on it are answered with this problem (503) where no byte went out yet. */
  failed(instance: { slug: string; generation: number; code: string; detail: string }): void;
  /** A certificate in the folder is new, renewed or gone. */
  certificateChanged(certificate: { name: string }): void;
  /** Answers TLS-ALPN-01 for a name with this key and certificate (PEM); undefined: no more. */
  setTlsChallenge(challenge: { name: string; pem: string | undefined }): void;
  /** Requests from these address ranges are refused from now on, and from no others. */
  setBlockedRanges(blocked: { ranges: string[] }): void;
  /** Until when requests are served, unless it is told a later time: ms of `monotonicNow` (shared/monotonic.ts). */
  serveUntil(time: { at: number }): void;
  setClock(clock: { offsetMs: number }): void;
  /** From now on the edge reports each request of these slugs, and of no others. */
  watch(watched: { slugs: string[] }): void;
  metrics(nothing: undefined): Metric[];
  /** Stop accepting; answers when the last request ended or the time is over. */
  drain(options: { timeoutMs: number }): void;
}

/** Where a slug, or a preview of it, is served. */
export interface ServingInstance {
  slug: string;
  generation: number;
  /** Generation of the one beside which it serves the same code; its own where it replaces all earlier ones. */
  first: number;
  socket: string;
}

export interface AcquiredInstance extends Omit<ServingInstance, 'slug'> {
  /** Others that serve the same code: an edge that was started anew has not heard of them. */
  beside?: ServingInstance[];
}

export interface EdgeTraffic {
  /** Or the key of a preview's instance (shared/previews.ts), here and in all that names an instance. */
  slug: string;
  requests: number;
  /** Answers of 500 and above. */
  errors: number;
  bytesIn: number;
  bytesOut: number;
  /** Of `bytesOut`, what the slug's instances made, by their generation: not what the host answered in their place. */
  instanceBytesOut?: Record<number, number>;
  inFlight: number;
}

/** A request that is over, told while somebody watches its slug. */
export interface SeenRequest {
  slug: string;
  method: string;
  /** As the tenant sees it, with its query; long ones are cut. */
  path: string;
  /** 499: the caller left before the answer. */
  status: number;
  /** From its head to the end of its answer. */
  ms: number;
}

/** What an edge may ask of the supervisor. */
export interface ControlForEdge {
  [name: string]: (argument: never) => unknown;
  /** Starts the instance if it is cold. Rejects with start_failed, crash_loop, cpu_exceeded, ... */
  acquire(slug: { slug: string }): AcquiredInstance;
  /** About once a second, for slugs with traffic since the last report or with requests in flight. */
  traffic(traffic: EdgeTraffic[]): void;
  /** Those of watched slugs since the last report; where there were very many, some are missing. */
  requests(requests: SeenRequest[]): void;
}

// ------------------------------------------------------------------------------------------- storage

/** A bucket of an S3, and where in it. */
export interface S3Settings {
  endpoint: string;
  region: string;
  bucket: string;
  /** In front of every object's name. */
  prefix: string;
  accessKey: string;
  secretKey: string;
}

/** Where the stores of several nodes are. */
export interface ClusterStores {
  /** `postgres://user:password@host/database` */
  database: string;
  storage: S3Settings;
}

export interface StorageInit {
  /** Folder of all tenants' data: `<root>/<tenant>/kv`, `<root>/<tenant>/r2`. */
  root: string;
  objects: { kind: 'disk' } | ({ kind: 's3' } & S3Settings);
  /** Other nodes serve the same tenants: KV and R2 are there, and `objects` has nothing to say. */
  cluster?: ClusterStores | undefined;
  clockOffsetMs: number;
}

/** Limits of a tenant's stores by name, such as `kvBytes`. */
export interface StorageQuotas {
  [limit: string]: number;
  requestsInFlight: number;
}

export interface StoreSocket {
  /** As `storeName` makes it: `kv`, `kv.sessions`. */
  name: string;
  /** Name of the file. */
  socket: string;
}

/** How much a tenant's stores keep, by names such as `kvBytes` and `kvKeys`. */
export type StorageUsage = Record<string, number>;

export interface StorageMethods {
  [name: string]: (argument: never) => unknown;
  init(init: StorageInit): void;
  /** Serves these stores on sockets in `folder` until `close`. Idempotent. */
  open(tenant: { tenant: TenantId; folder: string; stores: StoreSocket[]; quotas: StorageQuotas }): void;
  /** @param folder ends the sockets in this folder alone */
  close(tenant: { tenant: TenantId; folder?: string }): void;
  usage(tenant: { tenant: TenantId }): StorageUsage;
  /** Removes all data of the tenant, on every backend; with `stores` these alone. Idempotent. */
  purge(tenant: { tenant: TenantId; stores?: string[] }): void;
  /** A consistent copy of every tenant's KV and object index (and bytes, where on disk) below `folder`. */
  backup(target: { folder: string }): { tenants: number; bytes: number };
  setClock(clock: { offsetMs: number }): void;
  metrics(nothing: undefined): Metric[];
}

// -------------------------------------------------------------------------------------------- egress

export interface EgressInit {
  /** Public names of this host (host:port or host, lowercase): such requests go to `edgeAddress`. */
  ownHosts: string[];
  /** Suffix below which every name is a tenant of this host, such as `.localhost`. */
  baseDomain: string;
  edgeAddress: { host: string; port: number };
  /** Where the edge speaks TLS; undefined: https requests to own names go to `edgeAddress` as plain HTTP. */
  edgeTlsAddress?: { host: string; port: number } | undefined;
  /** The edge expects a PROXY header of connections from this machine. */
  edgeProxyHeader?: boolean;
  /** As in `EdgeInit`: says to the edge which tenant calls. */
  ownCallerKey?: string;
  /** Ports that `connect()` may reach; undefined: all but 25. */
  connectPorts: number[] | undefined;
  /** DNS servers (`host:port`) for tenants' names; empty or undefined: those of the machine. */
  dnsServers?: string[] | undefined;
  /** PEM of an authority to trust beside the usual ones (private networks, tests). */
  extraAuthority?: string | undefined;
  clockOffsetMs: number;
}

export interface EgressLimits {
  inFlight: number;
  /** Bytes in both directions in a rolling hour. */
  bytesPerHour: number;
  /** Longest life of one request, ms. */
  timeoutMs: number;
}

/** The databases of a tenant that have a binding, and what bounds them. */
export interface TenantDatabases {
  sockets: DatabaseSocket[];
  /** Connections at a time, to all of them together. */
  connections: number;
}

export interface DatabaseSocket {
  /** Path of the unix socket that leads to it. */
  socket: string;
  /** Name of the secret that holds the connection string. */
  secret: string;
  /** The connection string; undefined: the secret is not set. In memory only. */
  url: string | undefined;
}

export interface EgressCounters {
  requests: number;
  refused: number;
  bytesIn: number;
  bytesOut: number;
  inFlight: number;
}

/** Something an owner should know of its own outbound traffic; equal ones within a second are counted together. */
export interface EgressNotice {
  tenant: TenantId;
  slug: string;
  code: 'egress_refused' | 'egress_limit';
  /** `host:port`. */
  target: string;
  detail: string;
  count: number;
}

/** What the egress may tell the supervisor. */
export interface ControlForEgress {
  [name: string]: (argument: never) => unknown;
  /** At most once a second. */
  notices(notices: EgressNotice[]): void;
}

export interface EgressTenant {
  tenant: TenantId;
  slug: string;
  socket: string;
  allow: string[];
  limits: EgressLimits;
  databases?: TenantDatabases;
}

export interface EgressMethods {
  [name: string]: (argument: never) => unknown;
  init(init: EgressInit): void;
  /**
   * Serves an HTTP proxy on `socket` for this tenant, and answers when it listens. Calling it again replaces `allow`,
   * `limits` and `databases`. `allow`: what the operator opened, `host:port` or `unix:<path>`; `unix:/run/engine.sock` is reached
   * as `http://engine.internal/`.
   */
  open(tenant: EgressTenant): void;
  close(tenant: { tenant: TenantId }): void;
  counters(tenant: { tenant: TenantId }): EgressCounters;
  setClock(clock: { offsetMs: number }): void;
  metrics(nothing: undefined): Metric[];
}

// --------------------------------------------------------------------------------------- deployments

/** One file of a deployment after bundling. */
export interface CodeModule {
  name: string;
  type: 'esModule' | 'text' | 'data' | 'json' | 'wasm';
  body: Uint8Array;
}

/** The immutable result of the bundle step, stored by digest. */
export interface CodeBundle {
  /** The first module is the entry. */
  modules: CodeModule[];
  /** Source map of the entry module (JSON text), when there is one. */
  sourceMap: string | undefined;
  /** What other deployments can call beside the default export, by name; absent: nothing. */
  entrypoints?: string[];
}

/**
 * Key of a binding (host/bindings) -> whether the deployment has it, or its names in env with the ids of their stores.
 * One that came later is absent in older records.
 */
export type BindingSet = Record<string, boolean | Record<string, BindingSettings>>;

export type BindingSettings = { id?: string | undefined } & Record<string, unknown>;

/** What the registry keeps of a deployment's static files; host/assets says what the members mean. */
export interface AssetSettings {
  /** Digest of the list of files. */
  list: string;
  /** Name in env. */
  binding?: string | undefined;
  htmlHandling?: string | undefined;
  notFoundHandling?: string | undefined;
  basePath?: string | undefined;
  runWorkerFirst?: boolean | string[] | undefined;
}

/** Static files of an instance. */
export interface InstanceAssets {
  /** Name of their folder among the instance's services: another for other files. */
  name: string;
  binding: string | undefined;
  /** For workerd, JSON. */
  config: string;
  /** Makes the folder. */
  place(folder: string): Promise<void>;
}

/** Everything needed to start an instance of a deployment. Secrets are in clear: keep it in memory only. */
export interface InstanceSpec {
  slug: string;
  tenant: TenantId;
  /** Changes whenever a running instance must be replaced. */
  revision: string;
  /** When it was deployed, ms. */
  deployedAt?: number;
  bundle: CodeBundle;
  compatibilityDate: string;
  compatibilityFlags: string[];
  secrets: Record<string, string>;
  /** Plain values in env: text, or what JSON can hold. */
  vars: Record<string, unknown>;
  bindings: BindingSet;
  /** What the edge knows its calls by (own-caller.ts). */
  ownCaller?: string;
  /** In whose name the stores are that it shares with other deployments of its owner. */
  sharedSpace?: TenantId | undefined;
  assets?: InstanceAssets | undefined;
  crons: string[];
  /** Private addresses the operator opened for this slug's fetch(): `host:port` or `unix:<path>`. */
  egressAllow: string[];
  /** In place of the host's settings. */
  limits?: TenantLimits;
}

/** What an instance will be started with, when its code is there. */
export type InstancePlan = Omit<InstanceSpec, 'bundle'>;
