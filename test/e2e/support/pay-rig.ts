/**
 * The pay platform on a real workerd with a real SQL process, real payments on the local network and the real way out;
 * behind a front that does what the edge does with paths. Origins are functions of the test. Every part can be killed.
 */
import { type ChildProcess, fork, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { createClient } from '@libsql/client/sqlite3';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import type { Network } from '../../../host/payments/network/index.ts';
import { bundleProject } from '../../../host/runtime/bundle-project.ts';
import { SCHEDULED_PATH, SYSTEM_COMPATIBILITY_DATE, SYSTEM_WORKER } from '../../../host/runtime/system-worker.ts';
import { Channel } from '../../../host/shared/channel.ts';
import type { EgressMethods } from '../../../host/shared/contracts.ts';
import { WORKERD } from './bare-workerd.ts';
import { type Rig as PaymentsRig, startRig } from './payments-rig.ts';

const SQL = fileURLToPath(new URL('../../../host/bindings/d1/main.ts', import.meta.url));
const EGRESS = fileURLToPath(new URL('../../../host/egress/main.ts', import.meta.url));
const ENTRY = fileURLToPath(new URL('../../../builtin-tenants/pay/src/index.ts', import.meta.url));
const TENANT = 'tpay00000000000000000';

export const SERVICE_KEY = 'service-key-of-the-test-000000000000';
export const OPERATOR_KEY = 'operator-key-of-the-test-00000000000';

/** What reached an origin. */
export interface Arrived {
  method: string;
  /** Path with query below `/deals`. */
  path: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

export interface Page {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
}

export type Origin = (arrived: Arrived, reply: ServerResponse) => void | Promise<void>;

export interface PayRig {
  /** Public origin of the host. */
  url: string;
  /** Address of the platform. */
  pay: string;
  /** Origin of its pages. */
  pages: string;
  payments: PaymentsRig;
  network: Network;
  /** Everything that reached `/deals`, in order. */
  arrived: Arrived[];
  origin: Origin;
  /** Where calls come from. */
  clientIp: string;
  /** Calls that the platform has not answered and whose callers still wait, or have gone without its knowing. */
  waiting(): number;
  /** Runs the cron. */
  sweep(): Promise<void>;
  /** Starts the platform's workerd anew, `SIGKILL` first; with business time moved by `offsetMs`. */
  restart(offsetMs?: number): Promise<void>;
  /** A second workerd of the same platform on the same database; its address. */
  second(): Promise<string>;
  killSql(): Promise<void>;
  /** Reads and changes the database beside the platform. */
  sql<Row = Record<string, unknown>>(statement: string, ...values: (string | number | null)[]): Promise<Row[]>;
  /** A page, as a browser gets it: the pages' host name need not resolve. */
  browse(target: string, init?: { method?: string; headers?: Record<string, string>; body?: string }): Promise<Page>;
  output(): string;
  stop(): Promise<void>;
}

export interface PayRigOptions {
  /** Over those of a host on the local network. */
  secrets?: Record<string, string>;
  /** What the platform may reach beside the public network. */
  allow?: string[];
}

export async function startPayRig(network: Network, options: PayRigOptions = {}): Promise<PayRig> {
  const folder = await mkdtemp(path.join(tmpdir(), 'tp-payrig-'));
  const database = path.join(folder, 'sql');
  await mkdir(database);
  const chunks: string[] = [];
  const log = (text: unknown) => chunks.push(String(text));
  const payments = await startRig(network, { payTo: privateKeyToAccount(generatePrivateKey()).address });
  const socket = (name: string) => path.join(folder, `${name}.sock`);
  await payments.payments.bindings.open({
    tenant: TENANT,
    slug: 'pay',
    payTo: payments.deployment.payTo,
    socket: socket('payments'),
  });

  const front = createServer((asked, reply) => serve(rig, workers, asked, reply));
  front.listen(0, '127.0.0.1');
  await once(front, 'listening');
  const { port } = front.address() as AddressInfo;
  const url = `http://localhost:${port}`;

  const egress = fork(EGRESS, { serialization: 'advanced' });
  const way = new Channel<EgressMethods>(egress, { notices() {} });
  await way.call('init', {
    ownHosts: [`localhost:${port}`],
    baseDomain: 'localhost',
    edgeAddress: { host: '127.0.0.1', port },
    connectPorts: undefined,
    clockOffsetMs: 0,
  });
  await way.call('open', {
    tenant: TENANT,
    slug: 'pay',
    socket: socket('egress'),
    allow: options.allow ?? [],
    limits: { inFlight: 500, bytesPerHour: 2 ** 40, timeoutMs: 120_000 },
  });

  let sql: ChildProcess | undefined;
  const startSql = async () => {
    await rm(socket('sql'), { force: true });
    sql = spawn(process.execPath, [SQL], { stdio: ['pipe', 'pipe', 'pipe'] });
    sql.stderr?.on('data', log);
    sql.stdin?.write(
      `${JSON.stringify({ socket: socket('sql'), database: path.join(database, 'db.sqlite'), lifeline: true })}\n`,
    );
    await once(sql.stdout as Readable, 'data');
  };
  await startSql();

  const bundle = await bundleProject(ENTRY);
  const code = path.join(folder, 'index.js');
  await writeFile(code, String(bundle.modules[bundle.main]));
  await writeFile(path.join(folder, 'system.js'), SYSTEM_WORKER);
  const workers: Worker[] = [];
  const startWorker = async (name: string, offsetMs: number): Promise<Worker> => {
    const config = path.join(folder, `${name}.capnp`);
    const secrets = {
      APP_URL: url,
      PAGES_URL: `http://pay.localhost:${port}`,
      PAY_SECRET: 'secret-of-the-test-0000000000000000000',
      PAY_SERVICE_KEY: SERVICE_KEY,
      PAY_OPERATOR_KEY: OPERATOR_KEY,
      WELCOME_BONUS_USD: '5.00',
      PAY_NETWORK: 'local',
      ...options.secrets,
      CLOCK_OFFSET_MS: String(offsetMs),
    };
    const listen = { http: socket(name), system: socket(`${name}-system`) };
    await Promise.all(Object.values(listen).map((file) => rm(file, { force: true })));
    await writeFile(config, workerConfig(socket, listen, secrets));
    const child = spawn(WORKERD, ['serve', '--control-fd=3', config], { stdio: ['ignore', 'pipe', 'pipe', 'pipe'] });
    child.stdout?.on('data', log);
    child.stderr?.on('data', log);
    const control = child.stdio[3] as Readable;
    let events = '';
    await Promise.race([
      (async () => {
        for await (const chunk of control) {
          events += chunk;
          if (events.split('"listen"').length > 2) return;
        }
      })(),
      once(child, 'exit').then(() => Promise.reject(new Error(`workerd ended: ${chunks.join('')}`))),
    ]);
    return { child, ...listen };
  };
  workers.push(await startWorker('pay', 0));

  const rig: PayRig = {
    url,
    pay: `${url}/pay`,
    pages: `http://pay.localhost:${port}`,
    payments,
    network,
    arrived: [],
    clientIp: '127.0.0.1',
    origin: (_arrived, reply) => {
      reply.writeHead(404).end();
    },
    waiting: () => forwarding.size,
    async sweep() {
      const { status, text } = await call(workers[0]?.system ?? '', SCHEDULED_PATH, {
        cron: '* * * * *',
        scheduledTime: Date.now(),
      });
      if (status !== 200 || !text.includes('"ok"'))
        throw new Error(`the sweep failed: ${text}\n${chunks.slice(-5).join('')}`);
    },
    async restart(offsetMs = 0) {
      await kill(workers[0]?.child);
      workers[0] = await startWorker('pay', offsetMs);
    },
    async second() {
      const worker = await startWorker('pay2', 0);
      workers.push(worker);
      return `${url}/pay2`;
    },
    async killSql() {
      await kill(sql);
      await startSql();
    },
    async sql<Row>(statement: string, ...values: (string | number | null)[]) {
      const client = createClient({ url: `file:${path.join(database, 'db.sqlite')}` });
      try {
        await client.execute('PRAGMA busy_timeout = 5000');
        return (await client.execute({ sql: statement, args: values })).rows as Row[];
      } finally {
        client.close();
      }
    },
    browse: (target, init = {}) =>
      new Promise((resolve, reject) => {
        const headers = { ...init.headers, host: `pay.localhost:${port}` };
        const sent = request(
          { host: '127.0.0.1', port, path: target, method: init.method ?? 'GET', headers },
          async (answer) => {
            let text = '';
            for await (const chunk of answer) text += chunk;
            resolve({ status: answer.statusCode ?? 0, headers: answer.headers, text });
          },
        );
        sent.once('error', reject);
        sent.end(init.body);
      }),
    output: () => chunks.join(''),
    async stop() {
      for (const { child } of workers) await kill(child);
      const gone = once(egress, 'exit');
      egress.disconnect();
      await gone;
      sql?.stdin?.end();
      await kill(sql);
      await payments.payments.bindings.close({ tenant: TENANT });
      await payments.close();
      front.closeAllConnections();
      await new Promise((resolve) => front.close(resolve));
      await rm(folder, { recursive: true, force: true });
    },
  };
  // The first request makes the tables.
  await fetch(`${rig.pay}/healthz`);
  return rig;
}

interface Worker {
  child: ChildProcess;
  http: string;
  system: string;
}

/** As the edge: the path without the slug and a prefix header, or a host name of its own. */
function serve(rig: PayRig, workers: Worker[], asked: IncomingMessage, reply: ServerResponse): void {
  const target = asked.url ?? '/';
  const host = asked.headers.host ?? '';
  if (host.startsWith('pay.')) {
    forward(rig.clientIp, workers[0]?.http ?? '', target, undefined, asked, reply);
    return;
  }
  const [, slug = ''] = target.split(/[/?]/, 2);
  const rest = target.slice(slug.length + 1) || '/';
  if (slug === 'pay') {
    forward(rig.clientIp, workers[0]?.http ?? '', rest, '/pay', asked, reply);
    return;
  }
  if (slug === 'pay2') {
    forward(rig.clientIp, workers[1]?.http ?? '', rest, '/pay2', asked, reply);
    return;
  }
  if (slug !== 'deals') {
    reply.writeHead(404).end();
    return;
  }
  const body: Buffer[] = [];
  asked.on('data', (chunk) => body.push(chunk));
  asked.on('end', async () => {
    const headers = Object.fromEntries(
      Object.entries(asked.headers).map(([name, value]) => [
        name,
        Array.isArray(value) ? value.join(', ') : (value ?? ''),
      ]),
    );
    const arrived = {
      method: asked.method ?? '',
      path: rest,
      url: rig.url + target,
      headers,
      body: Buffer.concat(body).toString(),
    };
    rig.arrived.push(arrived);
    try {
      await rig.origin(arrived, reply);
    } catch (error) {
      reply.destroy(error as Error);
    }
  });
}

/** Exchanges with the platform that are going on. */
const forwarding = new Set<object>();

function forward(
  clientIp: string,
  socketPath: string,
  target: string,
  prefix: string | undefined,
  asked: IncomingMessage,
  reply: ServerResponse,
): void {
  const headers = {
    ...asked.headers,
    'cf-connecting-ip': clientIp,
    ...(prefix ? { 'x-forwarded-prefix': prefix } : {}),
  };
  const sent = request({ socketPath, path: target, method: asked.method ?? 'GET', headers }, (answer) => {
    reply.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
    answer.pipe(reply);
    answer.once('error', () => reply.destroy());
  });
  forwarding.add(sent);
  sent.once('close', () => forwarding.delete(sent));
  sent.once('error', () => (reply.headersSent ? reply.destroy() : reply.writeHead(502).end()));
  reply.once('close', () => sent.destroy());
  asked.pipe(sent);
}

function call(socketPath: string, target: string, body: object): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const sent = request({ socketPath, method: 'POST', path: target }, async (answer) => {
      let text = '';
      for await (const chunk of answer) text += chunk;
      resolve({ status: answer.statusCode ?? 0, text });
    });
    sent.once('error', reject);
    sent.end(JSON.stringify(body));
  });
}

