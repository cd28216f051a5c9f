/**
 * What became of paid calls: the same credential, or the same Idempotency-Key, answers the stored response and is
 * never charged twice, also when this process died in the middle.
 */
import type { Database, Statement } from '../environment.ts';
import { Problem } from '../problem.ts';

/** Answers are kept this long for repetition. */
const KEEP_MS = 24 * 3_600_000;
/** Largest answer that is kept. */
export const MAX_KEPT_BYTES = 256 * 1024;
/** All kept answers together: a sixteenth of the usual quota. */
const MOST_KEPT_BYTES = 64 * 1024 * 1024;
/** A call that is older than this and still "working" belongs to a process that died: three forwards take less. */
export const ABANDONED_MS = 240_000;

/** How the keys begin that stand for an Idempotency-Key. */
export const IDEMPOTENCY = 'idempotency:';

export interface CallClaim {
  /** The credential's key, and that of an Idempotency-Key where there is one: both stand for this call. */
  keys: string[];
  requestId: string;
  /** The hold of the attempt before, whose process died. */
  abandonedHold: string | null;
}

export interface KeptAnswer {
  status: number;
  headers: [string, string][];
  body: Uint8Array<ArrayBuffer> | null;
}

interface CallRow {
  requestHash: string;
  requestId: string;
  state: 'working' | 'capturing' | 'done';
  attempt: number;
  hold: string | null;
  status: number | null;
  headers: string | null;
  body: number[] | Uint8Array | null;
  startedAt: number;
}

export class Calls {
  readonly #db: Database;

  constructor(db: Database) {
    this.#db = db;
  }

  /**
   * Takes a call on, or answers what is kept of it.
   * @throws Problem idempotency_conflict for another request under the same key; in_progress
   */
  async begin(key: string, requestHash: string, requestId: string): Promise<{ claim: CallClaim } | { kept: Response }> {
    const now = Date.now();
    const { meta } = await this.#db
      .prepare(
        `INSERT INTO calls (key, request_hash, request_id, state, started_at, keep_until)
         VALUES (?, ?, ?, 'working', ?, ?) ON CONFLICT DO NOTHING`,
      )
      .bind(key, requestHash, requestId, now, now + KEEP_MS)
      .run();
    if (meta.changes === 1) return { claim: { keys: [key], requestId, abandonedHold: null } };
    return this.#again(key, requestHash, now);
  }

  /** Takes a new call on, with what is held for it: the transaction that they are in fails where one of its keys is known. */
  beginHeld({ keys, requestId }: CallClaim, requestHash: string, hold: string, amount: number): Statement[] {
    const now = Date.now();
    return keys.map((key) =>
      this.#db
        .prepare(
          `INSERT INTO calls (key, request_hash, request_id, state, hold, amount, started_at, keep_until)
           VALUES (?, ?, ?, 'working', ?, ?, ?, ?)`,
        )
        .bind(key, requestHash, requestId, hold, amount, now, now + KEEP_MS),
    );
  }

  /** The kept answer of a finished call, without taking anything on. */
  async kept(key: string, requestHash: string): Promise<Response | undefined> {
    const row = await this.#row(key);
    if (row?.state !== 'done') return undefined;
    return answerOf(row, requestHash);
  }

  /**
   * Takes the same call on under a second key too; answers what is kept of that one, and what an abandoned attempt under
   * it had held. The call then goes on under the id of that attempt.
   * @throws Problem like `begin`
   */
  async join(claim: CallClaim, key: string, requestHash: string): Promise<{ kept?: Response; abandonedHold?: string }> {
    const begun = await this.begin(key, requestHash, claim.requestId);
    if ('kept' in begun) return begun;
    claim.keys.push(key);
    if (begun.claim.requestId !== claim.requestId) await this.#goOnAs(claim, begun.claim.requestId);
    return begun.claim.abandonedHold === null ? {} : { abandonedHold: begun.claim.abandonedHold };
  }

