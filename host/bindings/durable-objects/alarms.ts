/**
 * Wakes deployments for the alarms of their Durable Objects. While an instance runs, workerd keeps the time; when it has
 * ended, the next alarm is read from its files, and the instance is started at that time.
 */
import { copyFile, lstat, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { Sandbox } from '../../sandbox/confinement.ts';
import { Problem } from '../../shared/problem.ts';
import { readNextAlarm } from './next-alarm.ts';

export interface ObjectAlarmsOptions {
  sandbox: Sandbox;
  /** Short-lived copies are made in it. */
  runFolder: string;
  /** Starts an instance. @throws when it cannot run now */
  wake(slug: string): Promise<void>;
  /** The next alarm of objects that are a cluster's, and not in files here: real time, ms. */
  nextOf?: ((tenant: string) => Promise<number | undefined>) | undefined;
  log: Logger;
}

export interface ObjectsAtRest {
  slug: string;
  tenant: string;
  /** Of all classes. */
  folder: string;
}

/** workerd's list of a class' alarms. */
const LIST = 'metadata.sqlite';
/**
 * In the tenant's folder: what was found when the lists were as they are. To read them takes a process, and a host may
 * start with thousands of tenants.
 */
const NOTE = 'next-alarm.json';
/** A deployment that cannot be started now, such as one that has expired, is tried again after this long, ms. */
const RETRY_MS = 60_000;
/** Longest time that a timer takes, ms. */
const LONGEST_MS = 2 ** 31 - 1;

export class ObjectAlarms {
  readonly #options: ObjectAlarmsOptions;
  readonly #timers = new Map<string, NodeJS.Timeout>();
  /** One is read after the other: each takes a process. */
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(options: ObjectAlarmsOptions) {
    this.#options = options;
  }

  /** Call it when the instance has ended. */
  look(objects: ObjectsAtRest): void {
    this.#turn = this.#turn.then(() => this.#look(objects));
  }

  close(): void {
    this.#closed = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }

  async #look(objects: ObjectsAtRest): Promise<void> {
    if (this.#closed) return;
    try {
      const next = await this.#next(objects);
      if (next === undefined) this.#forget(objects.slug);
      else this.#wakeAt(objects, next);
    } catch (error) {
      const { tenant, slug } = objects;
      this.#options.log.warn({ err: error, tenant, slug }, 'alarms of Durable Objects were not read; tried again');
      this.#later(objects.slug, RETRY_MS, () => this.look(objects));
    }
  }

  #forget(slug: string): void {
    clearTimeout(this.#timers.get(slug));
    this.#timers.delete(slug);
  }

  /** @param at real time, ms */
  #wakeAt(objects: ObjectsAtRest, at: number): void {
    const wait = at - Date.now();
    if (wait > LONGEST_MS) this.#later(objects.slug, LONGEST_MS, () => this.#wakeAt(objects, at));
    else this.#later(objects.slug, Math.max(0, wait), () => void this.#wake(objects));
  }

  #later(slug: string, ms: number, work: () => void): void {
    this.#forget(slug);
    if (!this.#closed) this.#timers.set(slug, setTimeout(work, ms).unref());
  }

  async #wake(objects: ObjectsAtRest): Promise<void> {
    const { slug } = objects;
    this.#forget(slug);
    // From here on workerd has the alarm; when it ends, it is looked for again.
    await this.#options.wake(slug).catch((error: Error) => {
      this.#options.log.debug({ slug, err: error }, 'a deployment was not woken for an alarm; tried again');
      // One that fails again and again says when it may be started next.
      const wait = error instanceof Problem ? Number(error.headers['retry-after']) * 1_000 : Number.NaN;
      this.#later(slug, wait > 0 ? Math.min(wait, RETRY_MS) : RETRY_MS, () => this.look(objects));
    });
  }

  /** @returns real time, ms */
  async #next({ tenant, folder }: ObjectsAtRest): Promise<number | undefined> {
    if (this.#options.nextOf) return await this.#options.nextOf(tenant);
    const ids = await readdir(folder).catch(() => []);
    const lists = ids.map((id) => path.join(folder, id, LIST));
    const stamp = (await Promise.all(lists.flatMap((list) => [stampOf(list), stampOf(`${list}-wal`)]))).join(' ');
    if (stamp.trim() === '') return undefined;
    const note = path.join(path.dirname(folder), NOTE);
    const known = await readNote(note);
    if (known?.stamp === stamp) return known.next ?? undefined;
    const next = await this.#read(tenant, lists);
    await writeFile(note, JSON.stringify({ stamp, next: next ?? null }), { mode: 0o600 });
    return next;
  }

  /** A copy is read: an instance may start at any time, and has the files for itself. */
  async #read(tenant: string, lists: string[]): Promise<number | undefined> {
    const copy = await mkdtemp(path.join(this.#options.runFolder, '.alarms-'));
    try {
      for (const [index, list] of lists.entries()) {
        const name = path.join(copy, `${index}.sqlite`);
        await copyIfThere(list, name);
        await copyIfThere(`${list}-wal`, `${name}-wal`);
      }
      return await readNextAlarm(this.#options.sandbox, tenant, copy);
    } finally {
      await rm(copy, { recursive: true, force: true });
    }
  }
}

/** Changes with the file; empty: there is none. */
async function stampOf(file: string): Promise<string> {
  const found = await lstat(file, { bigint: true }).catch(() => undefined);
  return found ? `${found.ino}.${found.size}.${found.mtimeNs}` : '';
}

const noteShape = z.object({ stamp: z.string(), next: z.int().nullable() });

async function readNote(file: string): Promise<z.infer<typeof noteShape> | undefined> {
  const text = await readFile(file, 'utf8').catch(() => '{}');
  try {
    return noteShape.safeParse(JSON.parse(text)).data;
  } catch {
    // It was cut off.
    return undefined;
  }
}

async function copyIfThere(from: string, to: string): Promise<void> {
  await copyFile(from, to).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
}
