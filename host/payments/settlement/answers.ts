/**
 * Answers of paid routes, kept so that a retry gets the same: one file each, outside of the registry, which never
 * shrinks. Each node of a host keeps those that it gave, and asks the others for theirs. There is a budget per tenant
 * and one in all, the oldest go first, and the last bytes of the disk are left to the registry. They are not synced to
 * the disk, which would cost more than the payment: a file says what its digest is, so one that a power cut left half
 * written is none, and the payment itself is in the registry.
 */
import { createHash } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { mkdir, readdir, readFile, rm, stat, statfs, writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Logger } from 'pino';
import { z } from 'zod';
import type { PaymentRow } from '../../registry/payments/schema.ts';
import { NO_OTHERS, type Others, type Pieces } from '../../shared/others.ts';

export interface WholeAnswer {
  status: number;
  headers: [string, string][];
  body: Buffer;
}

/** Which answer: of which payment. */
type KeptOf = Pick<PaymentRow, 'id' | 'attempts' | 'tenant'>;

/** As another node asks for it. */
const keptShape = z.strictObject({
  id: z.string().regex(/^[\w-]{1,64}$/),
  attempts: z.int().min(0),
  tenant: z.string().regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
});

export interface AnswerBudget {
  tenantBytes: number;
  totalBytes: number;
  /** Free space of the disk below which nothing is kept. */
  reserveBytes: number;
}

