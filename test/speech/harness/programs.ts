/** Starts the real programs that speech tests need: the engine process, and the tenant in workerd behind a small proxy. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest, type Server } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { SettingsInput } from '../../../builtin-tenants/speech/engine/settings.ts';
import { bundleProject } from '../../../host/runtime/bundle-project.ts';

const workerdPath = (createRequire(import.meta.url)('workerd') as { default: string }).default;
const ENGINE = fileURLToPath(new URL('../../../builtin-tenants/speech/engine/main.ts', import.meta.url));
const TENANT = fileURLToPath(new URL('../../../builtin-tenants/speech/src/index.ts', import.meta.url));

export interface RunningEngine {
  socket: string;
  pid: number;
  stop(): Promise<void>;
}

/** @param extra settings beside socket and spool */
export async function startEngine(
  extra: Omit<SettingsInput, 'socket' | 'spool'> = {},
  environment: NodeJS.ProcessEnv = process.env,
): Promise<RunningEngine> {
  const folder = await mkdtemp(join(tmpdir(), 'speech-'));
  const socket = join(folder, 'speech-engine.sock');
  const child = spawn(process.execPath, [ENGINE], { stdio: ['pipe', 'pipe', 'inherit'], env: environment });
  child.stdin.write(`${JSON.stringify({ socket, spool: join(folder, 'spool'), ...extra })}\n`);
  const lines = createInterface({ input: child.stdout });
  const ended = once(child, 'exit').then(() => {
    throw new Error('the engine ended before it listened');
  });
  await Promise.race([once(lines, 'line'), ended]);
  ended.catch(() => {});
  return {
    socket,
    pid: child.pid ?? 0,
    async stop() {
      child.stdin.end();
      if (child.exitCode === null) await once(child, 'exit');
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export interface RunningTenant {
  url: string;
  stop(): Promise<void>;
}

/** @param engine undefined: nothing answers at the engine's name */
export async function startTenant(
  engine: { socket: string } | undefined,
  bindings: Record<string, string> = {},
): Promise<RunningTenant> {
  const proxy = await startProxy(engine?.socket);
  const { modules, main } = await bundleProject(TENANT);
  const { port } = proxy.address() as AddressInfo;
  const worker = await startWorker(String(modules[main]), `127.0.0.1:${port}`, bindings);
  return {
    url: worker.url,
    async stop() {
      await worker.stop();
      proxy.closeAllConnections();
      proxy.close();
    },
  };
}

/** @param egress `host:port` of an HTTP proxy through which it fetches */
export async function startWorker(
  code: string,
  egress: string,
  bindings: Record<string, string> = {},
): Promise<RunningTenant> {
  const folder = await mkdtemp(join(tmpdir(), 'tenant-'));
  await writeFile(join(folder, 'index.js'), code);
  const texts = Object.entries(bindings).map(([name, text]) => `(name = "${name}", text = ${JSON.stringify(text)})`);
  await writeFile(
    join(folder, 'config.capnp'),
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main),
    (name = "egress", external = (address = "${egress}", http = (style = proxy)))
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")]
);
const main :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed "index.js")],
  compatibilityDate = "2026-11-01",
  globalOutbound = "egress",
  bindings = [${texts.join(', ')}]
);
`,
  );
  const child = spawn(workerdPath, ['serve', '--control-fd=3', 'config.capnp'], {
    cwd: folder,
    stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
  });
  const port = await listeningPort(child);
  return {
    url: `http://127.0.0.1:${port}`,
    async stop() {
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function listeningPort(child: ChildProcess): Promise<number> {
  const control = child.stdio[3];
  if (!control || !('read' in control)) throw new Error('workerd has no control channel');
  for await (const line of createInterface({ input: control })) {
    const message = JSON.parse(line) as { event: string; port?: number };
    if (message.event === 'listen' && message.port !== undefined) return message.port;
  }
  throw new Error('workerd ended before it listened');
}

/** What egress is to the tenant: an HTTP proxy that maps the engine's name to its socket. Everything else is loopback. */
async function startProxy(engineSocket: string | undefined): Promise<Server> {
  const server = createServer({ requireHostHeader: false }, (incoming, answer) => {
    const target = new URL(incoming.url ?? '/');
    const engine = target.hostname === 'speech-engine.internal';
    if (engine && engineSocket === undefined) {
      answer.writeHead(502, { 'content-type': 'application/problem+json' }).end('{}');
      return;
    }
    const forwarded = httpRequest(
      {
        ...(engine ? { socketPath: engineSocket } : { host: target.hostname, port: target.port || 80 }),
        method: incoming.method,
        path: `${target.pathname}${target.search}`,
        headers: { ...incoming.headers, host: target.host },
        agent: false,
      },
      (response) => {
        answer.writeHead(response.statusCode ?? 502, response.statusMessage, response.headers);
        response.pipe(answer);
        response.once('aborted', () => answer.destroy());
        response.once('end', () => incoming.unpipe(forwarded).resume());
      },
    );
    forwarded.once('error', (error) => {
      if (answer.headersSent || answer.destroyed) return;
      console.error('the proxy of the tests:', error);
      answer.writeHead(502).end();
    });
    answer.once('close', () => forwarded.destroy());
    incoming.once('aborted', () => forwarded.destroy());
    incoming.pipe(forwarded);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}
