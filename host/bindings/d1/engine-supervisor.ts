/**
 * The first process of a tenant's database: accepts its connections and hands them to an engine, keeping a copy of
 * each. When the engine dies, by a query's doing or by passing its deadline, the supervisor answers those who waited
 * and gives the other connections to the next engine. It never reads a byte of them, and never runs SQL.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { openSync, unlinkSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { setPriority } from 'node:os';
import { dirname } from 'node:path';
import { BACKLOG } from '../../shared/backlog.ts';
import { monotonicMs } from '../../shared/clock.ts';
import type { ToEngine, ToSupervisor } from './engine.ts';
import { MESSAGES, timedOut } from './failure.ts';
import { InFlightReader, MAX_CONNECTIONS, PHASE } from './inflight.ts';
import type { SqlSettings } from './settings.ts';

/** How often the table is looked at while an engine lives, ms. */
const WATCH_MS = 250;
/** An engine that dies before it is ready is not started again for this long, ms. */
const RESTART_PAUSE_MS = 1_000;
/** A query that runs longer than this yields the processor to other tenants' from then on, ms. */
const YIELD_MS = 100;
const YIELDING_PRIORITY = 10;
/** JavaScript heap of an engine, MB: results and requests; SQLite has its own limit. */
const ENGINE_HEAP_MB = 160;
const IN_QUERY: ReadonlySet<number> = new Set([PHASE.running, PHASE.uncommitted]);

export interface EngineSupervisorOptions {
  /** The program to fork for an engine, and its argument. */
  program: string;
  argument: string;
  log: (event: Record<string, unknown>) => void;
}

export class EngineSupervisor {
  readonly #settings: SqlSettings;
  readonly #options: EngineSupervisorOptions;
  readonly #connections: (Socket | undefined)[] = [];
  readonly #table: InFlightReader;
  readonly #tableFile: number;
  readonly #server: Server;
  #engine: ChildProcess | undefined;
  #ready = false;
  #yields = false;
  #watch: NodeJS.Timeout | undefined;
  #lastActive = 0;
  /** Slots whose connection the present engine has. */
  readonly #handed = new Set<number>();
  /** Slots whose connection any engine had. */
  readonly #used = new Set<number>();
  /** Slots whose query passed its deadline. */
  #late = new Set<number>();
  /** The engine was asked to end; connections that come meanwhile wait for the next. */
  #ending = false;
  #stopping = false;
  #failedAt = Number.NEGATIVE_INFINITY;
  /** The last engine aborted, as libSQL does on text that is not UTF-8. */
  #aborted = false;

  constructor(settings: SqlSettings, options: EngineSupervisorOptions) {
    this.#settings = settings;
    this.#options = options;
    this.#tableFile = openTable(settings);
    this.#table = new InFlightReader(this.#tableFile);
    this.#server = createServer({ pauseOnConnect: true, allowHalfOpen: true }, (socket) => this.#accept(socket));
    // Loading libSQL takes as long as all else: let it begin at once.
    this.#start();
  }

  listen(listening: () => void): void {
    const { listen } = this.#settings;
    if (typeof listen === 'number') {
      this.#server.listen({ fd: listen, backlog: BACKLOG }, listening);
      return;
    }
    try {
      unlinkSync(listen);
    } catch {
      // It was not there.
    }
    this.#server.listen({ path: listen, backlog: BACKLOG }, listening);
  }

