/**
 * The workerd configuration of one instance, as the bytes of a Cap'n Proto message.
 * Tenants' strings are only ever values in it: there is no text format that they could break out of.
 */
import { readFileSync } from 'node:fs';
import { type List, Message } from 'capnp-ts';
import type { CodeModule, InstanceSpec } from '../shared/contracts.ts';
import {
  Config,
  type HttpOptions,
  HttpOptions_Style,
  type Service,
  type Socket,
  type Worker_Binding,
  type Worker_Module,
} from './capnp/generated/workerd.cjs';
import { SYSTEM_COMPATIBILITY_DATE, SYSTEM_WORKER } from './system-worker.ts';

/** Header with the JSON of `request.cf`; the edge overwrites it on every request. */
export const CF_HEADER = 'x-turnpike-cf';

/** `env.BUCKET`: workerd's binding with a quicker `get`. */
const BUCKET_MODULE = 'turnpike-internal:bucket';
const BUCKET_BINDING = readFileSync(new URL('../bindings/r2/bucket-binding.js', import.meta.url), 'utf8');

/** Where things are as workerd sees them. */
export interface InstancePaths {
  /** Folder in which workerd creates `http.sock` and `system.sock`. */
  listen: string;
  /** Folder of the sockets that the instance may use: egress.sock, and kv.sock, r2.sock, sql.sock, payments.sock. */
  services: string;
}

/**
 * @param heapMb limit of the JS heap, MB; workerd exits with code 1 beyond it
 * @returns a message for `workerd serve --binary`. It holds the secrets in clear.
 */
export function encodeConfig(
  spec: InstanceSpec,
  paths: InstancePaths,
  heapMb: number,
  v8Flags: string[] = memoryFlags(heapMb),
): Uint8Array {
  const { bindings } = spec;
  const external = offered(bindings);
  const message = new Message();
  const config = message.initRoot(Config);

  const services = config.initServices(3 + external.length);
  const main = services.get(0);
  main.setName('main');
  const worker = main.initWorker();
  writeModules(worker.initModules(spec.bundle.modules.length), spec.bundle.modules);
  worker.setCompatibilityDate(spec.compatibilityDate);
  const flags = worker.initCompatibilityFlags(spec.compatibilityFlags.length);
  for (const [index, flag] of spec.compatibilityFlags.entries()) flags.set(index, flag);
  writeBindings(spec, (length) => worker.initBindings(length));

  writeSystem(services.get(1));
  // Requests name the whole URL wherever both ends are ours (style `proxy`): workerd neither takes it apart nor copies it.
  // It defines a service `internet` by itself where there is none, and reads all certificates of the system for it: ours
  // takes its name, which is also every worker's default for fetch() and connect().
  writeExternal(services.get(2), 'internet', `unix:${paths.services}/egress.sock`).setStyle(HttpOptions_Style.PROXY);
  for (const [index, name] of external.entries()) {
    const http = writeExternal(services.get(3 + index), name, `unix:${paths.services}/${name}.sock`);
    if (name !== 'payments') http.setStyle(HttpOptions_Style.PROXY);
  }

  if (bindings.r2) {
    const module = config.initExtensions(1).get(0).initModules(1).get(0);
    module.setName(BUCKET_MODULE);
    // The tenant's code cannot import it.
    module.setInternal(true);
    module.setEsModule(BUCKET_BINDING);
  }

  const sockets = config.initSockets(2);
  const http = writeSocket(sockets.get(0), 'http', `unix:${paths.listen}/http.sock`, 'main');
  http.setStyle(HttpOptions_Style.PROXY);
  http.setCfBlobHeader(CF_HEADER);
  writeSocket(sockets.get(1), 'system', `unix:${paths.listen}/system.sock`, 'system');

  const flagList = config.initV8Flags(v8Flags.length);
  for (const [index, flag] of v8Flags.entries()) flagList.set(index, flag);
  config.initLogging().setStructuredLogging(true);
  return new Uint8Array(message.toArrayBuffer());
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

/** The services beside egress that these bindings need. A socket that is not named here is not given. */
export function offered(bindings: InstanceSpec['bindings']): ('kv' | 'r2' | 'sql' | 'payments')[] {
  return [
    ...(bindings.kv ? (['kv'] as const) : []),
    ...(bindings.r2 ? (['r2'] as const) : []),
    ...(bindings.d1 ? (['sql'] as const) : []),
    ...(bindings.payments ? (['payments'] as const) : []),
  ];
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

function writeBindings(spec: InstanceSpec, init: (length: number) => List<Worker_Binding>): void {
  const writers: ((binding: Worker_Binding) => void)[] = Object.entries(spec.secrets).map(
    ([name, value]) =>
      (binding) => {
        binding.setName(name);
        binding.setText(value);
      },
  );
  if (spec.bindings.kv) {
    writers.push((binding) => {
      binding.setName('STORE');
      binding.initKvNamespace().setName('kv');
    });
  }
  if (spec.bindings.r2) {
    writers.push((binding) => {
      binding.setName('BUCKET');
      const wrapped = binding.initWrapped();
      wrapped.setModuleName(BUCKET_MODULE);
      const inner = wrapped.initInnerBindings(2);
      const [bucket, store] = [inner.get(0), inner.get(1)];
      bucket.setName('bucket');
      bucket.initR2Bucket().setName('r2');
      store.setName('store');
      store.initService().setName('r2');
    });
  }
  if (spec.bindings.d1) {
    writers.push((binding) => {
      binding.setName('DB');
      const wrapped = binding.initWrapped();
      wrapped.setModuleName('cloudflare-internal:d1-api');
      const inner = wrapped.initInnerBindings(1).get(0);
      inner.setName('fetcher');
      inner.initService().setName('sql');
    });
  }
  if (spec.bindings.payments) {
    writers.push((binding) => {
      binding.setName('PAYMENTS');
      binding.initService().setName('payments');
    });
  }
  const list = init(writers.length);
  for (const [index, write] of writers.entries()) write(list.get(index));
}

function writeSystem(service: Service): void {
  service.setName('system');
  const worker = service.initWorker();
  const module = worker.initModules(1).get(0);
  module.setName('system.js');
  module.setEsModule(SYSTEM_WORKER);
  worker.setCompatibilityDate(SYSTEM_COMPATIBILITY_DATE);
  const binding = worker.initBindings(1).get(0);
  binding.setName('MAIN');
  binding.initService().setName('main');
}

function writeExternal(service: Service, name: string, address: string): HttpOptions {
  service.setName(name);
  const external = service.initExternal();
  external.setAddress(address);
  return external.initHttp();
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
