/**
 * The process that holds the database. It gets its connections from the supervisor, runs their queries one after the
 * other, and commits brief writes that came together in one transaction. It may die at any moment.
 */
import type { Socket } from 'node:net';
import type { Call } from '../store-process/calls/call.ts';
import { Bookmarks } from './bookmark.ts';
import { MESSAGES, SqlFailure } from './failure.ts';
import { answer, type SqlRequest, sqlConnections } from './http.ts';
import { InFlightWriter, PHASE } from './inflight.ts';
import { findBinding, Libsql } from './native.ts';
import { failureText, type StatementResult, successText } from './protocol.ts';
import type { SqlSettings } from './settings.ts';
import { EmbeddedStore } from './store.ts';

/** From supervisor to engine. A connection comes along as the message's handle. */
export type ToEngine =
  | { kind: 'open'; settings: SqlSettings; careful: boolean }
  | { kind: 'connection'; slot: number }
  | { kind: 'end' };
/** From engine to supervisor. */
export type ToSupervisor = { kind: 'ready' } | { kind: 'failed'; reason: string } | { kind: 'closed'; slot: number };

/** File descriptor of the in-flight table: behind standard streams and the message channel. */
export const TABLE_FILE = 4;
/** A backup whose end is never told ends by itself, ms. */
const BACKUP_LIMIT_MS = 5 * 60_000;

interface Job extends SqlRequest {
  slot: number;
}

export function runEngine(): void {
  const table = new InFlightWriter(TABLE_FILE);
  const slots = new WeakMap<object, number>();
  const queue: Job[] = [];
  let store: EmbeddedStore | undefined;
  let bookmarks: Bookmarks | undefined;
  let ending = false;
  let resumeTimer: NodeJS.Timeout | undefined;

  const slotOf = (call: Call): number => slots.get(call.connection) ?? -1;
  const tell = (message: ToSupervisor): void => {
    process.send?.(message);
  };

  const connections = sqlConnections({
    received: (call) => table.set(slotOf(call), PHASE.received),
    finished: (call) => table.set(slotOf(call), PHASE.idle),
    query: (request) => {
      if (queue.length === 0) setImmediate(drain);
      queue.push({ ...request, slot: slotOf(request.call) });
    },
    backup: (step) => {
      clearTimeout(resumeTimer);
      if (step === 'begin') {
        store?.holdCheckpoints();
        resumeTimer = setTimeout(() => store?.resumeCheckpoints(), BACKUP_LIMIT_MS).unref();
      } else {
        store?.resumeCheckpoints();
      }
      return '{"success":true}';
    },
  });

  function drain(): void {
    const jobs = queue.splice(0);
    const { brief, others } = sort(jobs);
    if (brief.length > 1) runTogether(brief);
    else for (const job of brief) runAlone(job);
    for (const job of others) runAlone(job);
    if (ending) close();
  }

  /** A write is grouped only with others: what comes alone commits alone. */
  function sort(jobs: Job[]): { brief: Job[]; others: Job[] } {
    if (jobs.length === 1) return { brief: [], others: jobs };
    const brief: Job[] = [];
    const others: Job[] = [];
    for (const job of jobs) (store?.isBriefWrite(job.queries) ? brief : others).push(job);
    return { brief, others };
  }

  function runAlone(job: Job): void {
    table.set(job.slot, PHASE.running);
    reply(job, () => opened().run(job.queries));
  }

  /** One transaction, one sync to disk. If anything is unusual, each is run again by itself. */
  function runTogether(jobs: Job[]): void {
    const database = opened();
    const outcomes: (() => StatementResult[])[] = [];
    try {
      database.begin();
      for (const job of jobs) {
        table.set(job.slot, PHASE.running);
        const outcome = attempt(() => database.runWithin(job.queries));
        // A statement that fails undoes itself alone, except where it says ROLLBACK.
        if (!database.inTransaction) throw new Error('rolled back');
        outcomes.push(outcome);
        table.set(job.slot, PHASE.uncommitted);
      }
      database.commit();
    } catch {
      database.rollback();
      for (const job of jobs) runAlone(job);
      return;
    }
    for (const [index, job] of jobs.entries()) reply(job, outcomes[index] ?? (() => []));
  }

  function reply(job: Job, results: () => StatementResult[]): void {
    let text: string;
    let bookmark: string | undefined;
    try {
      text = successText(results(), job.format);
      if (job.inSession) bookmark = bookmarks?.next();
    } catch (error) {
      text = failureText(error instanceof SqlFailure ? error.message : unexpected(error));
    }
    // Its caller may be gone.
    table.set(job.slot, job.call.closed ? PHASE.idle : PHASE.answering);
    answer(job.call, 200, text, bookmark);
  }

  function opened(): EmbeddedStore {
    if (store === undefined) throw new SqlFailure(MESSAGES.unavailable);
    return store;
  }

  function close(): void {
    if (queue.length > 0) return;
    store?.close();
    process.exit(0);
  }

  process.on('message', (message: ToEngine, handle?: Socket) => {
    switch (message.kind) {
      case 'open':
        try {
          const { settings, careful } = message;
          const libsql = new Libsql(settings.native ?? findBinding(import.meta.url));
          store = new EmbeddedStore(libsql, settings.database, settings, careful);
          bookmarks = new Bookmarks(store.modifiedAt, Date.now);
          tell({ kind: 'ready' });
        } catch (error) {
          tell({ kind: 'failed', reason: String(error) });
        }
        return;
      case 'connection':
        if (handle === undefined) return tell({ kind: 'closed', slot: message.slot });
        slots.set(
          connections.adopt(handle, () => tell({ kind: 'closed', slot: message.slot })),
          message.slot,
        );
        return;
      case 'end':
        ending = true;
        if (queue.length === 0) close();
    }
  });
  // The supervisor has exited, so no query can arrive.
  process.on('disconnect', () => process.exit(0));
}

function attempt(run: () => StatementResult[]): () => StatementResult[] {
  try {
    const results = run();
    return () => results;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

/** Not the tenant's business in detail; the log of the instance gets it whole. */
function unexpected(error: unknown): string {
  process.stderr.write(`${JSON.stringify({ level: 'error', message: String(error) })}\n`);
  return 'internal error';
}
