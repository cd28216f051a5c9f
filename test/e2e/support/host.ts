/** Starts the real host on free ports and an own data folder, and ends it without leaving anything behind. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import http from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import HOST_PROCESS from '../../../scripts/host-process.json' with { type: 'json' };
import { alive, processTree } from '../../bench/processes.ts';
import { freePort } from './ports.ts';
import { onSmallDisk } from './small-disk.ts';
import { until } from './until.ts';

const MAIN = fileURLToPath(new URL('../../../host/main.ts', import.meta.url));

export interface LocalNetworkFile {
  rpcUrl: string;
  chainId: number;
  token: `0x${string}`;
  x402: { network: `eip155:${number}`; token: `0x${string}`; name: string; version: string };
  wallets: { address: `0x${string}`; privateKey: `0x${string}` }[];
}

export interface HostOptions {
  /** Flags such as `{'slugs-term-days': '30'}`. */
  flags?: Record<string, string>;
  env?: Record<string, string>;
  /** An existing data folder; it is then not removed at the end. */
  data?: string;
  /** Built-in tenants; default none, which starts quicker. */
  builtins?: string[];
  /** In a session of its own, as a service is: the kernel then weighs it apart from the test. */
  ownSession?: boolean;
  /** A program that becomes the one that follows, with its arguments: `['unshare', '--user']`. */
  within?: string[];
  /** Size of a disk that the data folder is, as mount takes it; the test has the folder as `TestHost.data`. */
  disk?: string;
}

export interface TestHost {
  url: string;
  port: number;
  adminPort: number;
  data: string;
  pid: number;
  network: LocalNetworkFile;
  /** All that the host wrote to stdout and stderr. */
  output(): string;
  /** The operator's API over its unix socket. */
  operator(method: string, path: string, body?: unknown): Promise<{ status: number; json: unknown; text: string }>;
  /** Moves business time forward. */
  advance(ms: number): Promise<void>;
  /** SIGTERM, and the folder is removed unless it was given. */
  stop(): Promise<void>;
  /** SIGKILL to the supervisor alone. */
  kill(): Promise<void>;
  /** Starts again on the same folder and the same public port. */
  restart(options?: HostOptions): Promise<TestHost>;
}

export async function startHost(options: HostOptions = {}): Promise<TestHost> {
  const data = options.data ?? (await mkdtemp(path.join(tmpdir(), 'tp-')));
  const flags = Object.entries({
    port: String(await freePort()),
    'admin-port': '0',
    data,
    'clock-movable': 'true',
    'builtin-tenants-enabled': JSON.stringify(options.builtins ?? []),
    'log-level': 'info',
    ...options.flags,
  }).flatMap(([name, value]) => [`--${name}`, value]);
  const command: [string, ...string[]] = [
    ...((options.within ?? []) as []),
    process.execPath,
    ...HOST_PROCESS.flags,
    MAIN,
    ...flags,
  ];
  const [program, ...args] = options.disk === undefined ? command : onSmallDisk(data, options.disk, command);
  const child = spawn(program, args, {
    cwd: data,
    env: {
      PATH: process.env.PATH ?? '',
      HOME: process.env.HOME ?? '',
      // As from the launcher: without it, each host on a new folder would compile all its code.
      ...fromLauncher(),
      ...options.env,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: options.ownSession ?? false,
  });
  const chunks: string[] = [];
  child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => chunks.push(chunk.toString()));
  const output = () => chunks.join('');
  // A disk of its own is mounted where the host alone sees it.
  const seen = options.disk === undefined ? data : path.join('/proc', String(child.pid), 'root', data);
  const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  const announced = await until(
    async () => {
      if (child.exitCode !== null || child.signalCode !== null) throw new Error(`the host ended:\n${output()}`);
      const parsed = JSON.parse(await readFile(path.join(seen, 'host.json'), 'utf8').catch(() => '{}'));
      if (parsed.pid !== child.pid) return undefined;
      const health = await fetch(`http://127.0.0.1:${parsed.port}/healthz`).catch(() => undefined);
      return health?.status === 200 ? (parsed as { port: number; adminPort: number; url: string }) : undefined;
    },
    () => `the host is not ready:\n${output()}`,
    180_000,
  ).catch(async (error) => {
    child.kill('SIGKILL');
    throw error;
  });
  const network = JSON.parse(await readFile(path.join(seen, 'local-network.json'), 'utf8').catch(() => '{}'));
  const operator: TestHost['operator'] = (method, pathName, body) =>
    requestSocket(path.join(seen, 'run', 'operator.sock'), method, pathName, body);

  return {
    url: `http://127.0.0.1:${announced.port}`,
    port: announced.port,
    adminPort: announced.adminPort,
    data: seen,
    pid: child.pid ?? 0,
    network,
    output,
    operator,
    async advance(ms) {
      const { status, text } = await operator('POST', '/clock', { advanceMs: ms });
      if (status !== 200) throw new Error(text);
    },
    async stop() {
      const its = child.exitCode === null && child.pid ? processTree([child.pid]) : [];
      await end(child, exited, 'SIGTERM');
      if (options.data) return;
      // A host that had no time left ends before its children, and they may still write.
      await until(
        () => !its.some(alive),
        () => `a child lives on:\n${output()}`,
      );
      await rm(data, { recursive: true, force: true });
    },
    kill: () => end(child, exited, 'SIGKILL'),
    restart: (again = {}) =>
      startHost({
        ...options,
        ...again,
        data,
        flags: { ...options.flags, port: String(announced.port), ...again.flags },
      }),
  };
}

/** What the launcher gives to the host: for its quicker start, and for its memory. */
export function fromLauncher(): Record<string, string> {
  const { NODE_COMPILE_CACHE, PACKED_PACKAGES } = process.env;
  return {
    ...HOST_PROCESS.env,
    ...(NODE_COMPILE_CACHE ? { NODE_COMPILE_CACHE } : {}),
    ...(PACKED_PACKAGES ? { PACKED_PACKAGES } : {}),
  };
}

async function end(child: ChildProcess, exited: Promise<void>, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) child.kill(signal);
  await exited;
}

export function requestSocket(
  socketPath: string,
  method: string,
  pathName: string,
  body?: unknown,
  more: Record<string, string> = {},
) {
  return new Promise<{ status: number; json: unknown; text: string }>((resolve, reject) => {
    const request = http.request(
      {
        ...{ socketPath, method, path: pathName },
        headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...more },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString();
          let json: unknown;
          try {
            json = JSON.parse(text);
          } catch {
            json = undefined;
          }
          resolve({ status: response.statusCode ?? 0, json, text });
        });
      },
    );
    request.on('error', reject);
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}
