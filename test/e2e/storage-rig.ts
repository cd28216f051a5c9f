/**
 * Storage as it really runs, for tests: the storage process, and a workerd whose handler has STORE and BUCKET on the
 * sockets of one tenant.
 */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type Agent, request } from 'node:http';
import { createRequire } from 'node:module';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { Channel } from '../../host/shared/channel.ts';
import type { StorageInit, StorageMethods, StorageQuotas } from '../../host/shared/contracts.ts';

const FIXTURES = fileURLToPath(new URL('../fixtures/bindings/', import.meta.url));
const BUCKET_BINDING = fileURLToPath(new URL('../../host/bindings/r2/bucket-binding.js', import.meta.url));
const STORAGE = fileURLToPath(new URL('../../host/bindings/store-process/main.ts', import.meta.url));
/** The binary itself: the package's `bin` is a script that starts it as a child. */
const WORKERD = (createRequire(import.meta.url)('workerd') as { default: string }).default;

export const TENANT = 't00000000000000000001';

export const QUOTAS = { kvBytes: 2 ** 30, objectBytes: 10 * 2 ** 30, cacheBytes: 2 ** 28, requestsInFlight: 256 };

export interface RigOptions {
  objects?: StorageInit['objects'];
  /** The handler then writes by this rig's storage process, and reads by another one. */
  cluster?: StorageInit['cluster'];
  quotas?: Partial<typeof QUOTAS>;
  compatibilityDate?: string;
}

export class StorageRig {
  readonly folder = mkdtempSync(join(tmpdir(), 'storage-rig-'));
  readonly root = join(this.folder, 'data');
  readonly sockets = join(this.folder, 'run');
  storage!: ChildProcess;
  channel!: Channel<StorageMethods>;
  workerd: ChildProcess | undefined;
  /** Origin of the handler. */
  origin = '';
  readonly #options: RigOptions;
  #reader: StorageRig | undefined;
  #split: { close(): void }[] = [];

  constructor(options: RigOptions = {}) {
    this.#options = options;
    mkdirSync(this.sockets);
  }

  static async start(options: RigOptions = {}): Promise<StorageRig> {
    const rig = new StorageRig(options);
    await rig.startStorage();
    if (options.cluster) await rig.#splitStorage();
    await rig.startWorkerd();
    return rig;
  }

