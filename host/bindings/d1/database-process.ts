/**
 * Starts a tenant's SQL process in a sandbox whose only writable folders are the database's and the socket's.
 * With a remote libSQL server it needs the network, so it then runs outside: it is our code, and runs no SQL itself.
 */
import { lchownSync, mkdirSync, readdirSync, realpathSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { Bind, Sandbox } from '../../sandbox/confinement.ts';
import { readLines } from '../../sandbox/flood-gate.ts';
import { detectSandbox } from '../../sandbox/index.ts';
import { type ConfinedProcess, spawnConfined } from '../../sandbox/spawn.ts';
import { limitStart } from '../../sandbox/start-limit.ts';
import { tenantUser } from '../../sandbox/users.ts';
import type { Config } from '../../shared/config.ts';
import type { TenantId } from '../../shared/contracts.ts';
import { FILE } from './files.ts';
import type { SqlLimits } from './limits.ts';

export interface DatabaseProcessOptions {
  tenant: TenantId;
  sandbox: Sandbox;
  storage: Config['storage'];
  /** Of the database on a libSQL server. */
  namespace: string;
  /** What the database may grow to now. */
  quotaBytes(): Promise<number>;
  /** What all of the tenant's databases may take together. */
  mostBytes(): number;
  /** In place of the usual ones. */
  limits?: Partial<SqlLimits>;
  /** What `buildDatabaseProgram` wrote. */
  program: Promise<string>;
  /** Folder of the database file, created where missing. */
  dataFolder: string;
  /** Folder in which the process creates `SOCKET_NAME`. */
  socketFolder: string;
  startTimeoutMs: number;
  onDiagnostic(text: string): void;
}

export const SOCKET_NAME = 'd1.sock';
const OPEN_FILES = 1_024;
/** The database, its log and a rebuild of it may be on disk at once. */
const FILES_PER_QUOTA = 2;
/** The first process only accepts connections: a small heap keeps an idle database cheap. */
const NODE_FLAGS = [
  '--disable-warning=ExperimentalWarning',
  '--max-old-space-size=32',
  '--max-semi-space-size=1',
  '--v8-pool-size=1',
];

/**
 * @returns once it listens
 * @throws Error when it does not start
 */
export async function startDatabaseProcess(options: DatabaseProcessOptions): Promise<ConfinedProcess> {
  const { tenant, storage, dataFolder, socketFolder } = options;
  const remote = storage.sql !== 'local';
  const sandbox = remote ? await detectSandbox('none') : options.sandbox;
  const uid = remote ? undefined : tenantUser(tenant);
  ownFolder(dataFolder, uid);
  ownFolder(socketFolder, uid);
  const native = nativeBinding();
  const program: Bind = { from: await options.program, to: '/app/d1.mjs' };
  const binding: Bind = { from: native, to: '/app/libsql.node' };
  const data: Bind = { from: dataFolder, to: '/data', writable: true };
  const socket: Bind = { from: socketFolder, to: '/run/d1', writable: true };
  const child = await spawnConfined(sandbox, {
    program: process.execPath,
    args: [...NODE_FLAGS, sandbox.inside(program)],
    binds: [program, binding, data, socket],
    needs: [native],
    uid,
    profile: 'database',
    limits: { openFiles: OPEN_FILES, fileBytes: options.mostBytes() * FILES_PER_QUOTA },
  });
  const settings = {
    socket: `${sandbox.inside(socket)}/${SOCKET_NAME}`,
    database: `${sandbox.inside(data)}/${FILE}`,
    native: sandbox.inside(binding),
    quotaBytes: Math.max(1, await options.quotaBytes()),
    timeoutMs: storage.sqlTimeoutMs,
    ...options.limits,
    // Standard input stays open: when the host ends, however it ends, so does the process.
    lifeline: true,
    ...(remote
      ? {
          remote: {
            url: storage.sql,
            token: storage.sqlToken,
            namespace: options.namespace,
            ...(storage.sqlAdmin ? { adminUrl: storage.sqlAdmin } : {}),
          },
        }
      : {}),
  };
  child.stdin.write(`${JSON.stringify(settings)}\n`);
  const diagnostics: string[] = [];
  readLines(child.stderr, {
    onLine: (line) => {
      if (diagnostics.length < 10) diagnostics.push(line);
      options.onDiagnostic(line.slice(0, 2_000));
    },
    onDropped: () => undefined,
  });
  await listening(child, options.startTimeoutMs, diagnostics);
  return child;
}

function listening(child: ConfinedProcess, timeoutMs: number, diagnostics: string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (why: string): void => reject(new Error(`${why}: ${diagnostics.join(' ')}`));
    const started = limitStart(child.pid, timeoutMs, () => {
      child.kill();
      fail('the database process did not start in time');
    });
    readLines(child.stdout, {
      onLine: (line) => {
        if (!line.includes('"listening"')) return;
        started();
        resolve();
      },
      onDropped: () => undefined,
    });
    void child.ended.then(() => {
      started();
      fail('the database process ended while starting');
    });
  });
}

/** libSQL's own file. */
export function nativeBinding(): string {
  const report = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  const name = `@libsql/linux-${process.arch}-${report.header?.glibcVersionRuntime ? 'gnu' : 'musl'}`;
  return realpathSync(createRequire(createRequire(import.meta.url).resolve('libsql')).resolve(name));
}

/** Gives a folder and what is in it to the tenant's user, who made it: no link in it is followed. */
function ownFolder(folder: string, uid: number | undefined): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  if (uid === undefined) return;
  lchownSync(folder, uid, uid);
  for (const name of readdirSync(folder)) lchownSync(path.join(folder, name), uid, uid);
}
