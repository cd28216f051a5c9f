/**
 * A PostgreSQL server of Debian's on a unix socket, in a folder of its own, and on TCP where it is told to. It may have a
 * standby, which has all that was acknowledged. Kills lose nothing: the machine goes on.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, chownSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { postgresPrograms } from '../../e2e/support/databases.ts';

/** It refuses to run as root. */
const NOBODY = 65_534;
const as = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};
const AS_NOBODY = [`--reuid=${NOBODY}`, `--regid=${NOBODY}`, '--clear-groups'];

/** Longest time until it takes connections: one that was killed leaves processes behind, which end first. ms */
const START_MS = 30_000;
/** Characters of what it prints that are kept. */
const MOST_OUTPUT = 10_000;

export interface PostgresOptions {
  /** On which it listens beside its socket. */
  tcp?: { host: string; port: number };
  /** A program that becomes the one that follows, with its arguments, such as `nsenter`. */
  within?: string[];
}

export class PostgresServer {
  readonly #folder: string;
  readonly #options: PostgresOptions;
  #server: ChildProcess | undefined;

  private constructor(options: PostgresOptions) {
    this.#options = options;
    this.#folder = mkdtempSync(path.join(tmpdir(), 'tp-registry-pg-'));
    if (as.uid !== undefined) chownSync(this.#folder, NOBODY, NOBODY);
  }

  static async start(options: PostgresOptions = {}): Promise<PostgresServer> {
    const server = new PostgresServer(options);
    const how = ['-A', 'trust', '-U', 'turnpike', '--no-sync', '--no-instructions', '--locale=C', '--encoding=UTF8'];
    server.#run('initdb', '-D', server.#data, ...how);
    if (options.tcp)
      for (const what of ['all', 'replication'])
        appendFileSync(path.join(server.#data, 'pg_hba.conf'), `host ${what} all samenet trust\n`);
    await server.start();
    return server;
  }

  /** A server that has every transaction of this one before it is acknowledged. @param standby on which it listens */
  async standby(standby: PostgresOptions): Promise<PostgresServer> {
    const made = new PostgresServer(standby);
    const how = ['-U', 'turnpike', '-R', '-X', 'stream', '-c', 'fast'];
    this.#run('pg_basebackup', '-h', this.#folder, '-D', made.#data, ...how);
    await made.start();
    this.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    this.sql('SELECT pg_reload_conf()');
    const until = performance.now() + START_MS;
    while (this.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") !== '1') {
      if (performance.now() > until) throw new Error('the standby does not follow');
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    return made;
  }

  /** Takes writes from here on. */
  promote(): void {
    this.sql('SELECT pg_promote()');
  }

  /** @returns what `psql` prints */
  sql(text: string): string {
    return this.#run('psql', '-h', this.#folder, '-U', 'turnpike', '-d', 'postgres', '-Atc', text).trim();
  }

  /** As an operator's backup has it. */
  dump(database: string): string {
    return this.#run('pg_dump', '-h', this.#folder, '-U', 'turnpike', database);
  }

  /** Makes a database of a dump. @returns its address */
  load(database: string, dump: string): string {
    const url = this.create(database);
    const how = { ...this.#how, input: dump, stdio: 'pipe' as const };
    const args = ['-h', this.#folder, '-U', 'turnpike', '-d', database, '-q', '-v', 'ON_ERROR_STOP=1'];
    execFileSync(program('psql'), args, how);
    return url;
  }

  get #data(): string {
    return path.join(this.#folder, 'data');
  }

  /** @returns address of a database; it need not exist */
  url(database: string): string {
    const port = this.#options.tcp ? `&port=${this.#options.tcp.port}` : '';
    return `postgres://turnpike@localhost/${database}?host=${encodeURIComponent(this.#folder)}${port}`;
  }

  create(database: string): string {
    this.#run('createdb', '-h', this.#folder, '-U', 'turnpike', database);
    return this.url(database);
  }

  async start(): Promise<void> {
    const { tcp, within = [] } = this.#options;
    const settings = ['fsync=off', 'max_connections=150', ...(tcp ? [`port=${tcp.port}`] : [])];
    const place = ['-D', this.#data, '-h', tcp?.host ?? '', '-k', this.#folder];
    // Whoever enters a namespace is root.
    const user = within.length > 0 ? [...within, 'setpriv', ...AS_NOBODY] : [];
    const [name = '', ...args] = [...user, program('postgres'), ...place, ...settings.flatMap((one) => ['-c', one])];
    const until = performance.now() + START_MS;
    for (;;) {
      const server = spawn(name, args, {
        stdio: ['ignore', 'ignore', 'pipe'],
        cwd: this.#folder,
        ...(within.length > 0 ? {} : as),
      });
      let output = '';
      const isReady = await new Promise<boolean>((resolve) => {
        // It is read to its end: a server that nobody listens to stops.
        server.stderr.setEncoding('utf8').on('data', (piece: string) => {
          output = (output + piece).slice(-MOST_OUTPUT);
          if (/ready to accept (?:read-only )?connections/.test(output)) resolve(true);
        });
        server.once('exit', () => resolve(false));
      });
      if (isReady) {
        this.#server = server;
        return;
      }
      if (performance.now() > until) throw new Error(output);
    }
  }

  /** As a crash of its machine would; `start` finds what was written. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  async stop(): Promise<void> {
    await this.#end('SIGQUIT');
    rmSync(this.#folder, { recursive: true });
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const server = this.#server;
    if (!server) return;
    this.#server = undefined;
    const exit = once(server, 'exit');
    server.kill(signal);
    await exit;
  }

  #run(name: string, ...args: string[]): string {
    const stdio = ['ignore', 'pipe', 'pipe'] as ['ignore', 'pipe', 'pipe'];
    return execFileSync(program(name), args, { ...this.#how, stdio });
  }

  get #how() {
    const env = { ...process.env, PGPORT: String(this.#options.tcp?.port ?? 5432) };
    return { cwd: this.#folder, env, ...as, encoding: 'utf8' as const, maxBuffer: Number.POSITIVE_INFINITY };
  }
}

function program(name: string): string {
  return path.join(postgresPrograms() ?? '', name);
}
