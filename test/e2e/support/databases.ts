/** A PostgreSQL and a MariaDB server of Debian's, each on loopback in a folder of its own, with certificates of one authority. */
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { freePort } from './ports.ts';
import { type Program, startProgram } from './programs.ts';
import { until } from './until.ts';

/** Both refuse to run as root. */
const NOBODY = 65_534;
const isRoot = process.getuid?.() === 0;
const as = isRoot ? { uid: NOBODY, gid: NOBODY } : {};

export interface Certificate {
  key: string;
  cert: string;
}

export class CertificateAuthority {
  readonly folder = mkdtempSync(path.join(tmpdir(), 'tp-ca-'));
  readonly caFile = path.join(this.folder, 'ca.crt');
  #count = 0;

  constructor() {
    // What runs as nobody reads its files here.
    chmodSync(this.folder, 0o755);
    this.#openssl('req', '-x509', ...this.#key('ca'), '-days', '2', '-subj', '/CN=test authority', '-out', this.caFile);
  }

  /** @param days negative: expired */
  issue(name: string, days = 2): Certificate & { keyFile: string; certFile: string } {
    const file = `${++this.#count}`;
    const [request, extensions] = [path.join(this.folder, `${file}.csr`), path.join(this.folder, `${file}.ext`)];
    const [keyFile, certFile] = [path.join(this.folder, `${file}.key`), path.join(this.folder, `${file}.crt`)];
    writeFileSync(extensions, `subjectAltName=DNS:${name}`);
    this.#openssl('req', '-new', ...this.#key(file), '-subj', `/CN=${name}`, '-out', request);
    const signed = ['-CA', this.caFile, '-CAkey', path.join(this.folder, 'ca.key'), '-CAcreateserial'];
    this.#openssl(
      'x509',
      '-req',
      '-in',
      request,
      ...signed,
      '-days',
      `${days}`,
      '-extfile',
      extensions,
      '-out',
      certFile,
    );
    chmodSync(keyFile, 0o600);
    if (isRoot) chownSync(keyFile, NOBODY, NOBODY);
    return { keyFile, certFile, key: readFileSync(keyFile, 'utf8'), cert: readFileSync(certFile, 'utf8') };
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }

  #key(name: string): string[] {
    return [
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:prime256v1',
      '-nodes',
      '-keyout',
      path.join(this.folder, `${name}.key`),
    ];
  }

  #openssl(...args: string[]): void {
    execFileSync('openssl', args, { stdio: 'ignore' });
  }
}

export interface DatabaseServer {
  port: number;
  output(): string;
  stop(): Promise<void>;
}

/** User and database `app`, password `pa ss'word`, and TLS for `localhost`. */
export const APP_PASSWORD = "pa ss'word";

/** Where Debian keeps the newest version's programs, which are not on the path; undefined: it is not installed. */
export function postgresPrograms(): string | undefined {
  const root = '/usr/lib/postgresql';
  try {
    const newest = readdirSync(root).sort((a, b) => Number(b) - Number(a))[0];
    return newest && path.join(root, newest, 'bin');
  } catch {
    return undefined;
  }
}

export async function startPostgres(authority: CertificateAuthority): Promise<DatabaseServer> {
  const programs = postgresPrograms() ?? '';
  const folder = ownFolder('tp-pg-');
  const [data, password] = [path.join(folder, 'data'), path.join(folder, 'password')];
  writeFileSync(password, APP_PASSWORD);
  const make = ['-D', data, '-U', 'app', '--pwfile', password, '-A', 'scram-sha-256', '--no-sync', '--no-instructions'];
  execFileSync(path.join(programs, 'initdb'), [...make, '--locale=C', '--encoding=UTF8'], {
    stdio: 'pipe',
    cwd: folder,
    ...as,
  });
  const { keyFile, certFile } = authority.issue('localhost');
  const port = await freePort();
  const settings = [
    'ssl=on',
    `ssl_cert_file=${certFile}`,
    `ssl_key_file=${keyFile}`,
    'fsync=off',
    'max_connections=40',
  ];
  const args = [
    '-D',
    data,
    '-h',
    '127.0.0.1',
    '-p',
    `${port}`,
    '-k',
    folder,
    ...settings.flatMap((one) => ['-c', one]),
  ];
  const server = await startProgram(path.join(programs, 'postgres'), args, port, {}, { cwd: folder, ...as });
  // It listens before it has started.
  await until(() => isMade(path.join(programs, 'createdb'), port), 'PostgreSQL to start');
  return served(server, port, folder, true);
}

/** Makes the database. @returns false where the server says that it is starting */
function isMade(createdb: string, port: number): boolean {
  try {
    execFileSync(createdb, ['-h', '127.0.0.1', '-p', `${port}`, '-U', 'app', 'app'], {
      env: { ...process.env, PGPASSWORD: APP_PASSWORD },
      stdio: 'pipe',
    });
    return true;
  } catch (error) {
    if (String((error as { stderr?: Buffer }).stderr).includes('starting up')) return false;
    throw error;
  }
}

/** Connections to a PostgreSQL server, but the one that asks. */
export function clientsOf({ port }: DatabaseServer): number {
  const query =
    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
  const at = ['-h', '127.0.0.1', '-p', `${port}`, '-U', 'app', '-d', 'app'];
  const told = execFileSync(path.join(postgresPrograms() ?? '', 'psql'), [...at, '-Atc', query], {
    env: { ...process.env, PGPASSWORD: APP_PASSWORD },
  });
  return Number(told);
}

export async function startMariadb(authority: CertificateAuthority): Promise<DatabaseServer> {
  const folder = ownFolder('tp-my-');
  const data = path.join(folder, 'data');
  mkdirSync(data);
  const quoted = APP_PASSWORD.replaceAll("'", "''");
  const init = path.join(folder, 'init.sql');
  writeFileSync(
    init,
    `CREATE DATABASE IF NOT EXISTS app;\nCREATE USER IF NOT EXISTS app@'%' IDENTIFIED BY '${quoted}';\nGRANT ALL ON app.* TO app@'%';\n`,
  );
  if (isRoot) for (const one of [data, init]) chownSync(one, NOBODY, NOBODY);
  const make = ['--no-defaults', `--datadir=${data}`, '--auth-root-authentication-method=normal', '--skip-test-db'];
  execFileSync('mariadb-install-db', make, { stdio: 'pipe', cwd: folder, ...as });
  const { keyFile, certFile } = authority.issue('localhost');
  const port = await freePort();
  const args = [
    ...['--no-defaults', `--datadir=${data}`, `--socket=${path.join(folder, 'm.sock')}`, `--port=${port}`],
    ...['--bind-address=127.0.0.1', '--skip-name-resolve', `--init-file=${init}`, '--innodb-flush-log-at-trx-commit=0'],
    ...[`--ssl-cert=${certFile}`, `--ssl-key=${keyFile}`, `--pid-file=${path.join(folder, 'm.pid')}`],
  ];
  const server = await startProgram('/usr/sbin/mariadbd', args, port, {}, { cwd: folder, ...as });
  return served(server, port, folder);
}

function ownFolder(prefix: string): string {
  const folder = mkdtempSync(path.join(tmpdir(), prefix));
  if (isRoot) chownSync(folder, NOBODY, NOBODY);
  return folder;
}

function served(server: Program, port: number, folder: string, isPostgres = false): DatabaseServer {
  return {
    port,
    output: server.output,
    async stop() {
      // For postgres: without waiting until its clients are gone.
      if (isPostgres) process.kill(server.pid, 'SIGINT');
      await server.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}
