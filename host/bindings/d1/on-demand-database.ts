/**
 * A tenant's `d1.sock`. The socket exists from the start; the database process starts with the first connection. While
 * that process is not listening, this listener accepts connections and forwards them later, so that no query is refused.
 */
import { chmodSync, lchownSync, lstatSync, renameSync, rmSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import type { Logger } from 'pino';
import { CpuShare } from '../../sandbox/cpu-share.ts';
import { type ProcessUsage, treeOf, usageOf, wantedMsOf } from '../../sandbox/process-tree.ts';
import type { ConfinedProcess } from '../../sandbox/spawn.ts';
import { BACKLOG } from '../../shared/backlog.ts';
import { setTenantPriority } from '../../shared/priority.ts';
import { type DatabaseProcessOptions, SOCKET_NAME, startDatabaseProcess } from './database-process.ts';

export interface OnDemandDatabaseOptions extends Omit<DatabaseProcessOptions, 'onDiagnostic'> {
  /** Where workerd looks for it. */
  socket: string;
  /** The user of those who connect; undefined where the host is not root. */
  clientUid: number | undefined;
  log: Logger;
  /** Told when the process ended without being asked. */
  onDeath(detail: string): void;
}

/** A process that keeps dying is not started more often than this, ms. */
const RESTART_PAUSE_MS = 1_000;
/** How long a process without an engine waits for the next query, ms. */
const REST_MS = 20_000;
const TERMINATE_MS = 3_000;

export class OnDemandDatabase {
  readonly #options: OnDemandDatabaseOptions;
  /** The name that workerd connects to; listener and process take turns behind it, by renames. */
  readonly #public: string;
  #opened: Promise<void> | undefined;
  #listener: net.Server | undefined;
  #listeners = 0;
  #process: ConfinedProcess | undefined;
  #starting: Promise<string> | undefined;
  #failedAt = Number.NEGATIVE_INFINITY;
  #closed = false;
  #restingSince: number | undefined;
  readonly #share = new CpuShare();
  /** CPU time of the processes that run now, as last seen, ms. */
  #seenCpuMs = 0;
  /** The first of them: with another one the count begins again. */
  #seenPid: number | undefined;
  #uncountedCpuMs = 0;
  /** The processes and the appetite that were last settled. */
  #weighed = '';
  /** A process that was told to end. */
  #dismissed: ConfinedProcess | undefined;
  /** Where the process' own socket is: connections that came too early are passed on to it. */
  #behind: string | undefined;

  constructor(options: OnDemandDatabaseOptions) {
    this.#options = options;
    this.#public = options.socket;
  }

  /** Makes the socket. */
  open(): Promise<void> {
    this.#opened ??= this.#listen();
    return this.#opened;
  }

  /** Starts the process ahead of the first query. */
  warm(): void {
    this.#running().catch(() => undefined);
  }

  /** A query waits for the process. */
  get starting(): boolean {
    return this.#starting !== undefined;
  }

  /**
   * Looks at its processes: weighs them by what they want, and ends them when they have had nothing to do for a while;
   * the next connection starts them again.
   * @param now ms of `performance.now()`; call about once a second, more often while busy
   * @returns of all of them
   */
  sample(now: number): ProcessUsage {
    const pids = this.#pids();
    const total = this.#usage(pids);
    const wantedMs = pids.reduce((sum, pid) => sum + (wantedMsOf(pid) ?? 0), 0);
    this.#share.sample(now, { cpuMs: total.cpuMs, wantedMs });
    const { appetite } = this.#share;
    const weighed = `${appetite} ${pids}`;
    if (weighed !== this.#weighed && setTenantPriority(pids, appetite)) this.#weighed = weighed;
    this.#rest(now, pids);
    return total;
  }

  /** CPU time since this was last asked, ms. */
  takeCpuMs(): number {
    this.#usage(this.#pids());
    const taken = this.#uncountedCpuMs;
    this.#uncountedCpuMs = 0;
    return taken;
  }

  #usage(pids: number[]): ProcessUsage {
    const total: ProcessUsage = { cpuMs: 0, privateBytes: 0 };
    for (const pid of pids) {
      const usage = usageOf(pid);
      total.cpuMs += usage?.cpuMs ?? 0;
      total.privateBytes += usage?.privateBytes ?? 0;
    }
    if (pids[0] !== this.#seenPid) this.#seenCpuMs = 0;
    this.#seenPid = pids[0];
    this.#uncountedCpuMs += Math.max(0, total.cpuMs - this.#seenCpuMs);
    this.#seenCpuMs = Math.max(this.#seenCpuMs, total.cpuMs);
    return total;
  }

  #rest(now: number, pids: number[]): void {
    const process = this.#process;
    // The engine ends by itself when idle: one process is then left, which only waits.
    if (!process || pids.length !== 1) {
      this.#restingSince = undefined;
      return;
    }
    this.#restingSince ??= now;
    if (now - this.#restingSince < REST_MS) return;
    this.#restingSince = undefined;
    this.#dismissed = process;
    this.#behind = undefined;
    // The listener first: nobody is to find the socket gone.
    void this.#listen().then(() => process.terminate());
  }

  /** All processes of the database. */
  #pids(): number[] {
    const pid = this.#process?.pid();
    return pid === undefined ? [] : treeOf(pid);
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#listener?.close();
    const process = this.#process;
    if (process) {
      process.terminate();
      const timer = setTimeout(() => process.kill(), TERMINATE_MS);
      await process.ended;
      clearTimeout(timer);
    }
    rmSync(this.#public, { force: true });
  }

  async #listen(): Promise<void> {
    const listener = net.createServer((socket) => void this.#passOn(socket));
    const folder = path.dirname(this.#public);
    // Beside it, and shorter.
    const name = path
      .basename(this.#public)
      .replace('d1', 'l')
      .replace('sock', (this.#listeners++).toString(36));
    const own = path.join(folder, name);
    rmSync(own, { force: true });
    await new Promise<void>((resolve, reject) => {
      listener.once('error', reject);
      listener.listen({ path: own, backlog: BACKLOG }, resolve);
    });
    listener.on('error', (error) => this.#options.log.warn({ err: error }, 'a database listener failed'));
    permit(own, this.#options.clientUid);
    // Node removes the file it bound when a server closes: by then that name leads nowhere.
    renameSync(own, this.#public);
    this.#listener?.close();
    this.#listener = listener;
  }

  async #passOn(socket: net.Socket): Promise<void> {
    socket.on('error', () => socket.destroy());
    socket.pause();
    try {
      const behind = net.connect(await this.#running());
      behind.on('error', () => socket.destroy());
      socket.on('close', () => behind.destroy());
      behind.on('close', () => socket.destroy());
      socket.pipe(behind).pipe(socket);
    } catch {
      socket.destroy();
    }
  }

  /** @returns the socket of the running process */
  #running(): Promise<string> {
    if (this.#behind !== undefined) return Promise.resolve(this.#behind);
    this.#starting ??= this.#start().finally(() => {
      this.#starting = undefined;
    });
    return this.#starting;
  }

  async #start(): Promise<string> {
    const { socketFolder, tenant, clientUid, log, onDeath } = this.#options;
    if (this.#closed) throw new Error('the database is closed');
    if (performance.now() - this.#failedAt < RESTART_PAUSE_MS) throw new Error('the database process just failed');
    const own = path.join(socketFolder, SOCKET_NAME);
    let child: ConfinedProcess | undefined;
    try {
      child = await startDatabaseProcess({
        ...this.#options,
        onDiagnostic: (text) => log.debug({ tenant, text }, 'database process'),
      });
      permit(own, clientUid);
    } catch (error) {
      child?.kill();
      this.#failedAt = performance.now();
      log.error({ tenant, err: error }, 'a database process did not start');
      onDeath('the database process did not start');
      throw error;
    }
    this.#process = child;
    this.#behind = this.#public;
    renameSync(own, this.#public);
    void child.ended.then(async (end) => {
      const current = this.#process === child;
      if (current) this.#process = undefined;
      if (this.#closed || this.#dismissed === child) return;
      if (current) this.#behind = undefined;
      onDeath(`the database process ended (${end.signal ?? `code ${end.code}`})`);
      await this.#listen();
    });
    if (this.#closed) child.kill();
    return this.#public;
  }
}

/**
 * Connecting takes write permission on the socket.
 * @throws Error when the process has put something else in its place
 */
function permit(socket: string, uid: number | undefined): void {
  if (uid === undefined) return;
  if (!lstatSync(socket).isSocket()) throw new Error(`${SOCKET_NAME} is not a socket`);
  chmodSync(socket, 0o600);
  lchownSync(socket, uid, uid);
}
