/**
 * Owners' logs: one bounded log per tenant, JSON lines in two files that take turns, and whoever follows it live.
 * Losing the last lines in a power cut is acceptable; growing without bound, or holding up a handler, is not.
 */
import { appendFile, mkdir, readFile, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import type { Clock } from '../../shared/clock.ts';
import type { TenantId } from '../../shared/contracts.ts';
import { bounded, type LogEntry, type NewLogEntry, type RequestEntry } from './log-entry.ts';

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
/** As many may be open before that is looked at, and how often it then is, ms. */
const OPEN_LOGS = 1_000;
const LOOK_MS = 1_000;
/** Entries that a slow follower may be behind, before it loses the oldest. */
const MAX_BEHIND = 1_000;
/** Every line of every tenant fails on a full disk: that is told once in this time, ms. */
const WARN_MS = 60_000;

interface OpenLog {
  folder: string;
  /** The folder is there; made for the first line, and not for who reads: another node may ask for any. */
  made: Promise<unknown> | undefined;
  lastId: number;
  bytes: number;
  /** The last line was cut short by a crash or a full disk: the next must not go on with it. */
  torn: boolean;
  waiting: string[];
  writing: Promise<void>;
  timer: NodeJS.Timeout | undefined;
  /** Told of each entry; undefined: no more will come. */
  followers: Set<(entry: LogEntry | RequestEntry | undefined) => void>;
}

interface Opening {
  pending: Promise<OpenLog>;
  log: OpenLog | undefined;
  usedAt: number;
}

export class LogStore {
  readonly #options: LogStoreOptions;
  readonly #logs = new Map<TenantId, Opening>();
  #lookedAt = 0;
  #warnedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(options: LogStoreOptions) {
    this.#options = options;
  }

  /**
   * Adds a line. Secrets must have been masked before. Resolves when it has its id; it is on disk soon after.
   * Never rejects: what a line tells of has happened, whether the disk takes the line or not.
   */
  async append(tenant: TenantId, entry: NewLogEntry): Promise<void> {
    if (this.#closed) return;
    const log = await this.#open(tenant).catch((error) => this.#warn(error));
    if (!log) return;
    log.made ??= mkdir(log.folder, { recursive: true, mode: 0o700 });
    try {
      await log.made;
    } catch (error) {
      log.made = undefined;
      this.#warn(error as Error);
      return;
    }
    const complete: LogEntry = { id: ++log.lastId, time: this.#options.clock.now(), ...bounded(entry) };
    log.waiting.push(`${JSON.stringify(complete)}\n`);
    for (const follow of log.followers) follow(complete);
    log.timer ??= setTimeout(() => void this.#write(log), WRITE_DELAY_MS);
  }

  /** Tells who follows the log with requests; nothing is kept. */
  tell(tenant: TenantId, request: RequestEntry): void {
    for (const follow of this.#logs.get(tenant)?.log?.followers ?? []) follow(request);
  }

  /** The newest entries that match, oldest first. */
  async read(tenant: TenantId, { limit = 200, after = 0, since = 0 }: ReadOptions = {}): Promise<LogEntry[]> {
    const log = await this.#open(tenant);
    // Between writes: the files must not take turns between the one's reading and the other's.
    const reading = this.#write(log).then(() =>
      Promise.all([PREVIOUS, CURRENT].map((name) => readText(path.join(log.folder, name)))),
    );
    log.writing = reading.then(() => undefined);
    const entries = parseLines((await reading).join('\n')).filter((entry) => entry.id > after && entry.time >= since);
    return entries.slice(Math.max(0, entries.length - limit));
  }

  /**
   * Entries from now on, until `signal` aborts or the tenant is forgotten. With `after`, those since that id come first,
   * so that a follower who was cut off misses nothing that is still kept.
   * @param requests whether entries about requests are included
   * @param begun called once the follower gets every new entry
   */
  tail(tenant: TenantId, signal: AbortSignal, after?: number): AsyncGenerator<LogEntry>;
  tail(
    tenant: TenantId,
    signal: AbortSignal,
    after: number | undefined,
    requests: boolean,
    begun?: () => void,
  ): AsyncGenerator<LogEntry | RequestEntry>;
  async *tail(
    tenant: TenantId,
    signal: AbortSignal,
    after?: number,
    requests = false,
    begun?: () => void,
  ): AsyncGenerator<LogEntry | RequestEntry> {
    const log = await this.#open(tenant);
    const queue: (LogEntry | RequestEntry)[] = [];
    let wake = (): void => undefined;
    let isOver = false;
    const follow = (entry: LogEntry | RequestEntry | undefined): void => {
      if (entry?.kind === 'request' && !requests) return;
      if (queue.length >= MAX_BEHIND) queue.shift();
      if (entry) queue.push(entry);
      else isOver = true;
      wake();
    };
    const aborted = (): void => wake();
    log.followers.add(follow);
    signal.addEventListener('abort', aborted);
    begun?.();
    try {
      // A crash may have taken the last lines, and their ids count anew.
      let last = Math.min(after ?? log.lastId, log.lastId);
      if (after !== undefined) {
        for (const entry of await this.read(tenant, { after: last, limit: MAX_BEHIND })) {
          if (signal.aborted) return;
          last = entry.id;
          yield entry;
        }
      }
      while (!signal.aborted) {
        const entry = queue.shift();
        if (entry === undefined) {
          if (isOver) return;
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        } else if (entry.kind === 'request' || entry.id > last) {
          yield entry;
        }
      }
    } finally {
      signal.removeEventListener('abort', aborted);
      log.followers.delete(follow);
    }
  }

  /** Forgets what is open for a tenant whose folder is about to be removed, and ends who follows its log. */
  async forget(tenant: TenantId): Promise<void> {
    const opening = this.#logs.get(tenant);
    this.#logs.delete(tenant);
    if (!opening) return;
    const log = await opening.pending;
    for (const follow of log.followers) follow(undefined);
    await this.#write(log);
  }

  /** Writes what is waiting. Lines after that are dropped. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const { pending } of this.#logs.values()) await this.#write(await pending);
    this.#logs.clear();
  }

  #open(tenant: TenantId): Promise<OpenLog> {
    let opening = this.#logs.get(tenant);
    if (!opening) {
      this.#forgetIdle();
      const made: Opening = {
        pending: openLog(path.join(this.#options.folder, tenant, 'logs')),
        log: undefined,
        usedAt: 0,
      };
      made.pending.then(
        (log) => {
          made.log = log;
        },
        () => this.#logs.delete(tenant),
      );
      this.#logs.set(tenant, made);
      opening = made;
    }
    opening.usedAt = performance.now();
    return opening.pending;
  }

  #write(log: OpenLog): Promise<void> {
    clearTimeout(log.timer);
    log.timer = undefined;
    const text = log.waiting.splice(0).join('');
    if (text === '') return log.writing;
    log.writing = log.writing
      .then(async () => {
        const current = path.join(log.folder, CURRENT);
        try {
          if (log.bytes + text.length > this.#options.maxBytes / 2 && log.bytes > 0) {
            log.bytes = 0;
            log.torn = false;
            await rename(current, path.join(log.folder, PREVIOUS));
          }
          const whole = log.torn ? `\n${text}` : text;
          log.torn = true;
          await appendFile(current, whole, { mode: 0o600 });
          log.torn = false;
          log.bytes += Buffer.byteLength(whole);
        } catch (error) {
          // The folder was removed with its tenant, or the disk is full: a log must not take the host down.
          if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
          this.#warn(error as Error);
        }
      })
      .catch(() => undefined);
    return log.writing;
  }

  #warn(error: Error): undefined {
    const now = performance.now();
    if (now - this.#warnedAt < WARN_MS) return;
    this.#warnedAt = now;
    process.emitWarning(`a tenant's log cannot be written: ${error.message}`);
  }

  #forgetIdle(): void {
    const now = performance.now();
    if (this.#logs.size < OPEN_LOGS || now - this.#lookedAt < LOOK_MS) return;
    this.#lookedAt = now;
    for (const [tenant, { log, usedAt }] of this.#logs) {
      // In one go: who has asked for it a moment ago, and still waits for it, must not be left with a log of its own.
      const idle = log && log.followers.size === 0 && log.waiting.length === 0 && now - usedAt > FORGET_MS;
      if (idle) this.#logs.delete(tenant);
    }
  }
}

async function openLog(folder: string): Promise<OpenLog> {
  const current = path.join(folder, CURRENT);
  const bytes = await stat(current).then(
    (found) => found.size,
    () => 0,
  );
  const text = await readText(current);
  const newest = parseLines(text).at(-1) ?? parseLines(await readText(path.join(folder, PREVIOUS))).at(-1);
  return {
    folder,
    made: undefined,
    lastId: newest?.id ?? 0,
    bytes,
    torn: text !== '' && !text.endsWith('\n'),
    waiting: [],
    writing: Promise.resolve(),
    timer: undefined,
    followers: new Set(),
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
