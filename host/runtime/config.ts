/**
 * The workerd configuration of one instance, as the bytes of a Cap'n Proto message.
 * Tenants' strings are only ever values in it: there is no text format that they could break out of.
 */
import { createHash } from 'node:crypto';
import { type List, Message } from 'capnp-ts';
import { CACHE, usesCaches } from '../bindings/cache-api/caches.ts';
import { durableObjects } from '../bindings/durable-objects/binding.ts';
import { objectsOf } from '../bindings/durable-objects/classes.ts';
import { type Bound, boundBindings, connectionSecrets, distinctServices, ownedBindings } from '../bindings/index.ts';
import { RPC_HOST } from '../bindings/services/names.ts';
import { secureSockets, usesSockets, writeSecureSockets } from '../bindings/sockets/secure-sockets.ts';
import { TAIL_SERVICE, TAIL_WORKER, tails } from '../bindings/tails/binding.ts';
import {
  Config,
  type HttpOptions,
  HttpOptions_Style,
  type Service,
  type Socket,
  type Worker,
  type Worker_Binding,
  type Worker_Module,
} from '../capnp/generated/workerd.cjs';
import type { CodeModule, InstanceSpec } from '../shared/contracts.ts';
import { OWN_CALLER_HEADER } from '../shared/own-caller.ts';
import { type MemberConfig, PEERS_SOCKET } from './cluster-member.ts';
import { PROBE_ENTRYPOINT, PROBE_SOCKET } from './deploy/probe-worker.ts';
import { awayServices, pointAway, writeAway } from './objects-away.ts';
import { objectServices, PEERS_SERVICE, writeMember, writeObjects } from './objects-config.ts';
import { controlBinding, dataBinding, SYSTEM_COMPATIBILITY_DATE, SYSTEM_WORKER } from './system-worker.ts';

/** Header with the JSON of `request.cf`; the edge overwrites it on every request. */
export const CF_HEADER = 'x-turnpike-cf';

/** Answers with static files, or hands the request to the tenant's worker. */
const ASSETS_SERVICE = 'assets';
/** Of that service: files alone. */
const FILES_ALONE = 'AssetWorker';

/** Where things are as workerd sees them. */
export interface InstancePaths {
  /** Folder in which workerd creates `http.sock` and `system.sock`. */
  listen: string;
  /** Folder of the sockets that the instance may use: egress.sock, and one for each binding. */
  services: string;
  /** Folder of its Durable Objects. Without one they are kept in memory. */
  objects?: string | undefined;
  /** Set where they are the cluster's, and the folder holds copies. */
  member?: MemberConfig | undefined;
  /** The cluster's objects cannot be reached: something stands in for them. */
  away?: boolean | undefined;
}

/**
 * @param heapMb limit of the JS heap, MB; workerd exits with code 1 beyond it
 * @param front modules before the tenant's, of a probe
 * @returns a message for `workerd serve --binary`. It holds the secrets in clear.
 */