  /** An attempt before may have reached the origin, which knows the call by that attempt's id. */
  async #goOnAs(claim: CallClaim, requestId: string): Promise<void> {
    claim.requestId = requestId;
    await this.#db.batch(
      claim.keys.map((key) => this.#db.prepare('UPDATE calls SET request_id = ? WHERE key = ?').bind(requestId, key)),
    );
  }

  /** Notes the hold, so that whoever takes over after a crash can settle it. */
  noteHold({ keys }: CallClaim, hold: string, amount: number): Statement[] {
    return keys.map((key) =>
      this.#db.prepare('UPDATE calls SET hold = ?, amount = ? WHERE key = ?').bind(hold, amount, key),
    );
  }

  /** The work is done, the money is about to be taken: from here on a crash is followed by taking it. */
  capturing({ keys }: CallClaim, answer: KeptAnswer): Statement[] {
    return keys.map((key) => this.#store(key, 'capturing', answer));
  }

  done({ keys }: CallClaim, answer: KeptAnswer): Statement[] {
    return keys.map((key) => this.#store(key, 'done', answer));
  }

  /** A capture that a crash had left open went through. */
  captured(key: string): Statement {
    return this.#db.prepare("UPDATE calls SET state = 'done' WHERE key = ?").bind(key);
  }

  /** Nothing was charged: the same keys may try again. */
  async forget({ keys }: Pick<CallClaim, 'keys'>): Promise<void> {
    if (keys.length === 0) return;
    await this.#db.batch(
      keys.map((key) => this.#db.prepare("DELETE FROM calls WHERE key = ? AND state <> 'done'").bind(key)),
    );
  }

  /** Nothing was charged, but the origin may have done the work: an Idempotency-Key goes on standing for this call. */
  async unanswered({ keys }: CallClaim): Promise<void> {
    const kept = keys.filter((key) => key.startsWith(IDEMPOTENCY));
    await this.forget({ keys: keys.filter((key) => !kept.includes(key)) });
    for (const key of kept)
      await this.#db
        .prepare("UPDATE calls SET started_at = 0, hold = NULL WHERE key = ? AND state = 'working'")
        .bind(key)
        .run();
  }

  /** Calls whose money was not taken because the process died in that moment. */
  async unfinishedCaptures(): Promise<{ key: string; hold: string; amount: number }[]> {
    const { results } = await this.#db
      .prepare("SELECT key, hold, amount FROM calls WHERE state = 'capturing' AND started_at < ? LIMIT 100")
      .bind(Date.now() - ABANDONED_MS)
      .all<{ key: string; hold: string; amount: number }>();
    return results;
  }

  /** Payments of wallets that are held for calls whose process died. Credit has its own list of holds. */
  async abandonedPayments(): Promise<{ key: string; hold: string }[]> {
    const { results } = await this.#db
      .prepare(
        `SELECT key, hold FROM calls WHERE state = 'working' AND started_at < ? AND key LIKE 'wallet:%' AND hold IS NOT NULL
         LIMIT 100`,
      )
      .bind(Date.now() - 2 * ABANDONED_MS)
      .all<{ key: string; hold: string }>();
    return results;
  }

  /** Old calls go; of the younger ones the newest bodies stay, so that kept answers never crowd out the ledger. */
  async removeOld(): Promise<void> {
    await this.#db.batch([
      this.#db.prepare("DELETE FROM calls WHERE keep_until < ? AND state <> 'capturing'").bind(Date.now()),
      this.#db
        .prepare(
          `UPDATE calls SET body = NULL WHERE key IN (SELECT key FROM (
             SELECT key, sum(length(body)) OVER (ORDER BY started_at DESC, key) AS total
             FROM calls WHERE body IS NOT NULL AND state = 'done') WHERE total > ?)`,
        )
        .bind(MOST_KEPT_BYTES),
    ]);
  }

  async #again(key: string, requestHash: string, now: number): Promise<{ claim: CallClaim } | { kept: Response }> {
    const row = await this.#row(key);
    if (!row) throw inProgress();
    if (row.state === 'done') return { kept: answerOf(row, requestHash) };
    if (row.requestHash !== requestHash) throw conflict();
    if (row.state === 'capturing' || now - row.startedAt < ABANDONED_MS) throw inProgress();
    const { meta } = await this.#db
      .prepare(
        `UPDATE calls SET attempt = attempt + 1, started_at = ?, hold = NULL
         WHERE key = ? AND state = 'working' AND attempt = ?`,
      )
      .bind(now, key, row.attempt)
      .run();
    if (meta.changes !== 1) throw inProgress();
    return { claim: { keys: [key], requestId: row.requestId, abandonedHold: row.hold } };
  }

  #store(key: string, state: 'capturing' | 'done', { status, headers, body }: KeptAnswer): Statement {
    return this.#db
      .prepare('UPDATE calls SET state = ?, status = ?, headers = ?, body = ? WHERE key = ?')
      .bind(state, status, JSON.stringify(headers), body, key);
  }

  #row(key: string): Promise<CallRow | null> {
    return this.#db
      .prepare(
        `SELECT request_hash AS requestHash, request_id AS requestId, state, attempt, hold, status, headers, body,
         started_at AS startedAt FROM calls WHERE key = ?`,
      )
      .bind(key)
      .first<CallRow>();
  }
}

function answerOf(row: CallRow, requestHash: string): Response {
  if (row.requestHash !== requestHash) throw conflict();
  if (row.body === null && row.status !== 204) {
    throw new Problem('conflict', 'This call was paid and answered; its answer is not kept any more.');
  }
  const headers = new Headers(JSON.parse(row.headers ?? '[]') as [string, string][]);
  headers.set('idempotent-replay', 'true');
  const status = row.status ?? 200;
  return new Response(status === 204 || row.body === null ? null : new Uint8Array(row.body), { status, headers });
}

function conflict(): Problem {
  return new Problem(
    'idempotency_conflict',
    'This credential or Idempotency-Key was used for another request; use a new one. Nothing was charged.',
  );
}

function inProgress(): Problem {
  return new Problem(
    'in_progress',
    'The same call is still in progress; try again in a second.',
    {},
    { 'retry-after': '1' },
  );
}