  async #splitStorage(): Promise<void> {
    this.#reader = new StorageRig(this.#options);
    await this.#reader.startStorage();
    for (const name of ['kv', 'r2']) {
      const reads = (method: string) => method === 'GET' || method === 'POST';
      const socket = (method: string) =>
        join((reads(method) && this.#reader ? this.#reader : this).sockets, `${name}.sock`);
      this.#split.push(await splitCalls(join(this.folder, `${name}.sock`), socket));
    }
  }

  get quotas(): StorageQuotas {
    return { ...QUOTAS, ...this.#options.quotas };
  }

  /** Starts the storage process and opens the tenant; again after a kill. */
  async startStorage(): Promise<void> {
    this.storage = fork(STORAGE, { serialization: 'advanced', execArgv: [] });
    this.channel = new Channel<StorageMethods>(this.storage, {});
    await this.channel.call('init', {
      root: this.root,
      objects: this.#options.objects ?? { kind: 'disk' },
      cluster: this.#options.cluster,
      clockOffsetMs: 0,
    });
    await this.open(TENANT, this.sockets);
  }

  open(tenant: string, folder: string, quotas = this.quotas): Promise<void> {
    return this.channel.call('open', {
      tenant,
      folder,
      stores: [
        { name: 'kv', socket: 'kv.sock' },
        { name: 'r2', socket: 'r2.sock' },
        { name: 'cache', socket: 'cache.sock' },
      ],
      quotas,
    });
  }

  async usage(tenant: string) {
    const usage = await this.channel.call('usage', { tenant });
    return usage as Record<'kvBytes' | 'kvKeys' | 'objectBytes' | 'objects' | 'cacheBytes', number>;
  }

  async killStorage(): Promise<void> {
    const exited = once(this.storage, 'exit');
    this.storage.kill('SIGKILL');
    await exited;
  }

  async startWorkerd(): Promise<void> {
    for (const file of ['worker.js', 'expect.js', 'kv-cases.js', 'r2-cases.js'])
      copyFileSync(join(FIXTURES, file), join(this.folder, file));
    copyFileSync(BUCKET_BINDING, join(this.folder, 'bucket-binding.js'));
    writeFileSync(join(this.folder, 'config.capnp'), this.#config());
    const workerd = spawn(WORKERD, ['serve', 'config.capnp', '--control-fd=3'], {
      cwd: this.folder,
      stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
    });
    this.workerd = workerd;
    const control = workerd.stdio[3] as NodeJS.ReadableStream;
    let text = '';
    for await (const chunk of control) {
      text += chunk;
      const port = /"socket":"http","port":(\d+)/.exec(text)?.[1];
      if (!port) continue;
      this.origin = `http://127.0.0.1:${port}`;
      return;
    }
    throw new Error('workerd did not start');
  }

  fetch(path: string, init?: RequestInit): Promise<Response> {
    return fetch(this.origin + path, init);
  }

  async stop(): Promise<void> {
    if (this.workerd?.exitCode === null) {
      const exited = once(this.workerd, 'exit');
      this.workerd.kill('SIGKILL');
      await exited;
    }
    if (this.storage.exitCode === null && this.storage.signalCode === null) {
      const exited = once(this.storage, 'exit');
      this.storage.disconnect();
      await exited;
    }
    for (const server of this.#split) server.close();
    await this.#reader?.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }

  #config(): string {
    const date = this.#options.compatibilityDate ?? '2026-01-01';
    const external = (name: string) =>
      `(name = "${name}", external = (address = "unix:${join(this.#reader ? this.folder : this.sockets, `${name}.sock`)}", http = ()))`;
    const module = (name: string) => `(name = "${name}", esModule = embed "${name}")`;
    return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "main", worker = .main), ${external('kv')}, ${external('r2')} ],
  sockets = [ (name = "http", address = "127.0.0.1:0", http = (), service = "main") ],
  extensions = [ (modules = [ (name = "bucket", internal = true, esModule = embed "bucket-binding.js") ]) ]
);
const main :Workerd.Worker = (
  modules = [ ${['worker.js', 'expect.js', 'kv-cases.js', 'r2-cases.js'].map(module).join(', ')} ],
  compatibilityDate = "${date}",
  bindings = [
    (name = "STORE", kvNamespace = "kv"),
    (name = "BUCKET", wrapped = (moduleName = "bucket", innerBindings = [
      (name = "bucket", r2Bucket = "r2"), (name = "store", service = "r2")
    ])),
    (name = "WORKERDS", r2Bucket = "r2")
  ]
);
`;
  }
}

/**
 * Passes calls on byte by byte. A connection of workerd has one call at a time, so a chunk that begins as a call does,
 * after the answer to the last one has begun, is the next one.
 * @param socketOf where calls of a method go
 */
async function splitCalls(path: string, socketOf: (method: string) => string): Promise<Server> {
  const server = createServer((client) => {
    const targets = new Map<string, Socket>();
    let target: Socket | undefined;
    let isAnswered = true;
    const open = (socket: string): Socket => {
      const opened = connect(socket);
      opened.on('data', (chunk) => {
        isAnswered = true;
        client.write(chunk);
      });
      opened.on('error', () => client.destroy());
      opened.on('close', () => client.destroy());
      targets.set(socket, opened);
      return opened;
    };
    client.on('data', (chunk) => {
      const method = isAnswered ? /^([A-Z]+) \//.exec(chunk.toString('latin1', 0, 16))?.[1] : undefined;
      if (method !== undefined) {
        const socket = socketOf(method);
        target = targets.get(socket) ?? open(socket);
        isAnswered = false;
      }
      target?.write(chunk);
    });
    client.on('error', () => client.destroy());
    client.on('close', () => {
      for (const opened of targets.values()) opened.destroy();
    });
  });
  await once(server.listen({ path, backlog: 4096 }), 'listening');
  return server;
}

/** Peak of resident memory, bytes. */
export function peakMemory(pid: number | undefined): number {
  const kilobytes = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Number(kilobytes) * 1024;
}

/** Names of the cases in a suite of test/fixtures/bindings. */
export async function caseNames(suite: 'kv' | 'r2'): Promise<string[]> {
  const cases = await import(pathToFileURL(join(FIXTURES, `${suite}-cases.js`)).href);
  return Object.keys(cases[`${suite}Cases`]);
}

export interface SocketCall {
  method?: string;
  headers?: Record<string, string>;
  /** A buffer, because Node sends headers as UTF-8 beside a body that is a string. */
  body?: Buffer;
  agent?: Agent;
}

export interface SocketAnswer {
  status: number;
  reason: string;
  headers: NodeJS.Dict<string | string[]>;
  body: Buffer;
}

/** A plain HTTP call on a unix socket. */
export function callSocket(socketPath: string, path: string, call: SocketCall = {}): Promise<SocketAnswer> {
  return new Promise((resolve, reject) => {
    const sent = request(
      { socketPath, path, method: call.method ?? 'GET', headers: call.headers ?? {}, agent: call.agent },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () =>
          resolve({
            status: response.statusCode ?? 0,
            reason: response.statusMessage ?? '',
            headers: response.headers,
            body: Buffer.concat(chunks),
          }),
        );
      },
    );
    sent.on('error', reject);
    sent.end(call.body);
  });
}

export interface R2Answer {
  status: number;
  error: { v4code: number; message: string } | undefined;
  /** The reply's JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into it as they like
  json: any;
  value: Buffer;
}

/** A call of R2 without workerd: JSON in a header for what reads, in front of the body for what writes. */
export async function callR2(
  socketPath: string,
  request: Record<string, unknown>,
  value?: Buffer,
  agent?: Agent,
): Promise<R2Answer> {
  const json = JSON.stringify({ version: 1, ...request });
  const reads = ['head', 'get', 'list'].includes(String(request.method));
  const answer = await callSocket(socketPath, '/', {
    method: reads ? 'GET' : 'PUT',
    headers: reads
      ? { 'CF-R2-Request': Buffer.from(json).toString('latin1') }
      : { 'CF-R2-Metadata-Size': String(Buffer.byteLength(json)) },
    ...(agent ? { agent } : {}),
    ...(reads ? {} : { body: Buffer.concat([Buffer.from(json), value ?? Buffer.alloc(0)]) }),
  });
  const size = Number(answer.headers['cf-r2-metadata-size'] ?? 0);
  const error = answer.headers['cf-r2-error'];
  return {
    status: answer.status,
    error: error === undefined ? undefined : JSON.parse(String(error)),
    json: size > 0 ? JSON.parse(answer.body.subarray(0, size).toString()) : undefined,
    value: answer.body.subarray(size),
  };
}