export function encodeConfig(
  spec: InstanceSpec,
  paths: InstancePaths,
  heapMb: number,
  front: CodeModule[] = [],
): Uint8Array {
  const bindings = boundBindings(spec.bindings);
  const away = paths.away === true;
  const isClustered = away || paths.member !== undefined;
  const services = distinctServices(bindings, isClustered);
  const message = new Message();
  const config = message.initRoot(Config);

  const { assets } = spec;
  const caches = usesCaches(spec.bundle);
  const objects = objectsOf(spec.bindings, isClustered);
  const consumers = services.filter(({ binding }) => binding === tails);
  const list = config.initServices(
    3 +
      services.length +
      (assets ? 1 : 0) +
      (objects && away ? awayServices(objects) : objectServices(objects, paths.objects)) +
      (consumers.length > 0 ? 1 : 0) +
      (paths.member ? 1 : 0) +
      (caches ? 1 : 0),
  );
  const main = list.get(0);
  main.setName('main');
  const worker = main.initWorker();
  const code = [...front, ...spec.bundle.modules];
  writeModules(worker.initModules(code.length), code);
  worker.setCompatibilityDate(spec.compatibilityDate);
  const flags = worker.initCompatibilityFlags(spec.compatibilityFlags.length);
  for (const [index, flag] of spec.compatibilityFlags.entries()) flags.set(index, flag);
  const opensSockets = usesSockets(spec.bundle.modules);
  const state = { away, isClustered };
  writeBindings(spec, bindings, opensSockets, state, (length) => worker.initBindings(length));

  writeSystem(list.get(1), ownedBindings(spec.bindings), state);
  // Requests name the whole URL wherever both ends are ours (style `proxy`): workerd neither takes it apart nor copies it.
  // It defines a service `internet` by itself where there is none, and reads all certificates of the system for it: ours
  // takes its name, which is also every worker's default for fetch() and connect().
  writeExternal(list.get(2), 'internet', `unix:${paths.services}/egress.sock`).setStyle(HttpOptions_Style.PROXY);
  for (const [index, { binding, service }] of services.entries()) {
    const address = `unix:${paths.services}/${service}.sock`;
    if (binding.workerd.tcp) {
      writeRawExternal(list.get(3 + index), service, address);
      continue;
    }
    const http = writeExternal(list.get(3 + index), service, address);
    if (binding.workerd.wholeUrls) http.setStyle(HttpOptions_Style.PROXY);
    if (binding.workerd.saysWhoCalls) writeCaller(http, spec.ownCaller);
    if (binding.workerd.rpcHost !== undefined) http.setCapnpConnectHost(binding.workerd.rpcHost);
  }

  if (assets) {
    const service = list.get(3 + services.length);
    service.setName(ASSETS_SERVICE);
    const files = service.initAssets();
    files.setPath(`${paths.services}/${assets.name}`);
    files.setConfig(assets.config);
    files.initUserWorker().setName('main');
  }

  let next = 3 + services.length + (assets ? 1 : 0);
  if (objects && away) writeAway(objects, () => list.get(next++));
  else if (objects) writeObjects(objects, worker, paths.objects, paths.member, () => list.get(next++));

  if (consumers.length > 0) {
    const targets = writeOwn(list.get(next++), TAIL_SERVICE, TAIL_WORKER).initBindings(consumers.length);
    for (const [index, { service }] of consumers.entries()) {
      targets.get(index).setName(service);
      targets.get(index).initService().setName(service);
    }
    worker.initTails(1).get(0).setName(TAIL_SERVICE);
  }

  if (paths.member) writeMember(config, paths.member, list.get(next++));

  if (caches) {
    const service = writeExternal(list.get(list.getLength() - 1), CACHE, `unix:${paths.services}/${CACHE}.sock`);
    service.setStyle(HttpOptions_Style.PROXY);
    worker.initCacheApiOutbound().setName(CACHE);
  }

  const wrappers = [...new Set(bindings.flatMap(({ binding }) => binding.workerd.module ?? []))];
  if (opensSockets) wrappers.push(secureSockets);
  if (wrappers.length > 0) {
    const modules = config.initExtensions(1).get(0).initModules(wrappers.length);
    for (const [index, { name, source }] of wrappers.entries()) {
      const module = modules.get(index);
      module.setName(name);
      // The tenant's code cannot import it.
      module.setInternal(true);
      module.setEsModule(source());
    }
  }

  const entries = [
    ...entrySockets(spec),
    ...(front.length > 0 ? [{ name: PROBE_SOCKET, entrypoint: PROBE_ENTRYPOINT }] : []),
  ];
  const sockets = config.initSockets(2 + entries.length + (paths.member ? 1 : 0));
  const http = writeSocket(sockets.get(0), 'http', `unix:${paths.listen}/http.sock`, assets ? ASSETS_SERVICE : 'main');
  http.setStyle(HttpOptions_Style.PROXY);
  http.setCfBlobHeader(CF_HEADER);
  writeSocket(sockets.get(1), 'system', `unix:${paths.listen}/system.sock`, 'system');
  for (const [index, { name, entrypoint }] of entries.entries()) {
    const socket = sockets.get(2 + index);
    const options = writeSocket(socket, name, `unix:${paths.listen}/${name}.sock`, 'main');
    options.setStyle(HttpOptions_Style.PROXY);
    options.setCapnpConnectHost(RPC_HOST);
    if (entrypoint !== undefined) socket.getService().setEntrypoint(entrypoint);
  }

  if (paths.member) {
    const socket = sockets.get(2 + entries.length);
    socket.setName('peers');
    socket.setAddress(`unix:${paths.listen}/${PEERS_SOCKET}`);
    socket.initTcp();
    socket.initService().setName(PEERS_SERVICE);
  }

  const v8Flags = memoryFlags(heapMb);
  const flagList = config.initV8Flags(v8Flags.length);
  for (const [index, flag] of v8Flags.entries()) flagList.set(index, flag);
  config.initLogging().setStructuredLogging(true);
  return new Uint8Array(message.toArrayBuffer());
}

/** A socket for each entrypoint, for other deployments' calls: what one of them is given leads to no other. */
export function entrySockets({ bundle }: InstanceSpec): { name: string; entrypoint: string | undefined }[] {
  return [undefined, ...(bundle.entrypoints ?? [])].map((entrypoint, index) => ({ name: `e${index}`, entrypoint }));
}

/**
 * Heap from which V8 begins to collect in earnest, MB. What a request leaves behind is mostly native memory that V8
 * does not count: with its own, larger start it collects so late that an instance swells to hundreds of MB (MEMORY.md).
 */
const INITIAL_HEAP_MB = 8;

/** Flags for V8; never a tenant's choice. */
export function memoryFlags(heapMb: number): string[] {
  return [`--max-heap-size=${heapMb}`, `--initial-heap-size=${Math.min(INITIAL_HEAP_MB, heapMb)}`];
}

