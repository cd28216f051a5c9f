/** A PostgreSQL server of Debian's on a unix socket, in a folder of its own. Kills of it lose nothing: the machine goes on. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { postgresPrograms } from '../../e2e/support/databases.ts';

/** It refuses to run as root. */
const NOBODY = 65_534;
const as = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};

/** Longest time until it takes connections: one that was killed leaves processes behind, which end first. ms */
const START_MS = 30_000;
/** Characters of what it prints that are kept. */
const MOST_OUTPUT = 10_000;

export class PostgresServer {
  readonly #folder: string;
  #server: ChildProcess | undefined;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async start(): Promise<PostgresServer> {
    const folder = mkdtempSync(path.join(tmpdir(), 'tp-registry-pg-'));
    if (as.uid !== undefined) chownSync(folder, NOBODY, NOBODY);
    const server = new PostgresServer(folder);
    const how = ['-A', 'trust', '-U', 'turnpike', '--no-sync', '--no-instructions', '--locale=C', '--encoding=UTF8'];
    server.#run('initdb', '-D', server.#data, ...how);
    await server.start();
    return server;
  }

  get #data(): string {
    return path.join(this.#folder, 'data');
  }

  /** @returns address of a database; it need not exist */
  url(database: string): string {
    return `postgres://turnpike@localhost/${database}?host=${encodeURIComponent(this.#folder)}`;
  }

  create(database: string): string {
    this.#run('createdb', '-h', this.#folder, '-U', 'turnpike', database);
    return this.url(database);
  }

  async start(): Promise<void> {
    const settings = ['fsync=off', 'max_connections=100'].flatMap((one) => ['-c', one]);
    const args = ['-D', this.#data, '-h', '', '-k', this.#folder, ...settings];
    const until = performance.now() + START_MS;
    for (;;) {
      const server = spawn(program('postgres'), args, {
        stdio: ['ignore', 'ignore', 'pipe'],
        cwd: this.#folder,
        ...as,
      });
      let output = '';
      const isReady = await new Promise<boolean>((resolve) => {
        // It is read to its end: a server that nobody listens to stops.
        server.stderr.setEncoding('utf8').on('data', (piece: string) => {
          output = (output + piece).slice(-MOST_OUTPUT);
          if (output.includes('ready to accept connections')) resolve(true);
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

  #run(name: string, ...args: string[]): void {
    execFileSync(program(name), args, { stdio: ['ignore', 'ignore', 'pipe'], cwd: this.#folder, ...as });
  }
}

function program(name: string): string {
  return path.join(postgresPrograms() ?? '', name);
}
