/**
 * A real edge process before a real workerd, with a small control of the test's own: it starts workerd on `acquire`,
 * and answers on its socket with what it was asked.
 */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import {
  createServer as createHttpServer,
  type Server as HttpServer,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http';
import { createRequire } from 'node:module';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { Channel } from '../../../host/shared/channel.ts';
import type { EdgeInit, EdgeMethods, EdgeTraffic, Route } from '../../../host/shared/contracts.ts';

/** The package's main module is CommonJS without types; its default is the path of the binary. */
const workerdBinary = (createRequire(import.meta.url)('workerd') as { default: string }).default;
const EDGE_MAIN = fileURLToPath(new URL('../../../host/edge/main.ts', import.meta.url));
const OPENSSL_CONFIG = fileURLToPath(new URL('../../../host/edge/tls/openssl.cnf', import.meta.url));

export interface Workerd {
  socket: string;
  process: ChildProcess;
  /** Ends it and waits until it is gone. */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

/** Starts a plain workerd that serves `module` on a unix socket; resolves when it listens. */
export async function startWorkerd(folder: string, name: string, module: string): Promise<Workerd> {
  const socket = join(folder, `${name}.sock`);
  const file = join(folder, `${name}.capnp`);
  await rm(socket, { force: true });
  await writeFile(join(folder, `${name}.js`), module);
  await writeFile(
    file,
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = (modules = [(name = "main", esModule = embed "${name}.js")], compatibilityDate = "2026-11-01"))],
  sockets = [(name = "http", address = "unix:${socket}", service = "main",
    http = (style = proxy, cfBlobHeader = "x-turnpike-cf"))]
);`,
  );
  const child = spawn(workerdBinary, ['serve', '--control-fd=3', file], {
    stdio: ['ignore', 'ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr?.on('data', (text) => {
    stderr += text;
  });
  await new Promise<void>((resolve, reject) => {
    child.stdio[3]?.on('data', (line) => String(line).includes('"listen"') && resolve());
    child.on('exit', () => reject(new Error(`workerd ended: ${stderr}`)));
  });
  return {
    socket,
    process: child,
    async stop(signal = 'SIGKILL') {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill(signal);
      await gone;
    },
  };
}

export function route(slug: string, changes: Partial<Route> = {}): Route {
  return {
    slug,
    state: 'active',
    domains: [],
    paidRoutes: [],
    idleTimeoutMs: 30_000,
    maxBodyBytes: 104_857_600,
    ...changes,
  };
}

export interface Harness {
  folder: string;
  port: number;
  origin: string;
  edge: Channel<EdgeMethods>;
  process: ChildProcess;
  /** What control was asked to start. */
  acquired: string[];
  traffic: EdgeTraffic[];
  /** Decides what `acquire` answers. */
  onAcquire: (slug: string) => Promise<{ socket: string; generation: number }> | { socket: string; generation: number };
  /** Control's HTTP server; by default it answers with what it got, as JSON. */
  onControl: (request: IncomingMessage, response: ServerResponse) => void;
  control: HttpServer;
  close(): Promise<void>;
}

export async function startHarness(init: Partial<EdgeInit> = {}): Promise<Harness> {
  const folder = await mkdtemp(join(tmpdir(), 'edge-'));
  const controlSocket = join(folder, 'control.sock');
  const harness = { folder, acquired: [], traffic: [], onControl: echo } as unknown as Harness;
  harness.control = createHttpServer((request, response) => harness.onControl(request, response));
  await new Promise<void>((resolve) => harness.control.listen(controlSocket, resolve));
  harness.process = fork(EDGE_MAIN, [], {
    serialization: 'advanced',
    execArgv: [`--openssl-config=${OPENSSL_CONFIG}`],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  harness.edge = new Channel<EdgeMethods>(harness.process, {
    acquire: async ({ slug }: { slug: string }) => {
      harness.acquired.push(slug);
      const acquired = await harness.onAcquire(slug);
      return { ...acquired, first: acquired.generation };
    },
    traffic: (traffic: EdgeTraffic[]) => {
      harness.traffic.push(...traffic);
    },
  });
  await harness.edge.call('init', {
    controlSocket,
    publicUrl: undefined,
    baseDomain: 'localhost',
    trustedProxies: [],
    maxHeaderBytes: 65_536,
    tls: undefined,
    clockOffsetMs: 0,
    ...init,
  });
  const server = await listening();
  harness.port = (server.address() as AddressInfo).port;
  harness.origin = `http://127.0.0.1:${harness.port}`;
  await harness.edge.call('listen', { kind: 'http' }, server);
  server.close();
  harness.close = async () => {
    const gone = new Promise((resolve) => harness.process.once('exit', resolve));
    if (harness.process.connected) harness.process.disconnect();
    if (harness.process.exitCode === null && harness.process.signalCode === null) await gone;
    harness.control.closeAllConnections();
    await new Promise((resolve) => harness.control.close(resolve));
    await rm(folder, { recursive: true, force: true });
  };
  return harness;
}

/** A listening server to hand to the edge. */
export async function listening(): Promise<Server> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

/** Answers with what arrived. */
function echo(request: IncomingMessage, response: ServerResponse): void {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const context = request.headers['x-turnpike-context'];
    response.setHeader('content-type', 'application/json');
    response.end(
      JSON.stringify({
        by: 'control',
        method: request.method,
        url: request.url,
        headers: request.headers,
        context: context ? JSON.parse(Buffer.from(String(context), 'base64url').toString()) : undefined,
        body: Buffer.concat(chunks).toString(),
      }),
    );
  });
}
