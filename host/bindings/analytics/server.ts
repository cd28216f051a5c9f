/**
 * Serves the Analytics Engine bindings of a deployment. What a handler records comes in small messages; they are collected
 * here and written together to a database of their own, in a SQL process in the tenant's sandbox (../d1/). The same process
 * answers the owner's queries.
 */
import { randomUUID } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import http, { type IncomingMessage } from 'node:http';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { databaseProgram } from '../d1/database-program.ts';
import { MESSAGES } from '../d1/failure.ts';
import { FILE } from '../d1/files.ts';
import { OnDemandDatabase } from '../d1/on-demand-database.ts';
import type { BindingPlace, BindingServer, ServedBinding, ServerHost } from '../server.ts';
import { closeNow, endAnswer, listenAt, readBounded } from '../tenant-socket.ts';
import { FOLDER } from './files.ts';
import {
  ANSWER,
  DAY_SECONDS,
  DELAY_MS,
  MOST_DATASETS,
  MOST_POINTS,
  MOST_WAITING_BYTES,
  QUERY_TIMEOUT_MS,
  SWEEP_MS,
  TELL_MS,
} from './limits.ts';
import { parsePoints, pointBytes } from './points.ts';
import { Recorder, TOO_FAST } from './recorder.ts';
import {
  type DataPoint,
  insert,
  LAST_BATCH,
  MAKE_TABLE,
  makeView,
  markBatch,
  removeOlder,
  removeOldest,
  type Statement,
} from './schema.ts';
import { MOST_CHARACTERS, QueryFault } from './sql.ts';
import { readQuery, shownResult } from './sql-api.ts';

/** Of one message: a little more than what the binding sends. */
const MOST_MESSAGE_BYTES = 1_048_576;
const MOST_CONNECTIONS = 256;
/** Of one write. Where there is no room the oldest points go, more of them each time, and all before the last attempt. */
const MOST_ATTEMPTS = 8;
const RETRY_MS = 300;
/** Longest wait of an end for it, ms: the database may not start. */
const CLOSE_MS = 5_000;
/** Longest wait of a query for what was recorded before it, ms. */
const FLUSH_MS = 2_000;
/** A query that waits for a write before it, or for a start. */
const ASK_TIMEOUT_MS = 60_000;

export function analyticsServer(host: ServerHost): BindingServer {
  return {
    serve: (place) => new AnalyticsSocket(place, host),
    usage: async (tenant) => ({ analyticsBytes: await bytesOf(path.join(host.tenantsFolder, tenant, FOLDER)) }),
  };
}