function writeModules(target: List<Worker_Module>, modules: CodeModule[]): void {
  for (const [index, source] of modules.entries()) {
    const module = target.get(index);
    module.setName(source.name);
    switch (source.type) {
      case 'esModule':
        module.setEsModule(utf8(source.body));
        break;
      case 'text':
        module.setText(utf8(source.body));
        break;
      case 'json':
        module.setJson(utf8(source.body));
        break;
      case 'data':
        module.initData(source.body.byteLength).copyBuffer(source.body);
        break;
      case 'wasm':
        module.initWasm(source.body.byteLength).copyBuffer(source.body);
    }
  }
}

/** Whether what has state is a cluster's, and whether that cannot be reached. */
interface ObjectsState {
  away: boolean;
  isClustered: boolean;
}

function writeBindings(
  { secrets, vars, assets, tenant, revision, deployedAt = 0 }: InstanceSpec,
  bindings: Bound[],
  opensSockets: boolean,
  { away, isClustered }: ObjectsState,
  init: (length: number) => List<Worker_Binding>,
): void {
  const version = { id: versionId(tenant, revision), at: deployedAt };
  const hidden = connectionSecrets(bindings);
  const shown = Object.entries(secrets).filter(([name]) => !hidden.has(name));
  const writers: ((binding: Worker_Binding) => void)[] = shown.map(([name, value]) => (binding) => {
    binding.setName(name);
    binding.setText(value);
  });
  for (const [name, value] of Object.entries(vars)) {
    writers.push((binding) => {
      binding.setName(name);
      if (typeof value === 'string') binding.setText(value);
      else binding.setJson(JSON.stringify(value));
    });
  }
  const { binding: filesName } = assets ?? {};
  if (filesName !== undefined) {
    writers.push((target) => {
      target.setName(filesName);
      const service = target.initService();
      service.setName(ASSETS_SERVICE);
      service.setEntrypoint(FILES_ALONE);
    });
  }
  for (const { binding, ...bound } of bindings) {
    if (binding.outsideEnv) continue;
    writers.push((target) => {
      target.setName(bound.name);
      const secret = binding.connectionSecret?.(bound.name);
      const connectionString = secret === undefined ? undefined : secrets[secret];
      binding.workerd.write(target, { ...bound, connectionString, isClustered, version });
      if (away && binding === durableObjects) pointAway(target);
    });
  }
  if (opensSockets) writers.push(writeSecureSockets);
  const list = init(writers.length);
  for (const [index, write] of writers.entries()) write(list.get(index));
}

/** A UUID (RFC 9562, version 8) of what runs: another for each change. */
function versionId(tenant: string, revision: string): string {
  const hex = createHash('sha256').update(`${tenant} ${revision}`).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-a${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/** A worker of the host's own. */
function writeOwn(service: Service, name: string, source: string): Worker {
  service.setName(name);
  const worker = service.initWorker();
  const module = worker.initModules(1).get(0);
  module.setName(`${name}.js`);
  module.setEsModule(source);
  worker.setCompatibilityDate(SYSTEM_COMPATIBILITY_DATE);
  return worker;
}

function writeSystem(service: Service, data: Bound[], { away, isClustered }: ObjectsState): void {
  const worker = writeOwn(service, 'system', SYSTEM_WORKER);
  const writers = data.flatMap(({ binding, ...bound }) => {
    const { key, workerd } = binding;
    const written = { ...bound, isClustered, version: { id: '', at: 0 } };
    const { writeControl } = workerd;
    return [
      (target: Worker_Binding) => {
        target.setName(dataBinding(key, bound.name));
        workerd.write(target, written);
        if (away && binding === durableObjects) pointAway(target);
      },
      ...(writeControl
        ? [
            (target: Worker_Binding) => {
              target.setName(controlBinding(key, bound.name));
              writeControl(target, written);
            },
          ]
        : []),
    ];
  });
  const list = worker.initBindings(1 + writers.length);
  const main = list.get(0);
  main.setName('MAIN');
  main.initService().setName('main');
  for (const [index, write] of writers.entries()) write(list.get(1 + index));
}

function writeExternal(service: Service, name: string, address: string): HttpOptions {
  service.setName(name);
  const external = service.initExternal();
  external.setAddress(address);
  return external.initHttp();
}

/** What the handler says of itself by these names is replaced. */
function writeCaller(http: HttpOptions, caller = ''): void {
  http.setForwardedProtoHeader('x-forwarded-proto');
  const header = http.initInjectRequestHeaders(1).get(0);
  header.setName(OWN_CALLER_HEADER);
  header.setValue(caller);
}

function writeRawExternal(service: Service, name: string, address: string): void {
  service.setName(name);
  const external = service.initExternal();
  external.setAddress(address);
  external.initTcp();
}

function writeSocket(socket: Socket, name: string, address: string, service: string): HttpOptions {
  socket.setName(name);
  socket.setAddress(address);
  socket.initService().setName(service);
  return socket.initHttp();
}

function utf8(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}
