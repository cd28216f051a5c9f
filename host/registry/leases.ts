/**
 * Leases: what only one node of a host may do at a time. Whoever works under one writes with its fence (fences.ts), so
 * that a node that was stopped, or cut off, and goes on after another has taken over writes nothing any more. The
 * database's clock alone says when a lease ends.
 */
import type { Client, InValue } from '@libsql/client/sqlite3';
import { KeyedLock } from '../shared/mutex.ts';
import { type Fence, fenced, fences, unfenced } from './fences.ts';

/** What a holder of a lease that is given back each time leaves to the next. */
export interface Passed {
  note: string | undefined;
  /** How long ago that was, ms. */
  ageMs: number;
}

export interface Holding {
  /** With the lease, each time that this node gets it. What is left of the holder before is done here. */
  gained(): Promise<void>;
  /** This node has it no longer. */
  lost(): void;
}

export interface Leases {
  /**
   * Works under a lease that this node keeps from then on.
   * @returns undefined where another node has it: nothing was done
   */
  run<T>(name: string, work: () => Promise<T>): Promise<T | undefined>;
  /** Takes a lease now, or as soon as it is free; also when `run` takes it, `gained` is first. */
  keep(name: string, holding: Holding): Promise<void>;
  /** Waits for a lease, and gives it back after the work. Never inside work under the same one. */
  exclusively<T>(name: string, work: (passed: Passed) => Promise<T>): Promise<T>;
}

/** Of the only process on a registry: it has every lease, and nobody to hear of it. */
export class OwnLeases implements Leases {
  readonly #turns = new KeyedLock();
  readonly #notes = new Map<string, { note: string | undefined; at: number }>();

  run<T>(_name: string, work: () => Promise<T>): Promise<T> {
    return work();
  }

  keep(_name: string, { gained }: Holding): Promise<void> {
    return gained();
  }

  exclusively<T>(name: string, work: (passed: Passed) => Promise<T>): Promise<T> {
    return this.#turns.run(name, async () => {
      const { note, at } = this.#notes.get(name) ?? { note: undefined, at: 0 };
      const passed = { note, ageMs: performance.now() - at };
      try {
        return await work(passed);
      } finally {
        if (passed.note === undefined) this.#notes.delete(name);
        else this.#notes.set(name, { note: passed.note, at: performance.now() });
      }
    });
  }
}

/** It says that the node lives. */
export function nodeLease(node: string): string {
  return `node:${node}`;
}

/** By the database's clock, ms. */
export const NOW = "CAST(unixepoch('subsec') * 1000 AS BIGINT)";
const IS_HELD = `name = ? AND holder = ? AND epoch = ? AND valid_until > ${NOW}`;
/** What one node waits for, while another has it: between that and twice that, ms. */
const ASK_AGAIN_MS = 15;
const FORGET_NODES_MS = 86_400_000;

interface Held {
  epoch: number;
  /** ms of `performance.now()`, no later than the database has it. */
  until: number;
  /** What the holder before left has been seen to. */
  isReady: boolean;
  fence: Fence;
}

export class RegistryLeases implements Leases {
  readonly #client: Client;
  readonly #node: string;
  readonly #validMs: number;
  /** The one that says that this node lives. */
  readonly nodeLease: string;
  readonly #held = new Map<string, Held>();
  readonly #kept = new Map<string, Holding>();
  readonly #turns = new KeyedLock();
  #ended = false;
  #leaving = false;

  /** @param validMs how long a lease lasts that is not renewed: longer than what a write may wait for another node */
  constructor(client: Client, node: string, validMs: number) {
    this.#client = client;
    this.#node = node;
    this.nodeLease = nodeLease(node);
    this.#validMs = validMs;
  }

  async run<T>(name: string, work: () => Promise<T>): Promise<T | undefined> {
    if (fences().some((fence) => fence.name === name)) return work();
    const held = this.#valid(name) ?? (await this.#hold(name));
    return held && fenced(held.fence, work);
  }

  async keep(name: string, holding: Holding): Promise<void> {
    this.#kept.set(name, holding);
    await this.#hold(name);
  }