async function bytesOf(folder: string): Promise<number> {
  const sizes = await Promise.all(
    [FILE, `${FILE}-wal`].map((name) =>
      stat(path.join(folder, name)).then(
        ({ size }) => size,
        () => 0,
      ),
    ),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

interface Answer {
  status: number;
  text: string;
}

class AnalyticsSocket implements ServedBinding {
  readonly processes: OnDemandDatabase;
  readonly #place: BindingPlace;
  readonly #host: ServerHost;
  readonly #recorder: Recorder;
  /** Of the SQL process; nobody else connects to it. */
  readonly #database: string;
  #server: http.Server | undefined;
  /** Lowercase, of this life of the database. */
  readonly #views = new Set<string>();
  #made = false;
  #sweptAt = Number.NEGATIVE_INFINITY;
  /** Bytes of messages that come in now. */
  #reading = 0;
  #lost = 0;
  #toldAt = Number.NEGATIVE_INFINITY;

  constructor(place: BindingPlace, host: ServerHost) {
    const { tenant, sandboxFolder, quotas, onDeath } = place;
    const { config, tenantsFolder, runFolder, sandbox, log } = host;
    this.#place = place;
    this.#host = host;
    const folder = path.join(sandboxFolder, 'y');
    this.#database = path.join(folder, 'd1.sock');
    const quota = () => quotas().analyticsBytes ?? config.storage.analyticsBytes;
    this.processes = new OnDemandDatabase({
      tenant,
      namespace: '',
      sandbox,
      // Always on this disk: what is bounded by its quota here may not be bounded elsewhere.
      storage: {
        ...config.storage,
        sql: 'local',
        sqlTimeoutMs: Math.min(QUERY_TIMEOUT_MS, config.storage.sqlTimeoutMs),
      },
      limits: ANSWER,
      program: databaseProgram(runFolder),
      dataFolder: path.join(tenantsFolder, tenant, FOLDER),
      mostBytes: quota,
      quotaBytes: async () => quota(),
      socketFolder: path.join(sandboxFolder, 'z'),
      socket: this.#database,
      clientUid: undefined,
      startTimeoutMs: config.runtime.startTimeoutMs,
      log,
      onDeath,
    });
    this.#recorder = new Recorder({
      delayMs: DELAY_MS,
      mostPoints: MOST_POINTS,
      mostBytes: MOST_WAITING_BYTES,
      write: (points) => this.#write(points),
      lost: (count, why) => this.#lose(count, why),
    });
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  }

  async open(): Promise<void> {
    await this.processes.open();
    if (this.#server) return;
    const server = http.createServer({ requestTimeout: ASK_TIMEOUT_MS }, (request, response) => {
      void this.#answer(request).then(({ status, text }) => {
        response.writeHead(status, { 'content-type': 'application/json' });
        endAnswer(request, response, text);
      });
    });
    server.maxConnections = MOST_CONNECTIONS;
    this.#server = server;
    await listenAt(server, this.#place.socket);
    this.#place.permit();
  }

  async close(): Promise<void> {
    closeNow(this.#server);
    this.#server = undefined;
    await Promise.race([this.#recorder.flush(), delay(CLOSE_MS, undefined, { ref: false })]);
    this.#tell();
    await this.processes.close();
  }

  async #answer(request: IncomingMessage): Promise<Answer> {
    try {
      const { pathname } = new URL(request.url ?? '/', 'http://analytics');
      if (request.method !== 'POST') return { status: 405, text: '' };
      if (pathname === '/query')
        return await this.#query((await readBounded(request, 4 * MOST_CHARACTERS))?.toString());
      // A backup, which copies the file.
      if (pathname.startsWith('/backup/')) return await this.#ask(pathname, '');
      return { status: await this.#take(request), text: '{}' };
    } catch (error) {
      return { status: 503, text: JSON.stringify({ error: (error as Error).message }) };
    }
  }

  /** A message of the binding. @returns the status of its answer, which nobody looks at */
  async #take(request: IncomingMessage): Promise<number> {
    const bytes = Number(request.headers['content-length']);
    if (!(bytes <= MOST_MESSAGE_BYTES)) return 413;
    // It is not read: to take it apart would cost this process as much as to keep it.
    if (this.#recorder.full || this.#reading + bytes > MOST_WAITING_BYTES) {
      this.#lose(1, TOO_FAST);
      return 429;
    }
    this.#reading += bytes;
    try {
      const points = parsePoints((await readBounded(request, bytes))?.toString() ?? '', this.#now());
      if (!points) return 400;
      for (const point of points) this.#recorder.add(point, pointBytes(point));
      return 200;
    } finally {
      this.#reading -= bytes;
    }
  }

  #now(): number {
    return Math.floor(Date.now() / 1_000);
  }

  async #query(text: string | undefined): Promise<Answer> {
    try {
      const sql = readQuery(text);
      await Promise.race([this.#recorder.flush(), delay(FLUSH_MS)]);
      await this.#make([]);
      await this.#sweep();
      const [result] = (await this.#run([{ sql, params: [] }], 'ROWS_AND_COLUMNS')) as [Result];
      return { status: 200, text: JSON.stringify(shownResult(result.results)) };
    } catch (error) {
      const status =
        error instanceof QueryFault || error instanceof SyntaxError || error instanceof Refusal ? 400 : 503;
      return { status, text: JSON.stringify({ error: (error as Error).message }) };
    }
  }

  /** @throws Error where they are lost */
  async #write(points: readonly DataPoint[]): Promise<void> {
    const batch = randomUUID();
    const statements = [...points.map(insert), markBatch(batch)];
    for (let attempt = 1; ; attempt++) {
      try {
        await this.#make(points.map(({ dataset }) => dataset));
        await this.#sweep();
        // The process may have ended between its commit and its answer.
        if (attempt > 1 && (await this.#lastBatch()) === batch) return;
        await this.#run(statements, 'NONE');
        return;
      } catch (error) {
        const { message } = error as Error;
        if (attempt >= MOST_ATTEMPTS) throw error;
        if (!(error instanceof Refusal)) await delay(attempt * RETRY_MS);
        else if (message === MESSAGES.full) await this.#run([removeOldest(MOST_ATTEMPTS - attempt)], 'NONE');
        // Another query ended the process before this was begun.
        else if (message !== MESSAGES.reset) throw error;
      }
    }
  }

  async #lastBatch(): Promise<unknown> {
    const [{ results }] = (await this.#run([{ sql: LAST_BATCH, params: [] }], 'ROWS_AND_COLUMNS')) as [Result];
    return results.rows[0]?.[0];
  }

  /** The table, and views of the datasets. */
  async #make(datasets: readonly string[]): Promise<void> {
    const missing = [...new Set(datasets)].filter((dataset) => !this.#views.has(dataset.toLowerCase()));
    if (this.#views.size + missing.length > MOST_DATASETS)
      throw new Refusal(`There are more than ${MOST_DATASETS} datasets.`);
    const statements = [...(this.#made ? [] : MAKE_TABLE), ...missing.map(makeView)];
    if (statements.length === 0) return;
    await this.#run(
      statements.map((sql) => ({ sql, params: [] })),
      'NONE',
    );
    this.#made = true;
    for (const dataset of missing) this.#views.add(dataset.toLowerCase());
  }

  async #sweep(): Promise<void> {
    const now = performance.now();
    if (now - this.#sweptAt < SWEEP_MS) return;
    this.#sweptAt = now;
    await this.#run([removeOlder(this.#now() - this.#host.config.storage.analyticsDays * DAY_SECONDS)], 'NONE');
  }

  /** In one transaction. @throws Refusal where the database says why, Error where it does not answer */
  async #run(statements: readonly Statement[], format: 'NONE' | 'ROWS_AND_COLUMNS'): Promise<unknown> {
    const { text } = await this.#ask(`/query?resultsFormat=${format}`, JSON.stringify(statements));
    const answer = JSON.parse(text) as { success?: false; error?: string };
    if (answer.success === false) throw new Refusal(answer.error ?? 'The database refused it.');
    return answer;
  }

  #ask(target: string, body: string): Promise<Answer> {
    return new Promise((resolve, reject) => {
      const failed = (cause?: unknown) =>
        reject(new Error('The database of the data points did not answer.', { cause }));
      const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };
      const call = http.request(
        { socketPath: this.#database, method: 'POST', path: target, headers, agent: false, timeout: ASK_TIMEOUT_MS },
        (response) => {
          const parts: Buffer[] = [];
          response.on('data', (part: Buffer) => parts.push(part));
          response.on('error', failed);
          response.on('end', () =>
            resolve({ status: response.statusCode ?? 0, text: Buffer.concat(parts).toString() }),
          );
        },
      );
      call.on('timeout', () => call.destroy());
      call.on('error', failed);
      call.end(body);
    });
  }

  #lose(count: number, why: string): void {
    this.#lost += count;
    const now = performance.now();
    if (now - this.#toldAt >= TELL_MS) this.#tell(why);
  }

  #tell(why = TOO_FAST): void {
    if (this.#lost === 0) return;
    this.#toldAt = performance.now();
    const { tenant } = this.#place;
    this.#host.tell(tenant, 'analytics-lost', `${this.#lost} data points or more were not kept. ${why}`);
    this.#lost = 0;
  }
}

/** What the database says of a statement. */
class Refusal extends Error {}

interface Result {
  results: { columns: string[]; rows: unknown[][] };
}
