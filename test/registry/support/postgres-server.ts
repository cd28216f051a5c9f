/** A PostgreSQL server of Debian's on a unix socket, in a folder of its own. Kills of it lose nothing: the machine goes on. */
import { execFileSync } from 'node:child_process';
import { chownSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { postgresPrograms } from '../../e2e/support/databases.ts';

/** It refuses to run as root. */
const NOBODY = 65_534;
const as = process.getuid?.() === 0 ? { uid: NOBODY, gid: NOBODY } : {};

export class PostgresServer {
  readonly #folder = mkdtempSync(path.join(tmpdir(), 'tp-registry-pg-'));
  readonly #data = path.join(this.#folder, 'data');

  constructor() {
    if (as.uid !== undefined) chownSync(this.#folder, NOBODY, NOBODY);
    const how = ['-A', 'trust', '-U', 'turnpike', '--no-sync', '--no-instructions', '--locale=C', '--encoding=UTF8'];
    this.#run('initdb', '-D', this.#data, ...how);
    this.start();
  }

  /** @returns address of a database; it need not exist */
  url(database: string): string {
    return `postgres://turnpike@localhost/${database}?host=${encodeURIComponent(this.#folder)}`;
  }

  create(database: string): string {
    this.#run('createdb', '-h', this.#folder, '-U', 'turnpike', database);
    return this.url(database);
  }

  start(): void {
    const settings = [
      'fsync=off',
      'max_connections=100',
      "listen_addresses=''",
      `unix_socket_directories='${this.#folder}'`,
    ];
    const options = settings.map((one) => `-c ${one}`).join(' ');
    this.#run('pg_ctl', '-D', this.#data, '-w', '-l', path.join(this.#folder, 'log'), '-o', options, 'start');
  }

  /** Kills the server and all that it has started: they see that it is gone. It can be started again. */
  kill(): void {
    process.kill(this.#pid(), 'SIGKILL');
  }

  stop(): void {
    this.#run('pg_ctl', '-D', this.#data, '-w', '-m', 'immediate', 'stop');
    rmSync(this.#folder, { recursive: true });
  }

  #pid(): number {
    return Number(readFileSync(path.join(this.#data, 'postmaster.pid'), 'utf8').split('\n')[0]);
  }

  #run(program: string, ...args: string[]): void {
    execFileSync(path.join(postgresPrograms() ?? '', program), args, {
      stdio: ['ignore', 'ignore', 'pipe'],
      cwd: this.#folder,
      ...as,
    });
  }
}