async function kill(child: ChildProcess | undefined): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  child.kill('SIGKILL');
  await gone;
}

function workerConfig(
  socket: (name: string) => string,
  listen: { http: string; system: string },
  secrets: Record<string, string>,
): string {
  const external = (name: string, style = '') =>
    `(name = "${name}", external = (address = "unix:${socket(name)}", http = (${style})))`;
  const texts = Object.entries(secrets).map(([name, value]) => `(name = "${name}", text = ${JSON.stringify(value)})`);
  return `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = .main), (name = "system", worker = .system),
    ${external('sql')}, ${external('payments')}, ${external('egress', 'style = proxy')}
  ],
  sockets = [
    (name = "http", address = "unix:${listen.http}", http = (), service = "main"),
    (name = "system", address = "unix:${listen.system}", http = (), service = "system")
  ]
);
const main :Workerd.Worker = (
  modules = [(name = "index.js", esModule = embed "index.js")],
  compatibilityDate = "2026-11-01",
  globalOutbound = "egress",
  bindings = [
    (name = "DB", wrapped = (moduleName = "cloudflare-internal:d1-api", innerBindings = [(name = "fetcher", service = "sql")])),
    (name = "PAYMENTS", service = "payments"),
    (name = "EDGE", service = "egress"),
    ${texts.join(',\n    ')}
  ]
);
const system :Workerd.Worker = (
  modules = [(name = "system.js", esModule = embed "system.js")],
  compatibilityDate = "${SYSTEM_COMPATIBILITY_DATE}",
  bindings = [(name = "MAIN", service = "main")]
);
`;
}
