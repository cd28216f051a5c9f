/**
 * Versions of tenants' code on disk, named by the digest of their content: `<folder>/<sha256>/` holds the modules, a
 * manifest and the source map. A version is complete when it has its name, and never changes.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, readFile, rename, rm, stat, utimes } from 'node:fs/promises';
import path from 'node:path';
import type { CodeBundle, CodeModule } from '../shared/contracts.ts';
import { trimCopies } from '../shared/local-copies.ts';
import { Problem } from '../shared/problem.ts';

interface Manifest {
  modules: { name: string; type: CodeModule['type']; file: string }[];
  sourceMap: boolean;
  /** Absent: none. */
  entrypoints?: string[];
}

const MANIFEST = 'manifest.json';
const SOURCE_MAP = 'source-map.json';
const DIGEST = /^[0-9a-f]{64}$/;
/** Bundles kept in memory, bytes: a cold start should not read the disk. */
const CACHE_BYTES = 32 * 1_048_576;
/** Content that was put and not released is not removed for this long, ms: a deploy names it only once it is paid. */
const HOLD_MS = 15 * 60_000;
/** Copies of what several nodes have: those that were used longest ago are fetched again. */
const COPIES_BYTES = 2 * 1024 ** 3;
/** What `put` has not finished; a crash leaves it behind. */
const UNFINISHED = '.new-';

/** Where several nodes have the same versions. */
export interface SharedCode {
  put(digest: string, bundle: CodeBundle): Promise<void>;
  get(digest: string): Promise<CodeBundle | undefined>;
}

/** A bundle that is being written, and has no name yet. */
export interface StagedCode {
  /** As `put` of the bundle with these entrypoints. */
  keep(entrypoints: string[]): Promise<string>;
  discard(): Promise<void>;
}

/** The content of a version, in a folder of its own that is no version yet. */
interface Unnamed {
  folder: string;
  bundle: CodeBundle;
  written: Promise<void>;
}

export class CodeStore {
  readonly #folder: string;
  readonly #shared: SharedCode | undefined;
  /** Least recently used first. */
  readonly #cache = new Map<string, CodeBundle>();
  #cachedBytes = 0;
  /** When content was put by those that have not released it, ms of `performance.now()`. */
  readonly #held = new Map<string, number[]>();
  /** Removals that are under way. */
  readonly #removals = new Map<string, Promise<void>>();

  constructor(folder: string, shared?: SharedCode) {
    this.#folder = folder;
    this.#shared = shared;
  }

  /**
   * Keeps a bundle; the same content is kept once. What is there but damaged is replaced.
   * @returns its digest; on disk, and safe from power loss, when this resolves. `release` it once it is named, or refused
   */
  async put(bundle: CodeBundle): Promise<string> {
    return await this.stage(bundle).keep(bundle.entrypoints ?? []);
  }

  /** Begins to write a bundle that is still being tried out: a disk may take as long as that. Keep or discard it. */
  stage(bundle: CodeBundle): StagedCode {
    const unnamed = this.#write(bundle);
    return {
      discard: () => discard(unnamed),
      keep: async (entrypoints) => {
        try {
          const kept = entrypoints.length > 0 ? { ...bundle, entrypoints } : bundle;
          const digest = digestOf(kept);
          this.#hold(digest);
          await this.#shared?.put(digest, kept);
          return await this.#name(unnamed, kept, digest);
        } finally {
          await discard(unnamed);
        }
      },
    };
  }

  #write(bundle: CodeBundle): Unnamed {
    const folder = path.join(this.#folder, `${UNFINISHED}${randomUUID()}`);
    const written = writeContent(folder, bundle);
    // A failure is thrown to whoever gives it its name.
    written.catch(() => undefined);
    return { folder, bundle, written };
  }