/** In front of the body. Another node may say anything. */
const headShape = z.object({
  status: z.int().min(200).max(599),
  headers: z.array(z.tuple([z.string().regex(/^[!#$%&'*+.^_`|~\w-]+$/), z.string().regex(/^[^\0\r\n]*$/)])),
  size: z.int().min(0),
  sha256: z.string(),
});
const MOST_HEAD = 256 * 1024;
/** Of an answer that comes from another node. */
const MOST_ASKED_BYTES = 16 * 1_048_576;
/** What another node has of this one's answers at a time, and until it has taken one, ms. */
const ASKED = { most: 8, takenMs: 5_000 };

/** What the smallest file takes of the disk. */
const BLOCK = 4096;
const FILE_MODE = { mode: 0o600 };
/** Contents up to this size are written without a thread, bytes. */
const WRITTEN_AT_ONCE = 64 * 1024;
/** For how long an answer of the system about free space is believed, ms. */
const SPACE_MS = 500;

interface Kept {
  tenant: string;
  size: number;
  /** When it was written, ms. */
  at: number;
  written: Promise<boolean>;
}

const WRITTEN = Promise.resolve(true);

export class Answers {
  readonly #folder: string;
  readonly #budget: AnswerBudget;
  readonly #log: Logger;
  readonly #others: Others;
  /** Oldest first, once `listed`. */
  readonly #files = new Map<string, Kept>();
  /** Per tenant: its files, oldest first once `listed`, and what they take. */
  readonly #tenants = new Map<string, { files: Set<string>; size: number }>();
  #listed = false;
  /** What was removed before `listed`: the list may have seen it just before. */
  readonly #gone = new Set<string>();
  #total = 0;
  #space: { at: number; free: Promise<number> } | undefined;

  /** When what an earlier process kept is known. Answers are kept and read before; budgets hold from then on. */
  readonly listed: Promise<void>;

  /** @param others which keep the answers that they gave */
  constructor(folder: string, budget: AnswerBudget, log: Logger, others: Others = NO_OTHERS) {
    this.#folder = folder;
    this.#budget = budget;
    this.#log = log;
    this.#others = others;
    others.answer('paid answer', keptShape, ASKED, (row) => this.#answer(row));
    this.listed = this.#list();
  }

  /** Resolves when the answer is on the disk, or is not kept. Never rejects: an answer that is not kept is no failure. */
  async keep(row: PaymentRow, answer: WholeAnswer): Promise<void> {
    if (row.tenant === null) return;
    const file = this.#fileOf(row, row.tenant);
    const known = this.#files.get(file);
    if (known) return void (await known.written);
    const content = encoded(answer);
    const size = taken(content.length);
    const { tenantBytes, totalBytes, reserveBytes } = this.#budget;
    if (size > tenantBytes || size > totalBytes || (await this.#free()) - size < reserveBytes) return;
    const raced = this.#files.get(file);
    if (raced) return void (await raced.written);
    const written = Promise.withResolvers<boolean>();
    this.#add(file, { tenant: row.tenant, size, at: Date.now(), written: written.promise });
    const dropped = this.#listed ? this.#overBudget(row.tenant) : [];
    const kept = await write(file, content).catch((error) => {
      this.#log.warn({ err: error, payment: row.id }, 'the answer of a payment is not kept');
      return false;
    });
    // It may have been the oldest before it was written.
    const dropping = this.#files.get(file)?.written !== written.promise;
    if (!kept || dropping) await this.#remove(file);
    written.resolve(kept && !dropping);
    await Promise.all(dropped.map((each) => this.#remove(each)));
  }

  /** @returns undefined when it was not kept, was dropped meanwhile or is damaged */
  async read(row: KeptOf): Promise<WholeAnswer | undefined> {
    const file = await this.#file(row);
    return file && decoded(file);
  }

  /** As `read`; where another node of this host gave the answer, from there. */
  async find(row: KeptOf): Promise<WholeAnswer | undefined> {
    const own = await this.read(row);
    if (own) return own;
    const { id, attempts, tenant } = row;
    const { answers } = await this.#others.all('paid answer', {
      asked: () => ({ id, attempts, tenant }),
      mostBytes: MOST_ASKED_BYTES,
      read: decoded,
    });
    return answers.find(({ said }) => said)?.said;
  }

  async #file(row: KeptOf): Promise<Buffer | undefined> {
    if (row.tenant === null) return undefined;
    try {
      return await readFile(this.#fileOf(row, row.tenant));
    } catch (error) {
      if (!isMissing(error)) this.#log.warn({ err: error, payment: row.id }, 'a kept answer cannot be read');
      return undefined;
    }
  }

  async *#answer(row: KeptOf): Pieces {
    yield (await this.#file(row)) ?? Buffer.alloc(0);
  }

  async drop(row: PaymentRow): Promise<void> {
    if (row.tenant === null) return;
    const file = this.#fileOf(row, row.tenant);
    const known = this.#files.get(file);
    if (!known && this.#listed) return;
    await known?.written;
    await this.#remove(file);
  }

  /** Removes answers older than `keepMs`. */
  async sweep(keepMs: number): Promise<void> {
    await this.listed;
    for (const [file, { at, written }] of this.#files) {
      // The oldest come first.
      if (at > Date.now() - keepMs) return;
      await written;
      await this.#remove(file);
    }
  }

  /** What all kept answers take of the disk, bytes. */
  get size(): number {
    return this.#total;
  }

  /** A credential that is tried again after a release has another answer. */
  #fileOf({ id, attempts }: KeptOf, tenant: string): string {
    return path.join(this.#folder, encodeURIComponent(tenant).replaceAll('.', '%2E'), `${id}.${attempts}`);
  }

  #add(file: string, kept: Kept): void {
    this.#files.set(file, kept);
    const tenant = this.#tenants.get(kept.tenant) ?? { files: new Set(), size: 0 };
    tenant.files.add(file);
    tenant.size += kept.size;
    this.#tenants.set(kept.tenant, tenant);
    this.#total += kept.size;
  }

  #forget(file: string): void {
    const kept = this.#files.get(file);
    if (!kept) return;
    this.#files.delete(file);
    this.#total -= kept.size;
    const tenant = this.#tenants.get(kept.tenant);
    if (!tenant) return;
    tenant.files.delete(file);
    tenant.size -= kept.size;
    if (tenant.files.size === 0) this.#tenants.delete(kept.tenant);
  }

  /** Takes the oldest out of the index until the budgets hold. */
  #overBudget(tenant: string): string[] {
    const dropped: string[] = [];
    const drop = ([oldest]: Iterable<string>) => {
      if (oldest === undefined) return false;
      this.#forget(oldest);
      dropped.push(oldest);
      return true;
    };
    const own = () => this.#tenants.get(tenant);
    while ((own()?.size ?? 0) > this.#budget.tenantBytes && drop(own()?.files ?? []));
    while (this.#total > this.#budget.totalBytes && drop(this.#files.keys()));
    return dropped;
  }

  async #remove(file: string): Promise<void> {
    this.#forget(file);
    if (!this.#listed) this.#gone.add(file);
    await rm(file, { force: true }).catch((error) => this.#log.warn({ err: error }, 'an old answer cannot be removed'));
  }

  #free(): Promise<number> {
    const now = performance.now();
    if (this.#space && now - this.#space.at < SPACE_MS) return this.#space.free;
    const free = mkdir(this.#folder, { recursive: true, mode: 0o700 })
      .then(() => statfs(this.#folder))
      .then(
        ({ bavail, bsize }) => bavail * bsize,
        () => 0,
      );
    this.#space = { at: now, free };
    return free;
  }

  /** In the background, one file after the other: there may be a quarter of a million of them. */
  async #list(): Promise<void> {
    const failed = (error: unknown) => this.#log.error({ err: error }, 'kept answers cannot be listed');
    const folders = await names(this.#folder).catch(failed);
    for (const folder of folders ?? []) await this.#listFolder(folder).catch(failed);
    const found = [...this.#files].sort(([, a], [, b]) => a.at - b.at);
    this.#files.clear();
    this.#tenants.clear();
    this.#total = 0;
    for (const [file, kept] of found) this.#add(file, kept);
    this.#listed = true;
    this.#gone.clear();
    const dropped = [...this.#tenants.keys()].flatMap((tenant) => this.#overBudget(tenant));
    for (const file of dropped) await this.#remove(file);
  }

  async #listFolder(folder: string): Promise<void> {
    const tenant = decodeURIComponent(folder);
    for (const name of await names(path.join(this.#folder, folder))) {
      const file = path.join(this.#folder, folder, name);
      const found = await stat(file).catch(() => undefined);
      if (found?.isFile() && !this.#files.has(file) && !this.#gone.has(file))
        this.#add(file, { tenant, size: taken(found.size), at: found.mtimeMs, written: WRITTEN });
    }
  }
}

/** No draft and no rename: a file that is not whole contradicts its digest. */
async function write(file: string, content: Buffer): Promise<true> {
  // The pool of threads takes more time for a small file than writing it does.
  const put = () =>
    content.length <= WRITTEN_AT_ONCE ? writeFileSync(file, content, FILE_MODE) : writeFile(file, content, FILE_MODE);
  try {
    await put();
  } catch (error) {
    if (!isMissing(error)) throw error;
    await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    await put();
  }
  return true;
}

/** One line of JSON, then the body. */
function encoded({ status, headers, body }: WholeAnswer): Buffer {
  const line = JSON.stringify({ status, headers, size: body.length, sha256: sha256(body) });
  return Buffer.concat([Buffer.from(`${line}\n`), body]);
}

function decoded(content: Buffer): WholeAnswer | undefined {
  const end = content.indexOf(10);
  if (end < 0 || end > MOST_HEAD) return undefined;
  try {
    const { status, headers, ...said } = headShape.parse(JSON.parse(content.toString('utf8', 0, end)));
    const body = content.subarray(end + 1);
    if (body.length !== said.size || sha256(body) !== said.sha256) return undefined;
    return { status, headers, body };
  } catch {
    return undefined;
  }
}

function sha256(data: Buffer): string {
  return createHash('sha256').update(data).digest('base64');
}

function taken(size: number): number {
  return Math.max(1, Math.ceil(size / BLOCK)) * BLOCK;
}

async function names(folder: string): Promise<string[]> {
  return readdir(folder).catch((error) => {
    if (isMissing(error)) return [];
    throw error;
  });
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}
