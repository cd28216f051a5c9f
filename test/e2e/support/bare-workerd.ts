/**
 * A workerd without the rest of the host, for tests of one part: a worker, text-config bindings, and unix sockets.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';

export interface BareWorkerd {
  /** Path of the socket that speaks HTTP to the worker. */
  socket: string;
  fetch(
    path: string,
    init?: { method?: string; headers?: Record<string, string>; body?: string },
  ): Promise<{
    status: number;
    headers: Record<string, string | string[] | undefined>;
    text: string;
  }>;
  stop(): Promise<void>;
}

const require = createRequire(import.meta.url);

/** The program itself, from the package that workerd installs for this machine. */
export const WORKERD = join(
  dirname(
    require.resolve(
      `@cloudflare/workerd-${process.platform}-${process.arch === 'arm64' ? 'arm64' : '64'}/package.json`,
    ),
  ),
  'bin/workerd',
);

/**
 * @param folder where the config and the socket go
 * @param code an ES module
 * @param services further services in workerd's text config, such as `(name = "egress", external = (...))`
 * @param worker further fields of the worker, such as `globalOutbound = "egress", `
 */
export async function startWorkerd(
  folder: string,
  code: string,
  services: string,
  worker: string,
): Promise<BareWorkerd> {
  const socket = join(folder, 'http.sock');
  const module = join(folder, 'main.js');
  const config = join(folder, 'workerd.capnp');
  await writeFile(module, code);
  await writeFile(
    config,
    `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [(name = "main", worker = .main), ${services}],
  sockets = [(name = "http", address = "unix:${socket}", http = (), service = "main")]
);
const main :Workerd.Worker = (modules = [(name = "main.js", esModule = embed "main.js")],
  compatibilityDate = "2026-11-01", ${worker});
`,
  );
  const child = spawn(WORKERD, ['serve', '--control-fd=3', config], { stdio: ['ignore', 'ignore', 'pipe', 'pipe'] });
  let errors = '';
  child.stderr?.on('data', (chunk) => {
    errors += chunk;
  });
  const listening = once(child.stdio[3] as Readable, 'data');
  const ended = once(child, 'exit').then(() => {
    throw new Error(`workerd did not start: ${errors}`);
  });
  await Promise.race([listening, ended]);
  ended.catch(() => {});
  return {
    socket,
    fetch: (path, init = {}) =>
      new Promise((resolve, reject) => {
        const sent = request(
          { socketPath: socket, path, method: init.method ?? 'GET', headers: { host: 'test', ...init.headers } },
          async (answer) => {
            const chunks: Buffer[] = [];
            try {
              for await (const chunk of answer) chunks.push(chunk);
              const text = Buffer.concat(chunks).toString();
              resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text });
            } catch (error) {
              reject(error);
            }
          },
        );
        sent.once('error', reject);
        sent.end(init.body);
      }),
    async stop() {
      const exit = child.exitCode === null ? once(child, 'exit') : undefined;
      child.kill('SIGKILL');
      await exit;
    },
  };
}