  /** @param bundle what was written, or the same with the entrypoints that were found meanwhile */
  async #name({ folder: temporary, written, ...staged }: Unnamed, bundle: CodeBundle, digest: string): Promise<string> {
    await this.#removals.get(digest);
    const target = path.join(this.#folder, digest);
    if (await this.#holds(target, digest)) return digest;
    const damaged = `${temporary}-damaged`;
    try {
      await written;
      if (bundle !== staged.bundle) await writeDurably(path.join(temporary, MANIFEST), manifestOf(bundle));
      await rename(temporary, target).catch(async (error) => {
        // Somebody else stored the same content meanwhile, or it is damaged.
        if (await this.#holds(target, digest)) return;
        if (!['ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(error.code)) throw error;
        await rename(target, damaged);
        await rename(temporary, target);
      });
      await syncFolder(this.#folder);
    } finally {
      await rm(damaged, { recursive: true, force: true });
    }
    this.#remember(digest, bundle);
    return digest;
  }

  /** @throws Problem start_failed when it is not there, or not what it was */
  async get(digest: string): Promise<CodeBundle> {
    const cached = this.#cache.get(digest);
    if (cached) {
      this.#cache.delete(digest);
      this.#cache.set(digest, cached);
      return cached;
    }
    if (!DIGEST.test(digest)) throw new Problem('internal', `invalid code digest: ${digest}`);
    const bundle = await this.#read(path.join(this.#folder, digest)).catch(async (error: Error) => {
      const shared = await this.#shared?.get(digest).catch((cause) => {
        throw new Problem('start_failed', 'The code of this version could not be fetched from the S3; try again.', {
          cause,
        });
      });
      if (!shared) {
        throw new Problem('start_failed', 'The code of this version is missing on this host; deploy it again.', {
          cause: error,
        });
      }
      if (digestOf(shared) === digest) {
        const unnamed = this.#write(shared);
        await this.#name(unnamed, shared, digest).finally(() => discard(unnamed));
      }
      return shared;
    });
    if (digestOf(bundle) !== digest) {
      throw new Problem('start_failed', 'The code of this version is damaged on this host; deploy it again.');
    }
    this.#remember(digest, bundle);
    return bundle;
  }

  /** Every digest that is stored. */
  async list(): Promise<string[]> {
    return (await readdir(this.#folder).catch(() => [])).filter((name) => DIGEST.test(name));
  }

  /** Who put content needs it no longer, or has named it. */
  release(digest: string): void {
    const times = this.#held.get(digest) ?? [];
    times.shift();
    if (times.length === 0) this.#held.delete(digest);
  }

  /**
   * Removes a version, unless somebody who put it has not released it. Idempotent.
   * @param isUnused whether nothing refers to it; who puts the same content meanwhile waits for the end of this
   */
  async remove(digest: string, isUnused: () => Promise<boolean>): Promise<void> {
    if (!DIGEST.test(digest) || this.#isHeld(digest)) return;
    const removal =
      this.#removals.get(digest) ?? this.#remove(digest, isUnused).finally(() => this.#removals.delete(digest));
    this.#removals.set(digest, removal);
    await removal;
  }

  /**
   * Removes what crashes and deploys that came to nothing left behind.
   * @param unused which of these digests nothing refers to
   */
  async sweep(unused: (digests: string[]) => Promise<string[]>): Promise<void> {
    const names = await readdir(this.#folder).catch(() => []);
    for (const name of names.filter((entry) => entry.startsWith(UNFINISHED))) {
      const folder = path.join(this.#folder, name);
      const age = Date.now() - (await stat(folder).then(({ mtimeMs }) => mtimeMs, Date.now));
      if (age > HOLD_MS) await rm(folder, { recursive: true, force: true });
    }
    for (const digest of await unused(names.filter((name) => DIGEST.test(name))))
      await this.remove(digest, async () => (await unused([digest])).length > 0);
    if (this.#shared) await trimCopies([this.#folder], COPIES_BYTES);
  }

  async #remove(digest: string, isUnused: () => Promise<boolean>): Promise<void> {
    if (!(await isUnused())) return;
    const cached = this.#cache.get(digest);
    if (cached) this.#cachedBytes -= sizeOf(cached);
    this.#cache.delete(digest);
    await rm(path.join(this.#folder, digest), { recursive: true, force: true });
  }

  async #read(folder: string): Promise<CodeBundle> {
    const now = new Date();
    if (this.#shared) await utimes(folder, now, now).catch(() => undefined);
    const manifest = JSON.parse(await readFile(path.join(folder, MANIFEST), 'utf8')) as Manifest;
    return {
      modules: await Promise.all(
        manifest.modules.map(async ({ name, type, file }) => ({
          name,
          type,
          body: new Uint8Array(await readFile(path.join(folder, file))),
        })),
      ),
      sourceMap: manifest.sourceMap ? await readFile(path.join(folder, SOURCE_MAP), 'utf8') : undefined,
      ...(manifest.entrypoints && { entrypoints: manifest.entrypoints }),
    };
  }

  async #holds(folder: string, digest: string): Promise<boolean> {
    return this.#read(folder).then(
      (bundle) => digestOf(bundle) === digest,
      () => false,
    );
  }

  #hold(digest: string): void {
    for (const known of this.#held.keys()) this.#isHeld(known);
    this.#held.set(digest, [...(this.#held.get(digest) ?? []), performance.now()]);
  }

  #isHeld(digest: string): boolean {
    const times = (this.#held.get(digest) ?? []).filter((at) => performance.now() - at < HOLD_MS);
    if (times.length > 0) this.#held.set(digest, times);
    else this.#held.delete(digest);
    return times.length > 0;
  }

  #remember(digest: string, bundle: CodeBundle): void {
    if (this.#cache.has(digest)) return;
    this.#cache.set(digest, bundle);
    this.#cachedBytes += sizeOf(bundle);
    for (const [oldest, old] of this.#cache) {
      if (this.#cachedBytes <= CACHE_BYTES) break;
      this.#cache.delete(oldest);
      this.#cachedBytes -= sizeOf(old);
    }
  }
}

/** SHA-256 over names, types, lengths and contents, hexadecimal. */
export function digestOf({ modules, sourceMap, entrypoints = [] }: CodeBundle): string {
  const hash = createHash('sha256');
  const add = (bytes: string | Uint8Array): void => {
    const content = Buffer.from(bytes as Uint8Array);
    const length = Buffer.alloc(8);
    length.writeBigUInt64BE(BigInt(content.length));
    hash.update(length).update(content);
  };
  for (const { name, type, body } of modules) {
    add(name);
    add(type);
    add(body);
  }
  add(sourceMap ?? '');
  for (const name of entrypoints) add(name);
  return hash.digest('hex');
}

/** Bytes that a bundle brings to the tenant's process. */
export function codeBytes(bundle: CodeBundle): number {
  return bundle.modules.reduce((sum, { body }) => sum + body.byteLength, 0);
}

function sizeOf(bundle: CodeBundle): number {
  return codeBytes(bundle) + (bundle.sourceMap?.length ?? 0);
}

/** What was named by then stays. Where the folder cannot be removed, `sweep` tries again. */
async function discard({ folder, written }: Unnamed): Promise<void> {
  await written.catch(() => undefined);
  await rm(folder, { recursive: true, force: true }).catch(() => undefined);
}

function moduleFile(index: number): string {
  return `module-${index}`;
}

function manifestOf({ modules, sourceMap, entrypoints }: CodeBundle): string {
  const manifest: Manifest = {
    modules: modules.map(({ name, type }, index) => ({ name, type, file: moduleFile(index) })),
    sourceMap: sourceMap !== undefined,
    ...(entrypoints && { entrypoints }),
  };
  return JSON.stringify(manifest);
}

/** All of a version, to a new folder. */
async function writeContent(folder: string, bundle: CodeBundle): Promise<void> {
  const { modules, sourceMap } = bundle;
  await mkdir(folder, { recursive: true, mode: 0o700 });
  for (const [index, { body }] of modules.entries()) await writeDurably(path.join(folder, moduleFile(index)), body);
  if (sourceMap !== undefined) await writeDurably(path.join(folder, SOURCE_MAP), sourceMap);
  await writeDurably(path.join(folder, MANIFEST), manifestOf(bundle));
  await syncFolder(folder);
}

async function writeDurably(file: string, content: string | Uint8Array): Promise<void> {
  const handle = await open(file, 'w', 0o600);
  try {
    await handle.writeFile(content);
    await handle.sync();
  } finally {
    await handle.close();
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