  exclusively<T>(name: string, work: (passed: Passed) => Promise<T>): Promise<T> {
    return this.#turns.run(name, async () => {
      const passed: Passed = { note: undefined, ageMs: 0 };
      let held: Held | undefined;
      for (;;) {
        held = await this.#take(name, passed);
        if (held) break;
        await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS * (1 + Math.random())));
      }
      try {
        return await fenced(held.fence, () => work(passed));
      } finally {
        await this.#giveBack(name, held, passed.note);
      }
    });
  }

  /** Takes what is to be kept and is free: first that of the node itself, for which others leave alone its work. */
  async takeKept(): Promise<void> {
    const names = new Set([this.nodeLease, ...this.#kept.keys()]);
    const ends = await Promise.allSettled([...names].map((name) => this.#valid(name) ?? this.#hold(name)));
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed) throw failed.reason;
  }

  /**
   * Renews what is held. It takes no lock but the rows', so that no writer holds it up.
   * @param ask runs one statement
   */
  async renew(ask: (sql: string, args: InValue[]) => Promise<readonly Record<string, unknown>[]>): Promise<void> {
    const asked = [...this.#held];
    const sql = `UPDATE leases SET valid_until = ${NOW} + ? WHERE holder = ? AND valid_until > ${NOW}
      AND name IN (${asked.map(() => '?').join(', ') || 'NULL'}) RETURNING name, epoch`;
    const askedAt = performance.now();
    const rows = await ask(sql, [this.#validMs, this.#node, ...asked.map(([name]) => name)]);
    const epochs = new Map(rows.map(({ name, epoch }) => [name, Number(epoch)]));
    for (const [name, held] of asked) {
      if (this.#held.get(name) !== held) continue;
      if (epochs.get(name) === held.epoch) held.until = askedAt + this.#validMs;
      else this.#lose(name);
    }
  }

  /** Until when others take this node for living, ms of `performance.now()`; undefined: they need not. */
  livesUntil(): number | undefined {
    return this.#valid(this.nodeLease)?.until;
  }

  /** Nodes that ended long ago leave nothing: each start is a node of its own. Nor do changes of deployments. */
  async forgetNodes(): Promise<void> {
    const sql = `DELETE FROM leases WHERE (name LIKE 'node:%' OR name LIKE 'update:%') AND valid_until < ${NOW} - ?`;
    await this.#client.execute(sql, [FORGET_NODES_MS]);
  }

  /** Leaves what is kept to the other nodes, or takes it again as it gets free. What is under way writes no more. */
  async leave(leaving: boolean): Promise<void> {
    this.#leaving = leaving;
    if (!leaving) return;
    for (const name of this.#left()) {
      const held = this.#held.get(name);
      if (!held) continue;
      this.#lose(name);
      await this.#giveBack(name, held, undefined);
    }
  }

  #left(): string[] {
    return [...this.#kept.keys()].filter((name) => name !== this.nodeLease);
  }

  /** Gives back everything, for others to take at once. */
  async end(): Promise<void> {
    this.#ended = true;
    for (const name of [...this.#held.keys()]) this.#lose(name);
    await this.#client.execute(`UPDATE leases SET valid_until = ${NOW} WHERE holder = ? AND valid_until > ${NOW}`, [
      this.#node,
    ]);
  }

  /** What is held by this process, and ready to be worked under. */
  #valid(name: string): Held | undefined {
    const held = this.#held.get(name);
    if (held && held.until <= performance.now()) this.#lose(name);
    return held?.isReady && held.until > performance.now() ? held : undefined;
  }

  #lose(name: string): void {
    if (this.#held.delete(name)) this.#kept.get(name)?.lost();
  }

  #hold(name: string): Promise<Held | undefined> {
    return this.#turns.run(name, async () => {
      if (this.#leaving && this.#left().includes(name)) return undefined;
      const held = this.#valid(name) ?? (await this.#take(name));
      if (!held || held.isReady) return held;
      try {
        await fenced(held.fence, async () => this.#kept.get(name)?.gained());
      } catch (error) {
        this.#lose(name);
        await this.#giveBack(name, held, undefined);
        throw error;
      }
      held.isReady = true;
      return held;
    });
  }

  /** @returns undefined where it is another's */
  #take(name: string, passed?: Passed): Promise<Held | undefined> {
    return unfenced(async () => {
      if (this.#ended) throw new Error('the registry is closed');
      const { rows } = await this.#client.execute(
        `SELECT holder, epoch, note, valid_until > ${NOW} AS valid, ${NOW} - valid_until AS age FROM leases WHERE name = ?`,
        [name],
      );
      const [row] = rows;
      if (row?.valid === 1 && row.holder !== this.#node) return undefined;
      const epoch = Number(row?.epoch ?? 0) + 1;
      const askedAt = performance.now();
      const taken = await this.#client.execute(
        `INSERT INTO leases (name, holder, epoch, valid_until) VALUES (?, ?, ?, ${NOW} + ?)
          ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, epoch = excluded.epoch, valid_until = excluded.valid_until
          WHERE leases.epoch = excluded.epoch - 1 AND (leases.valid_until <= ${NOW} OR leases.holder = excluded.holder)`,
        [name, this.#node, epoch, this.#validMs],
      );
      if (taken.rowsAffected === 0) return undefined;
      if (passed) Object.assign(passed, { note: row?.note ?? undefined, ageMs: Number(row?.age ?? 0) });
      const held = { epoch, until: askedAt + this.#validMs, isReady: false, fence: this.#fence(name, epoch) };
      this.#held.set(name, held);
      return held;
    });
  }

  #fence(name: string, epoch: number): Fence {
    const sql = `INSERT INTO leases (name, holder, epoch, valid_until)
      SELECT NULL, '', 0, 0 WHERE NOT EXISTS (SELECT 1 FROM leases WHERE ${IS_HELD})`;
    return { name, check: { sql, args: [name, this.#node, epoch] } };
  }

  /** Where it cannot be written it ends by itself: what was done is done. */
  async #giveBack(name: string, held: Held, note: string | undefined): Promise<void> {
    if (this.#held.get(name) === held) this.#held.delete(name);
    const sql = `UPDATE leases SET valid_until = ${NOW}, note = ? WHERE ${IS_HELD}`;
    const args = [note ?? null, name, this.#node, held.epoch];
    await unfenced(() => this.#client.execute(sql, args)).catch(() => undefined);
  }
}