  /** Lets the engine finish what it has, then ends. */
  stop(): void {
    this.#stopping = true;
    this.#server.close();
    if (this.#engine === undefined) process.exit(0);
    this.#end();
  }

  #accept(socket: Socket): void {
    socket.on('error', () => socket.destroy());
    const free = this.#connections.indexOf(undefined);
    const slot = free < 0 ? this.#connections.length : free;
    if (slot >= MAX_CONNECTIONS) {
      socket.end(response(MESSAGES.overloaded));
      return;
    }
    this.#connections[slot] = socket;
    this.#used.delete(slot);
    this.#lastActive = monotonicMs();
    if (this.#engine === undefined) this.#start();
    else if (!this.#ending) this.#hand(slot, socket);
  }

  #hand(slot: number, socket: Socket): void {
    this.#handed.add(slot);
    this.#used.add(slot);
    this.#engine?.send({ kind: 'connection', slot } satisfies ToEngine, socket, { keepOpen: true }, () => {
      // A channel that broke means the engine is gone: its exit is what counts.
    });
  }

  #start(): void {
    if (monotonicMs() - this.#failedAt < RESTART_PAUSE_MS) {
      this.#answerAll(MESSAGES.unavailable);
      return;
    }
    const engine = fork(this.#options.program, [this.#options.argument], {
      stdio: ['ignore', 'ignore', 'inherit', 'ipc', this.#tableFile],
      execArgv: ['--disable-warning=ExperimentalWarning', `--max-old-space-size=${ENGINE_HEAP_MB}`],
      env: {},
    });
    this.#engine = engine;
    this.#ready = false;
    this.#yields = false;
    this.#ending = false;
    this.#lastActive = monotonicMs();
    engine.on('message', (message: ToSupervisor) => {
      // A dead engine's last words may come after its successor has its connections.
      if (this.#engine === engine) this.#hear(message);
    });
    engine.on('exit', (code, signal) => {
      this.#aborted = signal === 'SIGABRT';
      this.#exited(signal ?? `code ${code}`);
    });
    engine.on('error', () => undefined);
    engine.send({ kind: 'open', settings: this.#settings, careful: this.#aborted } satisfies ToEngine);
    for (const [slot, socket] of this.#connections.entries()) if (socket !== undefined) this.#hand(slot, socket);
    this.#watch = setInterval(() => this.#look(), Math.max(10, Math.min(WATCH_MS, this.#settings.timeoutMs / 8)));
  }

  #hear(message: ToSupervisor): void {
    switch (message.kind) {
      case 'ready':
        this.#ready = true;
        return;
      case 'failed':
        // The engine lives and answers every query that the database cannot be opened.
        this.#options.log({ level: 'error', event: 'open', message: message.reason });
        this.#ready = true;
        return;
      case 'closed':
        this.#connections[message.slot]?.destroy();
        this.#connections[message.slot] = undefined;
        this.#handed.delete(message.slot);
        this.#table.clear(message.slot);
    }
  }

  /** Ends an engine whose query is late, or that has had nothing to do for long. */
  #look(): void {
    const now = monotonicMs();
    if (this.#table.refresh(this.#connections.length)) this.#lastActive = now;
    let busy = false;
    for (let slot = 0; slot < this.#connections.length; slot++) {
      const { phase, since } = this.#table.entry(slot);
      if (phase !== PHASE.idle) busy = true;
      if (phase !== PHASE.running) continue;
      if (now - since > this.#settings.timeoutMs) this.#late.add(slot);
      else if (now - since > YIELD_MS) this.#yield();
    }
    if (this.#late.size > 0) this.#engine?.kill('SIGKILL');
    // On a crowded machine it may load for longer than it may idle, and somebody waits for it.
    else if (busy || !this.#ready) this.#lastActive = now;
    else if (now - this.#lastActive > this.#settings.idleMs) this.#end();
  }

  /** For the rest of the engine's life: an ordinary user cannot raise a priority again. */
  #yield(): void {
    const pid = this.#engine?.pid;
    if (this.#yields || pid === undefined) return;
    this.#yields = true;
    try {
      setPriority(pid, YIELDING_PRIORITY);
    } catch {
      // The sandbox does not allow it, or the engine is gone.
    }
  }

  #end(): void {
    if (this.#ending) return;
    this.#ending = true;
    this.#engine?.send({ kind: 'end' } satisfies ToEngine, () => undefined);
  }

  #exited(reason: string): void {
    clearInterval(this.#watch);
    this.#engine = undefined;
    const asked = this.#ending;
    if (!this.#ready) this.#failedAt = monotonicMs();
    const late = this.#late;
    this.#late = new Set();
    if (!asked) this.#options.log({ level: 'warn', event: 'engine_ended', reason, late: late.size > 0 });
    this.#table.refresh(this.#connections.length);
    // In the middle of a query it was reading from nobody. At any other moment it may have taken bytes of a request
    // from a connection that still counts as idle: the next engine could not answer that.
    const betweenQueries = !this.#connections.some((_, slot) => IN_QUERY.has(this.#table.entry(slot).phase));
    let waiting = false;
    for (const [slot, socket] of this.#connections.entries()) {
      if (socket === undefined) continue;
      const { phase } = this.#table.entry(slot);
      this.#table.clear(slot);
      const untouched = !this.#handed.has(slot);
      this.#handed.delete(slot);
      if (phase === PHASE.idle && (untouched || !betweenQueries)) {
        waiting = true;
        continue;
      }
      this.#connections[slot] = undefined;
      this.#finish(socket, phase, late.has(slot));
    }
    if (this.#stopping) process.exit(0);
    // A query that ends its process should not make the next one wait for a new process.
    if (waiting || !asked) this.#start();
  }

  /** What a connection gets whose engine is gone. */
  #finish(socket: Socket, phase: number, late: boolean): void {
    switch (phase) {
      case PHASE.running:
        socket.end(response(late ? timedOut(this.#settings.timeoutMs) : MESSAGES.crashed), () => socket.destroy());
        return;
      case PHASE.received:
      case PHASE.uncommitted:
        socket.end(response(MESSAGES.reset), () => socket.destroy());
        return;
      default:
        // Idle, or half an answer is out: nothing true can be said any more.
        socket.destroy();
    }
  }

  /** Nobody will serve them. One that was used before may have no request on its way: it must get no answer. */
  #answerAll(message: string): void {
    for (const [slot, socket] of this.#connections.entries()) {
      if (socket === undefined) continue;
      this.#connections[slot] = undefined;
      if (this.#used.delete(slot)) socket.destroy();
      else socket.end(response(message), () => socket.destroy());
    }
  }
}

/** A whole HTTP answer: the supervisor speaks no more HTTP than this. */
function response(message: string): string {
  const body = JSON.stringify({ success: false, error: message });
  const length = Buffer.byteLength(body);
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\nconnection: close\r\n\r\n${body}`;
}

/** A nameless file, in memory where there is such a place. */
function openTable(settings: SqlSettings): number {
  for (const folder of ['/dev/shm', '/tmp', '/run', dirname(settings.database)]) {
    const path = `${folder}/sql-${process.pid}-${Date.now()}`;
    try {
      const file = openSync(path, 'wx+', 0o600);
      unlinkSync(path);
      return file;
    } catch {
      // Not writable in this sandbox.
    }
  }
  throw new Error('no writable folder for the in-flight table');
}
