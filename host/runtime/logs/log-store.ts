/**
 * Owners' logs: one bounded log per tenant, JSON lines in two files that take turns, and whoever follows it live.
 * Losing the last lines in a power cut is acceptable; growing without bound, or holding up a handler, is not.
 */
import { appendFile, mkdir, readFile, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Clock } from '../../shared/clock.ts';
import type { TenantId } from '../../shared/contracts.ts';
import { bounded, type LogEntry, type NewLogEntry } from './log-entry.ts';

export interface LogStoreOptions {
  /** A tenant's log is in `<folder>/<tenant>/logs`. */
  folder: string;
  clock: Clock;
  /** Kept per tenant, bytes. */
  maxBytes: number;
}

export interface ReadOptions {
  /** Newest entries to answer, at most. Default 200. */
  limit?: number;
  /** Only entries with a higher id. */
  after?: number;
  /** Only entries at or after this time, ms. */
  since?: number;
}

const CURRENT = 'current.jsonl';
const PREVIOUS = 'previous.jsonl';
/** Lines are written together this long after the first, ms. */
const WRITE_DELAY_MS = 50;
/** An open log that nobody used for this long is forgotten until it is needed, ms. */
const FORGET_MS = 60_000;
/** Entries that a slow follower may be behind, before it loses the oldest. */
const MAX_BEHIND = 1_000;

interface OpenLog {
  folder: string;
  lastId: number;
  bytes: number;
  waiting: string[];
  writing: Promise<void>;
  timer: NodeJS.Timeout | undefined;
  followers: Set<(entry: LogEntry) => void>;
  usedAt: number;
}

export class LogStore {
  readonly #options: LogStoreOptions;
  readonly #logs = new Map<TenantId, Promise<OpenLog>>();
  #closed = false;

  constructor(options: LogStoreOptions) {
    this.#options = options;
  }

  /** Adds a line. Secrets must have been masked before. Resolves when it has its id; it is on disk soon after. */
  async append(tenant: TenantId, entry: NewLogEntry): Promise<void> {
    if (this.#closed) return;
    const log = await this.#open(tenant);
    const complete: LogEntry = { id: ++log.lastId, time: this.#options.clock.now(), ...bounded(entry) };
    log.waiting.push(`${JSON.stringify(complete)}\n`);
    for (const follow of log.followers) follow(complete);
    log.timer ??= setTimeout(() => void this.#write(log), WRITE_DELAY_MS);
  }

  /** The newest entries that match, oldest first. */
  async read(tenant: TenantId, { limit = 200, after = 0, since = 0 }: ReadOptions = {}): Promise<LogEntry[]> {
    const log = await this.#open(tenant);
    await this.#write(log);
    const texts = await Promise.all([PREVIOUS, CURRENT].map((name) => readText(path.join(log.folder, name))));
    const entries = parseLines(texts.join('')).filter((entry) => entry.id > after && entry.time >= since);
    return entries.slice(Math.max(0, entries.length - limit));
  }

  /**
   * Entries from now on, until `signal` aborts. With `after`, those since that id come first, so that a follower who
   * was cut off misses nothing that is still kept.
   */
  async *tail(tenant: TenantId, signal: AbortSignal, after?: number): AsyncGenerator<LogEntry> {
    const log = await this.#open(tenant);
    const queue: LogEntry[] = [];
    let wake = (): void => undefined;
    const follow = (entry: LogEntry): void => {
      if (queue.length >= MAX_BEHIND) queue.shift();
      queue.push(entry);
      wake();
    };
    const aborted = (): void => wake();
    log.followers.add(follow);
    signal.addEventListener('abort', aborted);
    try {
      let last = after ?? log.lastId;
      if (after !== undefined) {
        for (const entry of await this.read(tenant, { after, limit: MAX_BEHIND })) {
          if (signal.aborted) return;
          last = entry.id;
          yield entry;
        }
      }
      while (!signal.aborted) {
        const entry = queue.shift();
        if (entry === undefined) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        } else if (entry.id > last) {
          yield entry;
        }
      }
    } finally {
      signal.removeEventListener('abort', aborted);
      log.followers.delete(follow);
    }
  }

  /** Forgets what is open for a tenant whose folder is about to be removed. */
  async forget(tenant: TenantId): Promise<void> {
    const pending = this.#logs.get(tenant);
    this.#logs.delete(tenant);
    if (pending) await this.#write(await pending);
  }

  /** Writes what is waiting. Lines after that are dropped. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const pending of this.#logs.values()) await this.#write(await pending);
    this.#logs.clear();
  }

  #open(tenant: TenantId): Promise<OpenLog> {
    this.#forgetIdle();
    let pending = this.#logs.get(tenant);
    if (!pending) {
      pending = openLog(path.join(this.#options.folder, tenant, 'logs'));
      this.#logs.set(tenant, pending);
      pending.catch(() => this.#logs.delete(tenant));
    }
    return pending.then((log) => {
      log.usedAt = performance.now();
      return log;
    });
  }

  #write(log: OpenLog): Promise<void> {
    clearTimeout(log.timer);
    log.timer = undefined;
    const text = log.waiting.splice(0).join('');
    if (text === '') return log.writing;
    log.writing = log.writing
      .then(async () => {
        const current = path.join(log.folder, CURRENT);
        if (log.bytes + text.length > this.#options.maxBytes / 2 && log.bytes > 0) {
          await rename(current, path.join(log.folder, PREVIOUS));
          log.bytes = 0;
        }
        try {
          await appendFile(current, text, { mode: 0o600 });
          log.bytes += Buffer.byteLength(text);
        } catch (error) {
          // The folder was removed with its tenant, or the disk is full: a log must not take the host down.
          if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
          process.emitWarning(`a tenant's log cannot be written: ${(error as Error).message}`);
        }
      })
      .catch(() => undefined);
    return log.writing;
  }

  #forgetIdle(): void {
    if (this.#logs.size < 1_000) return;
    for (const [tenant, pending] of this.#logs) {
      void pending.then((log) => {
        const idle = log.followers.size === 0 && log.waiting.length === 0 && performance.now() - log.usedAt > FORGET_MS;
        if (idle && this.#logs.get(tenant) === pending) this.#logs.delete(tenant);
      });
    }
  }
}

async function openLog(folder: string): Promise<OpenLog> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const current = path.join(folder, CURRENT);
  const bytes = await stat(current).then(
    (found) => found.size,
    () => 0,
  );
  const newest =
    parseLines(await readText(current)).at(-1) ?? parseLines(await readText(path.join(folder, PREVIOUS))).at(-1);
  return {
    folder,
    lastId: newest?.id ?? 0,
    bytes,
    waiting: [],
    writing: Promise.resolve(),
    timer: undefined,
    followers: new Set(),
    usedAt: performance.now(),
  };
}

function readText(file: string): Promise<string> {
  return readFile(file, 'utf8').catch(() => '');
}

/** A line that a crash cut short is left out. */
function parseLines(text: string): LogEntry[] {
  return text.split('\n').flatMap((line) => {
    if (line === '') return [];
    try {
      return [JSON.parse(line) as LogEntry];
    } catch {
      return [];
    }
  });
}

/** Removes a tenant's log for good. */
export function removeLog(folder: string, tenant: TenantId): Promise<void> {
  return rm(path.join(folder, tenant, 'logs'), { recursive: true, force: true });
}
